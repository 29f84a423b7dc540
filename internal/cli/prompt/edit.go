package prompt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/cubbyhq/cubby/client"
)

// errInterrupted: Ctrl-C while a line was typed.
var errInterrupted = errors.New("interrupted")

const ctrlC = 3

// keys are what is typed on a terminal in raw mode. One goroutine at a time
// reads them.
type keys struct {
	pieces <-chan []byte   // closed at the end of the input
	held   []byte          // typed and not read yet
	ctx    context.Context //nolint:containedctx // an io.Reader has no other place for it
}

// readKeys reads for as long as the terminal is open: nothing can take a
// waiting read back.
func readKeys(from io.Reader) *keys {
	pieces := make(chan []byte)
	go func() {
		defer close(pieces)
		for {
			buf := make([]byte, 1024)
			n, err := from.Read(buf)
			if n > 0 {
				pieces <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return &keys{pieces: pieces, ctx: context.Background()}
}

// hold keeps a piece for the next line, and reports a Ctrl-C, which takes with
// it what was typed before.
func (k *keys) hold(piece []byte) (interrupted bool) {
	if at := bytes.LastIndexByte(piece, ctrlC); at >= 0 {
		k.held = append([]byte(nil), piece[at+1:]...)
		return true
	}
	k.held = append(k.held, piece...)
	return false
}

// Read is errInterrupted at a Ctrl-C, and what ended the context after that.
func (k *keys) Read(p []byte) (int, error) {
	if len(k.held) == 0 {
		select {
		case piece, ok := <-k.pieces:
			if !ok {
				return 0, io.EOF
			}
			k.held = piece
		case <-k.ctx.Done():
			return 0, k.ctx.Err()
		}
	}
	if k.held[0] == ctrlC {
		k.held = k.held[1:]
		return 0, errInterrupted
	}
	// Not beyond a line: the rest of a piece may be for another reader.
	part := k.held
	if at := bytes.IndexByte(part, ctrlC); at >= 0 {
		part = part[:at]
	}
	if at := bytes.IndexAny(part, "\r\n"); at >= 0 {
		part = part[:at+1]
	}
	n := copy(p, part)
	k.held = k.held[n:]
	return n, nil
}

// lineEditor reads lines with a prompt and a history, and prints between them:
// what is written while a line is typed appears above it.
type lineEditor struct {
	keys    *keys
	out     io.Writer
	history term.History
	tab     func(line string, pos int) (string, int) // of the line that is read; nil: nothing

	mu   sync.Mutex
	t    *term.Terminal // guarded by mu
	size client.WindowSize
}

func newLineEditor(k *keys, out io.Writer, h term.History) *lineEditor {
	e := &lineEditor{keys: k, out: out, history: h}
	e.renew()
	return e
}

// renew forgets what is typed so far.
func (e *lineEditor) renew() *term.Terminal {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.t = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.keys, e.out}, "")
	e.t.History = e.history
	e.t.AutoCompleteCallback = e.pressed
	if e.size.Cols > 0 {
		_ = e.t.SetSize(e.size.Cols, e.size.Rows) // it writes nothing before a prompt
	}
	return e.t
}

// pressed is what the tab key does: it indents at the beginning of a line, and
// completes behind it.
func (e *lineEditor) pressed(line string, pos int, key rune) (string, int, bool) {
	switch {
	case key != '\t':
		return "", 0, false
	case e.tab != nil && strings.TrimSpace(line[:pos]) != "":
		line, pos = e.tab(line, pos)
		return line, pos, true
	}
	const spaces = "    "
	return line[:pos] + spaces + line[pos:], pos + len(spaces), true
}

func (e *lineEditor) terminal() *term.Terminal {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.t
}

func (e *lineEditor) resize(size client.WindowSize) error {
	e.mu.Lock()
	e.size = size
	e.mu.Unlock()
	return e.terminal().SetSize(size.Cols, size.Rows)
}

// pasting makes the terminal mark what is pasted, until done.
func (e *lineEditor) pasting() (done func()) {
	e.terminal().SetBracketedPasteMode(true)
	return func() { e.terminal().SetBracketedPasteMode(false) }
}

func (e *lineEditor) Write(b []byte) (int, error) { return e.terminal().Write(b) }

// width is that of the terminal in characters, also of one that does not say.
func (e *lineEditor) width() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return cmp.Or(e.size.Cols, 80)
}

// line reads one line, which tab completes. Pasted lines that more follow say
// so.
func (e *lineEditor) line(ctx context.Context, prompt string, tab func(line string, pos int) (string, int)) (line string, pasted bool, err error) {
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

// answer reads a line that is no part of the history.
func (e *lineEditor) answer(ctx context.Context, prompt string) (string, error) {
	defer e.renew()
	line, err := e.read(ctx, func(t *term.Terminal) (string, error) {
		t.History = &history{}
		t.SetPrompt(prompt)
		return t.ReadLine()
	})
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return line, err
}

// password reads a line that is not shown.
func (e *lineEditor) password(ctx context.Context, prompt string) (string, error) {
	return e.read(ctx, func(t *term.Terminal) (string, error) { return t.ReadPassword(prompt) })
}

func (e *lineEditor) read(ctx context.Context, read func(*term.Terminal) (string, error)) (string, error) {
	e.keys.ctx = ctx
	line, err := read(e.terminal())
	if err != nil && !errors.Is(err, term.ErrPasteIndicator) {
		if _, werr := io.WriteString(e.out, "\r\n"); werr != nil {
			return "", werr
		}
		e.renew()
	}
	return line, err
}
