// Package tty is the local terminal behind a command's streams: whether there is
// one, how large it is, and raw mode. It shows nothing and reads no keys.
package tty

import (
	"context"
	"os"
	"os/signal"
	"syscall"

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
