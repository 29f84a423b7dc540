package chat

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/cubbyhq/cubby/client/agent"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/markdown"
)

// jsonView prints events as lines of JSON.
type jsonView struct{ out io.Writer }

func (v jsonView) event(e agent.Event) error {
	enc := json.NewEncoder(v.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(struct {
		Event string          `json:"event"`
		ID    string          `json:"id,omitempty"`
		Data  json.RawMessage `json:"data"`
	}{e.Name, e.ID, e.Data})
}

func (jsonView) tick() error        { return nil }
func (jsonView) end() error         { return nil }
func (jsonView) say(string, ...any) {}

// plainView prints the answer alone. Into a pipe or file it goes as it is, when it is
// whole: what the agent says before it uses a tool is no answer. On a terminal it
// appears while it is written.
type plainView struct {
	out  io.Writer
	note func(format string, args ...any)
	text *markdown.Renderer // of a terminal; nil: there is none

	id     string // of the message that is read
	held   strings.Builder
	called bool // it calls tools
	tools  calls
}

func (v *plainView) event(e agent.Event) error {
	switch {
	case e.Chunk != nil && e.Chunk.Type == agent.AI:
		return v.said(e.Chunk)
	case e.Chunk != nil && e.Chunk.Type == agent.Tool:
		if err := v.finish(); err != nil {
			return err
		}
		v.id = ""
		if c := v.tools.finish(e.Chunk.Message); c != nil {
			v.note("%s", c.line(longLine))
		}
	case e.Notice != nil && e.Notice.Type == agent.NoticeRetry:
		v.note("%s", format.Printable("asking the model again: "+e.Notice.Message))
	}
	return nil
}

func (v *plainView) said(c *agent.Chunk) error {
	if c.ID != v.id {
		if err := v.finish(); err != nil {
			return err
		}
		v.id = c.ID
	}
	if v.tools.add(c) {
		v.called = true
	}
	if v.text != nil {
		_, err := io.WriteString(v.text, c.Text())
		return err
	}
	v.held.WriteString(c.Text())
	return nil
}

// finish prints the message that was read.
func (v *plainView) finish() error {
	text := v.held.String()
	v.held.Reset()
	answer := !v.called
	v.called = false
	if v.text != nil {
		return v.text.Close()
	}
	if text == "" {
		return nil
	}
	if !answer {
		v.note("%s", format.Text(strings.TrimSpace(text)))
		return nil
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(v.out, text)
	return err
}

func (*plainView) tick() error { return nil }

func (v *plainView) end() error {
	v.id = ""
	return v.finish()
}

func (v *plainView) say(text string, args ...any) { v.note(text, args...) }
