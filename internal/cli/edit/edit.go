// Package edit reads lines on a terminal in raw mode, with a history, and prints between
// them. The keys that are typed meanwhile are kept for the next line. What a line means
// is its caller's to know.
package edit

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/cubbyhq/cubby/client"
)

// ErrInterrupted: Ctrl-C while a line was typed.
var ErrInterrupted = errors.New("interrupted")

var errNotLent = errors.New("the terminal cannot be given to another program")

// Editor reads lines with a prompt and a history, and prints between them:
// what is written while a line is typed appears above it.
type Editor struct {
	Keys    *Keys
	out     io.Writer
	history term.History
	tab     func(line string, pos int) (string, int) // of the line that is read; nil: nothing
	press   func(key rune) bool

	mu   sync.Mutex
	t    *term.Terminal // guarded by mu
	size client.WindowSize
}

func New(k *Keys, out io.Writer, h term.History) *Editor {
	e := &Editor{Keys: k, out: out, history: h}
	e.renew()
	return e
}

// renew forgets what is typed so far.
func (e *Editor) renew() *term.Terminal {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.t = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.Keys, e.out}, "")
	e.t.History = e.history
	e.t.AutoCompleteCallback = e.pressed
	if e.size.Cols > 0 {
		_ = e.t.SetSize(e.size.Cols, e.size.Rows) // it writes nothing before a prompt
	}
	return e.t
}

// OnKey makes f hear the keys that edit nothing, such as Ctrl-O; it reports those that it
// has acted upon.
func (e *Editor) OnKey(f func(key rune) bool) { e.press = f }

// pressed is what the tab key does: it indents at the beginning of a line, and
// completes behind it.
func (e *Editor) pressed(line string, pos int, key rune) (string, int, bool) {
	switch {
	case key < ' ' && key != '\t' && e.press != nil && e.press(key):
		return line, pos, true
	case key != '\t':
		return "", 0, false
	case e.tab != nil && strings.TrimSpace(line[:pos]) != "":
		line, pos = e.tab(line, pos)
		return line, pos, true
	}
	const spaces = "    "
	return line[:pos] + spaces + line[pos:], pos + len(spaces), true
}

func (e *Editor) terminal() *term.Terminal {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.t
}

func (e *Editor) Resize(size client.WindowSize) error {
	e.mu.Lock()
	e.size = size
	e.mu.Unlock()
	return e.terminal().SetSize(size.Cols, size.Rows)
}

// Pasting makes the terminal mark what is pasted, until done.
func (e *Editor) Pasting() (done func()) {
	e.terminal().SetBracketedPasteMode(true)
	return func() { e.terminal().SetBracketedPasteMode(false) }
}

func (e *Editor) Write(b []byte) (int, error) { return e.terminal().Write(b) }

// Width is that of the terminal in characters, also of one that does not say.
func (e *Editor) Width() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return cmp.Or(e.size.Cols, 80)
}

// Line reads one line, which tab completes. Pasted lines that more follow say
// so.
func (e *Editor) Line(ctx context.Context, prompt string, tab func(line string, pos int) (string, int)) (line string, pasted bool, err error) {
	e.tab = tab
	defer func() { e.tab = nil }()
	line, err = e.read(ctx, func(t *term.Terminal) (string, error) {
		t.SetPrompt(prompt)
		return t.ReadLine()
	})
	if errors.Is(err, term.ErrPasteIndicator) {
		return line, true, nil
	}
	return line, false, err
}

// Answer reads a line that is no part of the history. The line begins with text, which
// can be edited; text has no control characters.
func (e *Editor) Answer(ctx context.Context, prompt, text string) (string, error) {
	defer e.renew()
	e.Keys.held = append([]byte(text), e.Keys.held...)
	line, err := e.read(ctx, func(t *term.Terminal) (string, error) {
		t.History = &History{}
		t.SetPrompt(prompt)
		return t.ReadLine()
	})
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return line, err
}

// Password reads a line that is not shown.
func (e *Editor) Password(ctx context.Context, prompt string) (string, error) {
	return e.read(ctx, func(t *term.Terminal) (string, error) { return t.ReadPassword(prompt) })
}

func (e *Editor) read(ctx context.Context, read func(*term.Terminal) (string, error)) (string, error) {
	e.Keys.ctx = ctx
	line, err := read(e.terminal())
	if err != nil && !errors.Is(err, term.ErrPasteIndicator) {
		if _, werr := io.WriteString(e.out, "\r\n"); werr != nil {
			return "", werr
		}
		e.renew()
	}
	return line, err
}
