package chat

import (
	"bytes"
	"io"
	"strings"

	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/markdown"
)

// maxTranscript bounds what is remembered of a conversation to draw it again, in bytes:
// some screens.
const maxTranscript = 64 << 10

// piece is something that stands on the screen.
type piece struct {
	text     string
	style    string
	markdown bool
	thinking bool
}

// transcript is what the screen shows, newest last, as it was before it was set into
// lines: a terminal that becomes narrower breaks those within words.
type transcript struct {
	pieces []piece
	size   int
}

func (t *transcript) add(p piece) {
	t.pieces = append(t.pieces, p)
	t.grow(len(p.text))
}

// more adds to the newest piece, which is being said.
func (t *transcript) more(text string) {
	t.pieces[len(t.pieces)-1].text += text
	t.grow(len(text))
}

func (t *transcript) grow(n int) {
	for t.size += n; t.size > maxTranscript && len(t.pieces) > 1; t.pieces = t.pieces[1:] {
		t.size -= len(t.pieces[0].text)
	}
}

// typed remembers a line that the user has typed.
func (s *screen) typed(line string) { s.shown.add(piece{text: line}) }

// renderer sets Markdown for the screen as it is now.
func (s *screen) renderer(to io.Writer, thinking bool) *markdown.Renderer {
	o := markdown.Options{Columns: s.columns, Colors: s.colors}
	if thinking {
		o.Base = markdown.Dim
	}
	return markdown.New(to, o)
}

// redraw shows the newest part of the conversation again, as a screen of its size shows
// it. What has left the screen stays as it was.
func (s *screen) redraw() error {
	s.resized.Store(false)
	pieces := s.shown.pieces
	saying := s.text != nil && len(pieces) > 0
	if saying {
		pieces = pieces[:len(pieces)-1]
	}
	var above bytes.Buffer
	for i, p := range pieces {
		if p.markdown {
			if i > 0 {
				above.WriteByte('\n')
			}
			r := s.renderer(&above, p.thinking)
			_, _ = io.WriteString(r, p.text) // to memory
			_ = r.Close()
			continue
		}
		above.WriteString(s.styled(p.style, format.Text(p.text)) + "\n")
	}
	lines := strings.SplitAfter(above.String(), "\n")
	lines = lines[max(0, len(lines)-max(s.rows(), 2)):] // the last one is empty, and the prompt's
	s.below = 0
	if err := s.write("\x1b[H\x1b[2J" + strings.Join(lines, "")); err != nil || !saying {
		return err
	}
	if len(pieces) > 0 {
		if err := s.write("\n"); err != nil {
			return err
		}
	}
	s.text = s.renderer(s.out, s.thinking)
	_, err := io.WriteString(s.text, s.shown.pieces[len(s.shown.pieces)-1].text)
	return err
}
