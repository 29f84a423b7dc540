package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	// maxText bounds stdout and stderr of a command, as they are sent.
	maxText = 256 << 10
	// maxContent bounds what read_file returns, as it is sent.
	maxContent = 660 << 10
)

// bounds is how much tools read for a message. Text of a command takes at most
// seven times its size as it is sent.
var bounds = tools.Bounds{
	Stdout: 50_000, Stderr: 120_000, Output: maxRepeated, Entries: 1000, EntryBytes: maxEvent / 2, Read: 100_000, MostRead: 1 << 20,
}

// answer is what clients are given: a value of its tool's output shape, which is
// shown as JSON too, and content beside it.
type answer struct {
	value any
	// text is the value as it is to be read, when that is not all of it.
	text  any
	extra []sdk.Content
}

// fit makes what a tool gives fit into a message. Why the session began anew is text
// beside a value that has no place for it.
func fit(given tools.Answer) answer {
	a := fitted(given)
	if given.Again != "" && !bytes.Contains(encode(a.value), []byte(`"session_restarted":`)) {
		a.extra = append(a.extra, &sdk.TextContent{Text: string(encode(restarted{given.Again}))})
	}
	return a
}

type restarted struct {
	Again string `json:"session_restarted"`
}

func fitted(given tools.Answer) answer {
	switch v := given.Value.(type) {
	case tools.Executed:
		return shown(given.Session, given.Exec, v)
	case tools.TerminalOutput:
		return printed(given, v)
	case tools.FileContent:
		return content(given, v)
	case tools.ExportResult:
		return exported(v)
	}
	return answer{value: given.Value}
}

// printed is the answer of a command. What is cut of its output is linked.
func printed(given tools.Answer, out tools.TerminalOutput) answer {
	a := answer{}
	for _, t := range []struct {
		name string
		text *string
		of   tools.Printed
	}{{"stdout", &out.Stdout, given.Stdout}, {"stderr", &out.Stderr, given.Stderr}} {
		text, cut := tools.BoundedEnds(*t.text, t.of, maxText)
		*t.text = text
		if cut {
			a.extra = append(a.extra, fullText(given.Session, given.Exec, t.name))
		}
	}
	read := out
	read.Stdout, read.Stderr = repeated(out.Stdout), repeated(out.Stderr)
	a.value, a.text = out, read
	return a
}

// content is the answer of a file that was read. An image is shown.
func content(given tools.Answer, out tools.FileContent) answer {
	if out.Encoding == tools.AsText {
		if h := tools.Head(out.Content, maxContent); len(h) < len(out.Content) {
			out.Content = h
			out.Next(out.Offset + int64(len(h)))
		}
		read := out
		if h := tools.Head(out.Content, maxRepeated); len(h) < len(out.Content) {
			read.Content = fmt.Sprintf("%s\n\n... [the rest of this part is in structuredContent; or go on with offset %d]", h, out.Offset+int64(len(h)))
		}
		return answer{value: out, text: read}
	}
	if most := maxContent / 4 * 4; len(out.Content) > most { // whole groups of base64
		out.Content = out.Content[:most]
		out.Next(out.Offset + int64(most/4*3))
	}
	a, read := answer{}, out
	if img := given.Image; img != nil {
		var shown *tools.Image
		smaller := false
		if img.Data != nil {
			shown, smaller = img.Fit(maxInline)
		}
		if shown != nil {
			a.extra = append(a.extra, &sdk.ImageContent{Data: shown.Data, MIMEType: shown.Type})
			read.Content = "[" + img.Type + " image displayed to user]"
		}
		if (shown == nil || smaller) && out.Size <= maxResource {
			a.extra = append(a.extra, &sdk.ResourceLink{
				URI: fileURI(given.Session, out.Path), Name: out.Path, Title: "The image as it is", MIMEType: img.Type, Size: &out.Size,
			})
		}
	}
	if len(read.Content) > maxRepeated {
		read.Content = fmt.Sprintf("[%d bytes as base64 are in structuredContent]", out.NextOffset-out.Offset)
	}
	a.value, a.text = out, read
	return a
}

// exported is the answer of files that were exported, which are linked.
func exported(out tools.ExportResult) answer {
	a := answer{value: out}
	for _, f := range out.Files {
		if f.Success && !f.Dir {
			a.extra = append(a.extra, &sdk.ResourceLink{URI: fileURI(f.SessionID, f.Path), Name: f.Path, Size: &f.Size})
		}
	}
	return a
}

func result(a answer, failed bool) *sdk.CallToolResult {
	if a.text == nil {
		a.text = a.value
	}
	return sendable(&sdk.CallToolResult{
		Content:           append([]sdk.Content{&sdk.TextContent{Text: string(encode(a.text))}}, a.extra...),
		StructuredContent: encode(a.value),
		IsError:           failed,
	})
}

// encode writes compact JSON that a person can read.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // every v is a struct of this package or of the tools
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
