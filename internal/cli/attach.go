package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/tty"
)

// attachment says what of here is tied to a command over there.
type attachment struct {
	stdin    io.Reader // nil: none
	terminal *os.File  // put into raw mode, and its size followed; nil: none
	asJSON   bool      // print the result instead of the output
}

// killGrace is how long a command may take to end after SIGTERM before it is
// killed: whoever ends cubby wants it ended.
const killGrace = 10 * time.Second

// attach streams a command until it ends and returns its exit code as a
// *codeError, nil for 0.
func (a *app) attach(ctx context.Context, p *client.Process, at attachment) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	giveUp := make(chan struct{})
	giveBack := a.takeSignals(a.handOn(ctx, p, giveUp))
	defer giveBack()

	if at.terminal != nil {
		restore, err := a.rawMode(ctx, at.terminal, p.Resize)
		if err != nil {
			return err
		}
		defer restore()
	}
	if at.stdin != nil {
		go a.feed(ctx, p, at.stdin)
	}
	go func() {
		select {
		case <-giveUp:
			cancel()
		case <-ctx.Done():
		}
	}()

	e, err := a.follow(ctx, p, at.asJSON)
	if err != nil {
		select {
		case <-giveUp:
			return &codeError{exitOwn, errors.New("left before the command ended")}
		default:
			return err
		}
	}
	return a.ended(e)
}

func (a *app) follow(ctx context.Context, p *client.Process, asJSON bool) (client.Exec, error) {
	if !asJSON {
		return p.Copy(ctx, a.Stdout, a.Stderr)
	}
	e, err := p.Wait(ctx)
	if err != nil {
		return e, err
	}
	return e, format.JSON(a.Stdout, e)
}

// handOn sends signals to the command: the first as it is, the second kills,
// a third gives up waiting.
func (a *app) handOn(ctx context.Context, p *client.Process, giveUp chan struct{}) func(os.Signal) {
	count := 0
	return func(sig os.Signal) {
		count++
		switch count {
		case 1:
			go func() {
				err := p.Signal(ctx, signalName(sig), true)
				if err == nil && sig == syscall.SIGTERM {
					select {
					case <-time.After(killGrace):
					case <-ctx.Done():
						return
					}
				} else if err == nil {
					return
				}
				_ = p.Cancel(ctx) // the stream reports the end
			}()
		case 2:
			go func() { _ = p.Cancel(ctx) }()
		case 3:
			close(giveUp)
		}
	}
}

// feed hands on the input. That a command ends without reading it all is
// nobody's mistake.
func (a *app) feed(ctx context.Context, p *client.Process, stdin io.Reader) {
	w := p.Stdin(ctx)
	buf := make([]byte, 128<<10)
	for {
		n, rerr := stdin.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				a.feedFailed(ctx, err)
				return
			}
		}
		if rerr != nil {
			if err := w.Close(); err != nil {
				a.feedFailed(ctx, err)
			}
			return
		}
	}
}

func (a *app) feedFailed(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, client.WrongState) && !errors.Is(err, client.NotFound) {
		a.note("the input was not handed on: %v", err)
	}
}

// ended turns the end of a command into cubby's own, and says on stderr what
// the exit code does not.
func (a *app) ended(e client.Exec) error {
	if t := e.Truncated; t != nil && t.Stdout+t.Stderr > 0 {
		a.note("%s of output was not kept", format.Size(t.Stdout+t.Stderr))
	}
	code := exitOwn
	if e.ExitCode != nil {
		code = *e.ExitCode
	}
	switch e.Reason {
	case "", "exited", "killed":
		if e.ExitCode == nil {
			a.note("%v", e.Err())
		}
	case "timeout":
		a.note("the command's time was up; --timeout sets another limit, 0 none")
	case "not_started":
		a.note("%s", cmp.Or(e.Message, "the command did not start"))
		if hint := lineHint(e.Cmd.Argv); hint != "" {
			a.note("%s", hint)
		}
	case "oom":
		a.note("%s; --memory gives the sandbox more", cmp.Or(e.Message, "out of memory"))
	default:
		a.note("%s", cmp.Or(e.Message, "the command was ended: "+e.Reason))
	}
	if code == 0 {
		if e.Status == client.ExecError {
			code = exitOwn
		} else {
			return nil
		}
	}
	return &codeError{code, nil}
}

// windowSize is the size of the local terminal.
func (a *app) windowSize() *client.WindowSize { return tty.Size(a.Stdout, a.Stdin) }

// rawMode gives every key to the command and follows the size of the terminal.
func (a *app) rawMode(ctx context.Context, f *os.File, resize func(context.Context, client.WindowSize) error) (restore func(), err error) {
	return tty.Raw(ctx, f, a.windowSize, resize)
}
