package mcp

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/tools"
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
	// maxInline bounds an image in an answer, as base64: a larger one is shown
	// smaller and linked.
	maxInline = 256 << 10
)

// shown completes the answer of a cell: images are content, other things links
// to resources. What has no room in a message is a link alone.
func shown(id string, seq int64, out tools.Executed) answer {
	a, all := answer{}, out.DisplayOutputs
	out.DisplayOutputs = nil
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
		text, cut := tools.Bounded(all, t.limit)
		*t.to = text
		*t.text = repeated(*t.to)
		if cut {
			truncate(&out, t.name, all)
		}
		if out.Truncated[t.name] > 0 {
			a.extra = append(a.extra, fullText(id, seq, t.name))
		}
	}
	if out.Result != nil {
		text, cut := tools.Bounded(out.Result.Text, 96<<10)
		if cut {
			truncate(&out, "result", out.Result.Text)
		}
		out.Result, read.Result = &tools.Value{Text: text}, &tools.Value{Text: repeated(text)}
	}
	if out.Error != nil {
		message, _ := tools.Bounded(out.Error.Message, 16<<10)
		traceback, _ := tools.Bounded(out.Error.Traceback, 48<<10)
		out.Error = &tools.CodeError{Type: tools.Head(out.Error.Type, 1<<10), Message: message, Traceback: traceback}
		read.Error = out.Error
	}
	read.Truncated = out.Truncated

	out.DisplayOutputs = slices.Clip(all[:min(len(all), maxOutputs)])
	if len(all) > maxOutputs {
		truncate(&out, "display_outputs", "")
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
		o.URI = outputURI(id, seq, fmt.Sprint(i))
		note.URI = o.URI
		if len(o.Data) > maxShown {
			note.Data = fmt.Sprintf("[%s output displayed to user]", o.Type)
		}
		links[i] = true
		image, err := base64.StdEncoding.DecodeString(o.Data)
		if !tools.IsImage(o.Type) || err != nil {
			continue
		}
		content, scaled := tools.Image{Type: o.Type, Data: image}.Fit(min(maxInline, room))
		if content == nil {
			continue
		}
		room -= base64.StdEncoding.EncodedLen(len(content.Data))
		a.extra = append(a.extra, &sdk.ImageContent{Data: content.Data, MIMEType: content.Type})
		links[i] = scaled
		note.Data = fmt.Sprintf("[%s image displayed to user]", o.Type)
		if scaled {
			note.Data = fmt.Sprintf("[%s image displayed to user, smaller than it is]", o.Type)
		}
	}
	for i := range out.DisplayOutputs {
		o := &out.DisplayOutputs[i]
		size, most := tools.Weight(o.Data), maxData
		if tools.IsImage(o.Type) {
			most = maxImageData
		}
		if links[i] {
			length := int64(len(o.Data))
			a.extra = append(a.extra, &sdk.ResourceLink{
				URI: o.URI, Name: fmt.Sprintf("output-%d-%d", seq, i), Title: o.Type + " output", MIMEType: o.Type, Size: &length,
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
func truncate(e *tools.Executed, name, text string) {
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
