package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/kernel"
)

const (
	// maxData bounds the data of one output in structuredContent, as it is sent;
	// larger ones are resources. Images are content too, so less is repeated.
	maxData      = 384 << 10
	maxImageData = 96 << 10
	// maxShown bounds what is repeated in the text for the model.
	maxShown = 2 << 10
	// maxOutputs bounds how many outputs an answer has, and outputWeight is what
	// one takes beside its data.
	maxOutputs   = 100
	outputWeight = 1 << 10
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
func displays(e cell.Execution) []display {
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
// to resources. What has no room in a message is a link alone.
func shown(id string, e cell.Execution, out executed) answer {
	a := answer{}
	read := out
	for _, t := range []struct {
		name     string
		to, text *string
		limit    int
	}{
		{"stdout", &out.Stdout, &read.Stdout, 160 << 10},
		{"stderr", &out.Stderr, &read.Stderr, 160 << 10},
	} {
		all := *t.to
		text, cut := bounded(all, t.limit)
		*t.to = text
		*t.text = repeated(*t.to)
		if cut {
			out.truncate(t.name, all)
		}
		if out.Truncated[t.name] > 0 {
			a.extra = append(a.extra, fullText(id, e.Exec.Seq, t.name))
		}
	}
	if out.Result != nil {
		text, cut := bounded(out.Result.Text, 96<<10)
		if cut {
			out.truncate("result", out.Result.Text)
		}
		out.Result, read.Result = &value{text}, &value{repeated(text)}
	}
	if out.Error != nil {
		message, _ := bounded(out.Error.Message, 16<<10)
		traceback, _ := bounded(out.Error.Traceback, 48<<10)
		out.Error = &codeError{head(out.Error.Type, 1<<10), message, traceback}
		read.Error = out.Error
	}
	read.Truncated = out.Truncated

	all := displays(e)
	out.DisplayOutputs = slices.Clip(all[:min(len(all), maxOutputs)])
	if len(all) > maxOutputs {
		out.truncate("display_outputs", "")
		out.Truncated["display_outputs"] = int64(len(all))
		read.Truncated = out.Truncated
	}
	room := maxEvent - len(out.DisplayOutputs)*outputWeight
	bare := out
	bare.DisplayOutputs = nil
	room -= size(&sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(encode(read))}}, StructuredContent: encode(bare)})
	read.DisplayOutputs = slices.Clone(out.DisplayOutputs)
	links := make([]bool, len(out.DisplayOutputs))
	for i := range out.DisplayOutputs { // what is seen comes before what is read by programs
		o, note := &out.DisplayOutputs[i], &read.DisplayOutputs[i]
		o.URI = outputURI(id, e.Exec.Seq, fmt.Sprint(i))
		note.URI = o.URI
		if len(o.Data) > maxShown {
			note.Data = fmt.Sprintf("[%s output displayed to user]", o.Type)
		}
		links[i] = true
		image, err := base64.StdEncoding.DecodeString(o.Data)
		if !isImage(o.Type) || err != nil {
			continue
		}
		content, scaled := picture(image, o.Type, min(maxInline, room))
		if content == nil {
			continue
		}
		room -= base64.StdEncoding.EncodedLen(len(content.Data))
		a.extra = append(a.extra, content)
		links[i] = scaled
		note.Data = fmt.Sprintf("[%s image displayed to user]", o.Type)
		if scaled {
			note.Data = fmt.Sprintf("[%s image displayed to user, smaller than it is]", o.Type)
		}
	}
	for i := range out.DisplayOutputs {
		o := &out.DisplayOutputs[i]
		size, most := weight(o.Data), maxData
		if isImage(o.Type) {
			most = maxImageData
		}
		if links[i] {
			length := int64(len(o.Data))
			a.extra = append(a.extra, &sdk.ResourceLink{
				URI: o.URI, Name: fmt.Sprintf("output-%d-%d", e.Exec.Seq, i), Title: o.Type + " output", MIMEType: o.Type, Size: &length,
			})
		}
		if size > min(most, room) {
			o.Data = ""
			continue
		}
		room -= size
		if !links[i] {
			o.URI, read.DisplayOutputs[i].URI = "", ""
		}
	}
	a.value, a.text = out, read
	return a
}

// truncate notes how long a text was that was cut.
func (e *executed) truncate(name, text string) {
	e.Truncated = maps.Clone(e.Truncated)
	if e.Truncated == nil {
		e.Truncated = map[string]int64{}
	}
	if e.Truncated[name] == 0 {
		e.Truncated[name] = int64(utf8.RuneCountInString(text))
	}
}

// fullText links to what a command printed.
func fullText(id string, seq int64, stream string) *sdk.ResourceLink {
	return &sdk.ResourceLink{
		URI: outputURI(id, seq, stream), Name: fmt.Sprintf("%s-%d", stream, seq), Title: "All of " + stream, MIMEType: "text/plain",
	}
}
