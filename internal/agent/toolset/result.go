package toolset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/excerpt"
	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	// maxContent bounds what the model reads of one result, in bytes.
	maxContent = 128 << 10
	// maxText is what is left of that for the texts of an answer, with what they are
	// in.
	maxText = maxContent - 4<<10
	// What it reads of single texts, in characters.
	maxStdout    = 50_000
	maxStderr    = 20_000
	maxValue     = 20_000
	maxTraceback = 8_000
	// maxImages is how many images of one result it sees, and maxImage bounds each,
	// as base64.
	maxImages = 8
	maxImage  = 1 << 20
	// maxDisplays is how many displays clients are shown, maxInline bounds one that is
	// in the artifact itself, and allInline all of those, in bytes.
	maxDisplays = 100
	maxInline   = 8 << 10
	allInline   = 64 << 10
	// maxSummaries is how many displays the model is told of, and maxShown bounds
	// the text of one that it reads, in characters.
	maxSummaries = 50
	maxShown     = 2_000
)

// bounds is what tools read for a result. A character takes four bytes at most.
var bounds = tools.Bounds{
	Stdout: 4 * maxStdout, Stderr: 4 * maxStderr, CodeEnds: true, Output: 48 << 10, Entries: 500, EntryBytes: 64 << 10, Read: 50_000, MostRead: 100_000,
}

// artifact is what clients are shown beside the text of a result.
type artifact struct {
	SessionID string       `json:"session_id,omitempty"`
	Exec      int64        `json:"exec,omitempty"`
	Displays  []shown      `json:"display_outputs,omitempty"`
	Files     []downloaded `json:"files,omitempty"`
}

// shown is something that code has displayed, or an image file. Data is there when
// it is a short text; the URL gives all of it.
type shown struct {
	Type string `json:"type"`
	URL  string `json:"url"`
	Data string `json:"data,omitempty"`
}

// downloaded is a file that was exported.
type downloaded struct {
	Path        string  `json:"path"`
	Size        int64   `json:"size"`
	DownloadURL *string `json:"download_url"`
}

// failed is the result of a call that did not work.
func failed(f tools.Failure) loop.Result { return loop.Result{Content: encode(f), Failed: true} }

// result makes of an answer what the model reads and sees, and what clients are shown.
func (t *Thread) result(a tools.Answer) loop.Result {
	r := loop.Result{Failed: a.Failed}
	art := artifact{SessionID: a.Session, Exec: a.Exec}
	switch v := a.Value.(type) {
	case tools.Failure:
		r.Content = encode(t.advise(v))
	case tools.Executed:
		r.Content = fit(func(share int) any { return codeText(v, a, share) })
		t.display(&r, &art, a, v.DisplayOutputs)
	case tools.TerminalOutput:
		r.Content = fit(func(share int) any {
			out := v
			out.Stdout, _ = printed(v.Stdout, a.Stdout, part(maxStdout, share))
			out.Stderr, _ = printed(v.Stderr, a.Stderr, part(maxStderr, share))
			return out
		})
	case tools.FileContent:
		t.file(&r, &art, a, v)
	case tools.ShownImage:
		r.Content = encode(v)
		t.image(&r, &art, a, v.Path)
	case tools.ExportResult:
		r.Content = encode(v)
		for _, f := range v.Files {
			if f.Success {
				art.Files = append(art.Files, downloaded{f.Path, f.Size, f.DownloadURL})
			}
		}
	default:
		r.Content = encode(v)
	}
	r.Content = said(r.Content, a.Again)
	if len(r.Content) > maxContent {
		r.Content = tooLong(a.Failed)
	}
	r.Artifact = json.RawMessage(encode(art))
	return r
}

// tooLong stands for an answer that is longer than a model is given.
func tooLong(failed bool) string {
	if failed {
		return encode(tools.Failure{Error: "ValueError: the call failed, and why is longer than fits here", Hint: "Use shorter arguments."})
	}
	return encode(struct {
		Success bool   `json:"success"`
		Note    string `json:"note"`
	}{true, "The call was carried out, and its answer is longer than fits here. Ask for less at once."})
}

// said adds why the session began anew to an answer that does not say it itself.
func said(content, again string) string {
	const key = `"session_restarted":`
	if again == "" || strings.Contains(content, key) || len(content) < 2 {
		return content
	}
	rest := content[:len(content)-1]
	if rest != "{" {
		rest += ","
	}
	return rest + key + encode(again) + "}"
}

// advise makes the hint of a failure one for this model.
func (t *Thread) advise(f tools.Failure) tools.Failure {
	var full *sandbox.ThreadFull
	switch {
	case f.Error == "INVALID_INPUT":
		f.Hint = "Fix the invalid parameters and try again."
	case errors.As(f.Cause, &full) && full.All:
		f.Error = fmt.Sprintf("RuntimeError: tenant limit reached: the conversations of this tenant have %d running sandboxes together (max-thread-sandboxes), and all are in use", full.Max)
		f.Hint = "Wait for another conversation to finish and try again. If this conversation has active sessions, use one of them or end it with stop_session. " +
			"Otherwise tell the user to stop a sandbox of another conversation, or to ask the operator for a higher max-thread-sandboxes."
	case errors.As(f.Cause, &full):
		f.Hint = "Use one of the active sessions by its session_id, or end one that is not needed with stop_session."
	case f.SessionID != "" && t.isOwn(f.SessionID):
		f.Hint = "The next call starts the session again: variables are lost, files are not. Find out why it died before you go on, and never run the same code again unchanged."
	}
	return f
}

// fit encodes a value whose texts take their whole bounds, or as small a share of
// those as lets all of it be read.
func fit(value func(share int) any) string {
	for share := 1; ; share *= 2 {
		if content := encode(value(share)); len(content) <= maxText || share > 1<<10 {
			return content
		}
	}
}

// part is a share of a bound, which is never none.
func part(limit, share int) int { return max(1, limit/share) }

// code is what the model reads of code: displays are summaries.
type code struct {
	tools.Executed
	Summary []string `json:"display_outputs_summary"`
	// Not of the answer for the model.
	Hidden *struct{} `json:"display_outputs,omitempty"`
}

func codeText(v tools.Executed, a tools.Answer, share int) code {
	out := code{Executed: v, Summary: []string{}}
	truncated := maps.Clone(v.Truncated)
	cut := func(name string, short string, total int64) string {
		if total > 0 {
			if truncated == nil {
				truncated = make(map[string]int64)
			}
			truncated[name] = total
		}
		return short
	}
	ends := func(name, text string, p tools.Printed, limit int) string {
		short, total := printed(text, p, part(limit, share))
		return cut(name, short, total)
	}
	out.Stdout, out.Stderr = ends("stdout", v.Stdout, a.Stdout, maxStdout), ends("stderr", v.Stderr, a.Stderr, maxStderr)
	if v.Result != nil {
		short, total := excerpt.Text(v.Result.Text, part(maxValue, share), 0)
		out.Result = &tools.Value{Text: cut("result.text/plain", short, total)}
	}
	if e := v.Error; e != nil {
		out.Error = &tools.CodeError{
			Type:      e.Type,
			Message:   ends("error.message", e.Message, tools.Printed{}, maxTraceback/2),
			Traceback: ends("error.traceback", e.Traceback, tools.Printed{}, maxTraceback),
		}
	}
	out.Truncated = truncated
	for i, d := range v.DisplayOutputs {
		if i == maxSummaries {
			out.Summary = append(out.Summary, fmt.Sprintf("[%d more outputs displayed to user]", len(v.DisplayOutputs)-i))
			break
		}
		out.Summary = append(out.Summary, summary(d, share))
	}
	return out
}

// printed is what the model reads of a text that was printed: its beginning and its
// end.
func printed(text string, p tools.Printed, limit int) (short string, total int64) {
	head, _ := strings.CutSuffix(text, p.End)
	return excerpt.Ends(head, p.End, limit, p.Cut)
}

// summary is what the model is told of a display. Words it can read.
func summary(d tools.Display, share int) string {
	if strings.HasPrefix(d.Type, "image/") && d.Type != "image/svg+xml" {
		return "[" + d.Type + " image displayed to user]"
	}
	text := "[" + d.Type + " output displayed to user]"
	switch d.Type {
	case "text/plain", "text/markdown", "text/latex", "application/json":
		short, _ := excerpt.Text(d.Data, part(maxShown, share), 0)
		text += "\n" + short
	}
	return text
}

// display shows what code has displayed.
func (t *Thread) display(r *loop.Result, art *artifact, a tools.Answer, all []tools.Display) {
	room := allInline
	for i, d := range all[:min(len(all), maxDisplays)] {
		s := shown{Type: d.Type, URL: t.base() + tools.DisplayPath(a.Session, a.Exec, i)}
		if !d.Binary() && len(d.Data) <= min(maxInline, room) {
			s.Data = d.Data
			room -= len(d.Data)
		}
		art.Displays = append(art.Displays, s)
		if !strings.HasPrefix(d.Type, "image/") || !d.Binary() {
			continue
		}
		if data, err := d.Bytes(); err == nil {
			see(r, tools.Image{Type: d.Type, Data: data})
		}
	}
}

// see adds an image that the model can see.
func see(r *loop.Result, img tools.Image) {
	if len(r.Images) == maxImages || len(img.Data) > tools.MaxPicture {
		return
	}
	if fits := img.ForModel(maxImage); fits != nil {
		r.Images = append(r.Images, llm.Image{MIME: fits.Type, Data: fits.Data})
	}
}

// file is the result of a file that was read. What is not text is shown, or told of.
func (t *Thread) file(r *loop.Result, art *artifact, a tools.Answer, v tools.FileContent) {
	switch {
	case a.Image != nil:
		v.Content = "[" + a.Image.Type + " image displayed to user]"
		t.image(r, art, a, v.Path)
	case v.Encoding == tools.AsBase64:
		v.Content = fmt.Sprintf("[%d bytes that are not UTF-8]", v.NextOffset-v.Offset)
	default:
		// All of the text is one that JSON may make longer.
		if h := tools.Head(v.Content, maxText); len(h) < len(v.Content) {
			v.Content = h
			v.Next(v.Offset + int64(len(h)))
		}
	}
	r.Content = encode(v)
}

// image shows an image file.
func (t *Thread) image(r *loop.Result, art *artifact, a tools.Answer, path string) {
	art.Displays = append(art.Displays, shown{
		Type: a.Image.Type, URL: t.base() + "/v1/sandboxes/" + a.Session + "/files?path=" + url.QueryEscape(path),
	})
	see(r, *a.Image)
}

// encode writes compact JSON that a model can read.
func encode(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // every v is a struct of this package or of the tools
	}
	return strings.TrimSuffix(b.String(), "\n")
}
