// Package tty is the local terminal behind a command's streams: whether there is
// one, how large it is, raw mode, and lines that it does not show.
package tty

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/cubbyhq/cubby/client"
)

// File returns the terminal behind a stream, if there is one.
func File(stream any) (*os.File, bool) {
	f, ok := stream.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// Size is the size of the first stream that is a terminal and says it, or else
// the usual one.
func Size(streams ...any) *client.WindowSize {
	for _, stream := range streams {
		if f, ok := File(stream); ok {
			if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 && rows > 0 {
				return &client.WindowSize{Cols: cols, Rows: rows}
			}
		}
	}
	return &client.WindowSize{Cols: 80, Rows: 24}
}

// Raw makes a terminal pass on every key, Ctrl-C too, and calls resize each time
// its size changes, with what size returns. restore ends both.
func Raw(ctx context.Context, f *os.File, size func() *client.WindowSize, resize func(context.Context, client.WindowSize) error) (restore func(), err error) {
	state, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				_ = resize(ctx, *size()) // the next change tries again
			}
		}
	}()
	return func() {
		cancel()
		signal.Stop(changed)
		_ = term.Restore(int(f.Fd()), state) // nothing can be done about it
	}, nil
}

// longestLine is how many characters of a line are kept; the rest is dropped.
const longestLine = 4096

// ErrLongLine says that not the whole of a line was read.
var ErrLongLine = errors.New("the line is longer than can be typed")

// ReadSecret writes a prompt and reads a line that the terminal does not show, not
// even what is typed before the prompt is. It is io.EOF when the line is left with
// Ctrl-C or Ctrl-D. The terminal is as it was also when ctx ends first.
func ReadSecret(ctx context.Context, f *os.File, out io.Writer, prompt string) (string, error) {
	state, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return "", err
	}
	defer term.Restore(int(f.Fd()), state) //nolint:errcheck // nothing can be done about it
	type result struct {
		line string
		err  error
	}
	typed := make(chan result, 1)
	go func() {
		t := term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{f, out}, "")
		line, err := t.ReadPassword(prompt)
		typed <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-typed:
		if r.err == nil && utf8.RuneCountInString(r.line) >= longestLine {
			return "", ErrLongLine
		}
		return r.line, r.err
	}
}

// mostValue is more than any value that a daemon takes: what is longer need not be
// read to its end to be refused.
const mostValue = 1 << 20

// ReadValue reads the secret value of a name, so that it is on no command line: all
// that the input holds, without one newline at its end, or on a terminal a line that
// it does not show. name is one that may be printed.
func ReadValue(ctx context.Context, in io.Reader, ask io.Writer, name string) (string, error) {
	if f, ok := File(in); ok {
		line, err := ReadSecret(ctx, f, ask, "Value of "+name+": ")
		switch {
		case errors.Is(err, ErrLongLine):
			return "", fmt.Errorf("%w: give the value as the standard input, from a file or a pipe", err)
		case errors.Is(err, io.EOF):
			err = errors.New("no value was typed")
		}
		if err != nil {
			fmt.Fprintln(ask)
		}
		return line, err
	}
	text, err := io.ReadAll(io.LimitReader(in, mostValue))
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	value, ended := strings.CutSuffix(string(text), "\n")
	if ended {
		value = strings.TrimSuffix(value, "\r")
	}
	return value, nil
}
