package chat

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/client/agent"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/markdown"
)

// Styles of a terminal.
const (
	dim   = "\x1b[2m"
	red   = "\x1b[31m"
	bold  = "\x1b[1m"
	reset = "\x1b[0m"
)

// shownOutput is how many lines are shown of what a tool prints.
const shownOutput = 6

// screen shows runs on a terminal. Below what stays there are lines about the tools that
// work, which are taken away when there is something else to say.
type screen struct {
	out     io.Writer
	columns func() int
	rows    func() int
	colors  bool
	files   *shown

	text     *markdown.Renderer // what the agent says; nil: nothing is being said
	thinking bool               // that is a thought
	message  string             // of which it is
	said     bool               // something stands above
	tools    calls
	below    int  // how many lines are to be taken away
	changed  bool // since they were drawn
	drawn    time.Time
	usage    *agent.Notice // the newest
	waits    bool          // the run waits for an answer

	shown   transcript
	resized atomic.Bool // the size has changed since it was drawn
}

func (s *screen) styled(style, text string) string {
	if !s.colors || style == "" || text == "" {
		return text
	}
	return style + text + reset
}

func (s *screen) write(text string) error {
	_, err := io.WriteString(s.out, text)
	return err
}

// clear takes away the lines about tools.
func (s *screen) clear() error {
	if s.below == 0 {
		return nil
	}
	n := s.below
	s.below = 0
	return s.write(fmt.Sprintf("\x1b[%dA\r\x1b[J", n))
}

// stop ends what the agent says.
func (s *screen) stop() error {
	if s.text == nil {
		return nil
	}
	err := s.text.Close()
	s.text = nil
	return err
}

// line prints lines that stay.
func (s *screen) line(style, text string) error {
	if err := s.stop(); err != nil {
		return err
	}
	if err := s.clear(); err != nil {
		return err
	}
	s.changed, s.said = true, true
	s.shown.add(piece{text: strings.TrimRight(text, "\n"), style: style})
	return s.write(s.styled(style, format.Text(strings.TrimRight(text, "\n"))) + "\n")
}

func (s *screen) say(text string, args ...any) { _ = s.line(dim, fmt.Sprintf(text, args...)) } // a terminal that is gone: the next read tells

func (s *screen) event(e agent.Event) error {
	switch {
	case e.Begun != nil:
		s.said, s.waits = false, false
	case e.Interrupts != nil:
		s.waits = true
	case e.Chunk != nil && e.Chunk.Type == agent.AI:
		if err := s.speak(e.Chunk, e.Chunk.Reasoning(), true); err != nil {
			return err
		}
		if err := s.speak(e.Chunk, e.Chunk.Text(), false); err != nil {
			return err
		}
		if s.tools.add(e.Chunk) {
			s.changed = true
			return s.stop()
		}
	case e.Chunk != nil && e.Chunk.Type == agent.Tool:
		return s.ended(e.Chunk.Message)
	case e.Notice != nil:
		return s.notice(e.Notice)
	}
	return nil
}

// speak shows more of what the agent says or thinks.
func (s *screen) speak(c *agent.Chunk, text string, thinking bool) error {
	if text == "" {
		return nil
	}
	if s.text == nil || s.thinking != thinking || s.message != c.ID {
		if err := s.stop(); err != nil {
			return err
		}
		if err := s.clear(); err != nil {
			return err
		}
		if s.said {
			if err := s.write("\n"); err != nil {
				return err
			}
		}
		s.text, s.thinking, s.message, s.said = s.renderer(s.out, thinking), thinking, c.ID, true
		s.shown.add(piece{markdown: true, thinking: thinking})
	}
	s.shown.more(text)
	_, err := io.WriteString(s.text, text)
	return err
}

// ended shows how a call ended, and what it has to show.
func (s *screen) ended(m agent.Message) error {
	c := s.tools.finish(m)
	if c == nil {
		return nil
	}
	style := dim
	if c.failed {
		style = red
	}
	if err := s.line(style, c.line(s.columns())); err != nil {
		return err
	}
	if s.files == nil {
		return nil
	}
	for _, line := range s.files.of(m.Artifact) {
		if err := s.line("", "  "+line); err != nil {
			return err
		}
	}
	return nil
}

func (s *screen) notice(n *agent.Notice) error {
	switch n.Type {
	case agent.NoticeOutput:
		s.tools.print(n.ToolCallID, n.Text)
		s.changed = true
	case agent.NoticeRetry:
		wait := ""
		if n.RetryAfterMS > 0 {
			wait = " in " + seconds(time.Duration(n.RetryAfterMS)*time.Millisecond)
		}
		return s.line(dim, "asking the model again"+wait+": "+format.Printable(n.Message))
	case agent.NoticeFolded:
		return s.line(dim, fmt.Sprintf("%d earlier messages are too much for the model, and left out", n.Messages))
	case agent.NoticeUsage:
		s.usage = n
	}
	return nil
}

// tick draws the lines about tools that work, when they have changed or a second is
// over.
func (s *screen) tick() error {
	if s.resized.Load() {
		if err := s.redraw(); err != nil {
			return err
		}
		s.changed = true
	}
	open := s.tools.open()
	if len(open) == 0 || s.text != nil || !s.changed && time.Since(s.drawn) < time.Second {
		return nil
	}
	s.changed, s.drawn = false, time.Now()
	most := max(s.rows()-2, 1)
	var lines []string
	for _, c := range open {
		since := c.begun
		if since.Before(s.tools.last) {
			since = s.tools.last
		}
		lines = append(lines, c.head(time.Since(since), s.columns(), ""))
		for _, text := range lastLines(c.output, min(shownOutput, most-1)) {
			lines = append(lines, s.styled(dim, clip("  "+text, s.columns())))
		}
	}
	lines = lines[:min(len(lines), most)]
	if err := s.clear(); err != nil {
		return err
	}
	s.below = len(lines)
	return s.write(strings.Join(lines, "\n") + "\n")
}

// lastLines are the last lines of an output, as they would stand on a terminal where a
// line is written anew after a carriage return.
func lastLines(text string, most int) []string {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	lines = lines[max(len(lines)-most, 0):]
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		line = line[strings.LastIndexByte(line, '\r')+1:]
		lines[i] = format.Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return lines
}

// end shows what the run took. What has no result by now gets none, unless the run waits
// for an answer about it.
func (s *screen) end() error {
	if err := s.stop(); err != nil {
		return err
	}
	if err := s.clear(); err != nil {
		return err
	}
	if !s.waits {
		s.tools.forget()
	}
	usage := s.usage
	s.usage, s.said, s.message = nil, false, ""
	if usage == nil || usage.Tokens == 0 {
		return nil
	}
	text := fmt.Sprintf("%d tokens", usage.Tokens)
	if usage.Cost != nil {
		text += fmt.Sprintf(", $%.4f", *usage.Cost)
	}
	return s.line(dim, text)
}
