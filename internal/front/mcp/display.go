package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/kernel"
)

const (
	// maxInline bounds one output in an answer, as it is sent, and
	// maxInlineAll all of them: what is larger is a resource. Clients of the
	// official SDKs take messages of 16 MiB, and an image is in them twice.
	maxInline    = 2 << 20
	maxInlineAll = 4 << 20
	// maxShown bounds what is repeated in the text for the model.
	maxShown = 2 << 10
)

// display is one thing that code has shown.
type display struct {
	Type string `json:"type" jsonschema:"the MIME type"`
	Data string `json:"data" jsonschema:"text, or base64 of binary data; empty when it is too large: read uri then"`
	URI  string `json:"uri,omitempty" jsonschema:"the resource that has the data"`
}

// order is which type of a value with several is taken.
var order = []string{
	"text/html", "image/svg+xml", "image/png", "image/jpeg", "audio/wav", "audio/mpeg", "audio/ogg", "video/mp4",
	"image/webp", "image/gif", "application/pdf", "application/json", "text/markdown", "text/latex",
}

// pick takes one type of a value; "" when it has none.
func pick(b kernel.Bundle) (mime, data string) {
	for _, mime := range order {
		if raw, ok := b[mime]; ok {
			return mime, textOf(raw)
		}
	}
	for _, mime := range slices.Sorted(maps.Keys(b)) {
		if mime != "text/plain" {
			return mime, textOf(b[mime])
		}
	}
	if raw, ok := b["text/plain"]; ok {
		return "text/plain", textOf(raw)
	}
	return "", ""
}

// textOf is the text of a string, and the JSON of other values.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// displays lists what a cell has shown; its result is among it when it is more
// than text. Their places are part of resources' names.
func displays(e core.Execution) []display {
	list := []display{}
	add := func(b kernel.Bundle) {
		mime, data := pick(b)
		if mime == "" {
			return
		}
		if isImage(mime) {
			data = strings.Join(strings.Fields(data), "") // some break lines
		}
		list = append(list, display{Type: mime, Data: data})
	}
	for _, o := range e.Outputs {
		add(o.Data)
	}
	if mime, _ := pick(e.Result); mime != "text/plain" {
		add(e.Result)
	}
	return list
}

// isImage reports whether clients can show a type as an image.
func isImage(mime string) bool {
	return mime == "image/png" || mime == "image/jpeg" || mime == "image/webp"
}

// shown completes the answer of a cell: images are content, other things links
// to resources.
func shown(id string, e core.Execution, out executed) answer {
	out.DisplayOutputs = displays(e)
	read := out
	read.DisplayOutputs = slices.Clone(out.DisplayOutputs)
	var extra []sdk.Content
	room := maxInlineAll
	for i := range out.DisplayOutputs {
		o, note := &out.DisplayOutputs[i], &read.DisplayOutputs[i]
		size := len(o.Data)
		uri := outputURI(id, e.Exec.Seq, fmt.Sprint(i))
		fits := size <= maxInline && size <= room
		image, err := base64.StdEncoding.DecodeString(o.Data)
		switch {
		case fits && isImage(o.Type) && err == nil:
			extra = append(extra, &sdk.ImageContent{Data: image, MIMEType: o.Type})
			note.Data = fmt.Sprintf("[%s image displayed to user]", o.Type)
		default:
			length := int64(size)
			extra = append(extra, &sdk.ResourceLink{
				URI: uri, Name: fmt.Sprintf("output-%d-%d", e.Exec.Seq, i), Title: o.Type + " output", MIMEType: o.Type, Size: &length,
			})
			o.URI, note.URI = uri, uri
			if size > maxShown {
				note.Data = fmt.Sprintf("[%s output displayed to user]", o.Type)
			}
		}
		if fits {
			room -= size
		} else {
			o.Data = ""
		}
	}
	for _, name := range []string{"stdout", "stderr"} {
		if out.Truncated[name] > 0 {
			extra = append(extra, fullText(id, e.Exec.Seq, name))
		}
	}
	return answer{value: out, text: read, extra: extra}
}

// fullText links to what a command printed.
func fullText(id string, seq int64, stream string) *sdk.ResourceLink {
	return &sdk.ResourceLink{
		URI: outputURI(id, seq, stream), Name: fmt.Sprintf("%s-%d", stream, seq), Title: "All of " + stream, MIMEType: "text/plain",
	}
}
