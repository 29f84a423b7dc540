package tools

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/kernel"
)

// Display is one thing that code has shown.
type Display struct {
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

// DisplaysOf lists what a cell has shown; its result is among it when it is more
// than text. Their places are part of resources' names.
func DisplaysOf(e cell.Execution) []Display {
	list := []Display{}
	add := func(b kernel.Bundle) {
		mime, data := pick(b)
		if mime == "" {
			return
		}
		if IsImage(mime) {
			data = strings.Join(strings.Fields(data), "") // some break lines
		}
		list = append(list, Display{Type: mime, Data: data})
	}
	for _, o := range e.Outputs {
		add(o.Data)
	}
	if mime, _ := pick(e.Result); mime != "text/plain" {
		add(e.Result)
	}
	return list
}

// IsImage reports whether clients can show a type as an image.
func IsImage(mime string) bool {
	return mime == "image/png" || mime == "image/jpeg" || mime == "image/webp"
}

// DisplaysPattern is where the API gives the displays of code, by their places.
const DisplaysPattern = "/v1/sandboxes/{id}/execs/{seq}/displays/{n}"

// DisplayPath is the path of one of them.
func DisplayPath(session string, exec int64, n int) string {
	return fmt.Sprintf("/v1/sandboxes/%s/execs/%d/displays/%d", session, exec, n)
}

// Bytes is the data of a display: what kernels give as base64 is decoded.
func (d Display) Bytes() ([]byte, error) {
	if !d.Binary() {
		return []byte(d.Data), nil
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(d.Data), ""))
	if err != nil {
		return nil, errs.E(errs.Unsupported, "the output is not what its type says").Because(err)
	}
	return data, nil
}

// Binary reports whether kernels give values of its type as base64.
func (d Display) Binary() bool {
	kind := d.Type
	switch top, _, _ := strings.Cut(kind, "/"); top {
	case "image":
		return kind != "image/svg+xml"
	case "audio", "video":
		return true
	}
	return kind == "application/pdf"
}
