// Package display is what cells show: values in several MIME types, and what stands beside
// them.
package display

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Bundle is one value in several MIME types, each as JSON: a string for text
// and for base64 of binary data, any value for types that end in json. A nil
// Bundle is no value.
type Bundle map[string]json.RawMessage

// Format writes what the value comes in, with sizes and without the value, which may be
// large: "image/png (4321 bytes), text/plain (12 bytes)".
func (b Bundle) Format(s fmt.State, _ rune) {
	const most = 5
	types := b.Types()
	for i, t := range types {
		if i == most {
			_, _ = fmt.Fprintf(s, ", and %d more", len(types)-most)
			break
		}
		if i > 0 {
			_, _ = io.WriteString(s, ", ")
		}
		_, _ = fmt.Fprintf(s, "%.50s (%d bytes)", strings.Join(strings.Fields(t), " "), len(b[t]))
	}
}

// Types are the MIME types that the value comes in, sorted.
func (b Bundle) Types() []string {
	types := make([]string, 0, len(b))
	for t := range b {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

// Text is the value as plain text; "" when it has none.
func (b Bundle) Text() string { return b.String("text/plain") }

// HTML is the value as HTML; "" when it has none.
func (b Bundle) HTML() string { return b.String("text/html") }

// Markdown is the value as Markdown; "" when it has none.
func (b Bundle) Markdown() string { return b.String("text/markdown") }

// LaTeX is the value as LaTeX; "" when it has none.
func (b Bundle) LaTeX() string { return b.String("text/latex") }

// SVG is the value as a vector image; "" when it has none.
func (b Bundle) SVG() string { return b.String("image/svg+xml") }

// PNG is the value as an image; nil when it has none.
func (b Bundle) PNG() []byte { return b.Bytes("image/png") }

// JPEG is the value as an image; nil when it has none.
func (b Bundle) JPEG() []byte { return b.Bytes("image/jpeg") }

// JSON is the value as JSON; nil when it has none.
func (b Bundle) JSON() json.RawMessage { return b["application/json"] }

// String is the value in a type that is text, which includes base64; "" when
// it has none.
func (b Bundle) String(mime string) string {
	raw, ok := b[mime]
	if !ok {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var lines []string // some kernels send text by lines
	if json.Unmarshal(raw, &lines) == nil {
		return strings.Join(lines, "")
	}
	return string(raw)
}

// Bytes decodes the value in a binary type; nil when it has none, or not as
// base64.
func (b Bundle) Bytes(mime string) []byte {
	text := strings.Join(strings.Fields(b.String(mime)), "")
	if text == "" {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return data
}
