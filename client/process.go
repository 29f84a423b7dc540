package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client/internal/backoff"
)

// Process is a handle on one command of a sandbox, running or ended. It holds
// no connection: any number of them may name the same command, also from other
// programs.
type Process struct {
	Box string // the sandbox's id
	Seq int64

	c *Client
}

// Process returns a handle on command seq of a sandbox. It asks nobody whether
// that exists.
func (c *Client) Process(id string, seq int64) *Process { return &Process{Box: id, Seq: seq, c: c} }

func (p *Process) path(elems ...string) string {
	return sandboxPath(p.Box, append([]string{"execs", strconv.FormatInt(p.Seq, 10)}, elems...)...)
}

// Get returns how the command stands now, with its output so far.
func (p *Process) Get(ctx context.Context) (Exec, error) { return p.get(ctx, 0) }

func (p *Process) get(ctx context.Context, wait time.Duration) (Exec, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait_seconds", strconv.Itoa(int(wait.Seconds())))
	}
	var e Exec
	return e, p.c.do(ctx, call{method: http.MethodGet, path: p.path(), query: q}, &e)
}

// Wait returns when the command has ended, with its output. When ctx ends the
// command goes on. It outlives restarts of the daemon as streams do.
func (p *Process) Wait(ctx context.Context) (Exec, error) {
	return patient(ctx, p.c.newBackoff(), func() (Exec, error) { return p.get(ctx, waitSlice) })
}

// patient asks until what it asks for has finished.
func patient[T interface{ Finished() bool }](ctx context.Context, again retries, ask func() (T, error)) (T, error) {
	for {
		asked := time.Now()
		e, err := ask()
		switch {
		case err == nil && e.Finished():
			return e, nil
		case err == nil:
			again.Reset()
			if time.Since(asked) < time.Second { // a server that does not wait must not be hammered
				backoff.Pause(ctx, 100*time.Millisecond)
			}
		case !again.worthwhile(ctx, err):
			return e, err
		}
	}
}

// Output reads what the command printed so far, after an offset, both streams
// in the order in which it came. It does not wait for more.
func (p *Process) Output(ctx context.Context, after int64) (io.ReadCloser, error) {
	q := url.Values{}
	if after > 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	res, err := p.c.send(ctx, call{method: http.MethodGet, path: p.path("output"), query: q})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// Signal sends a signal, "SIGINT" or "INT", to the command, and with tree to
// everything that descends from it.
func (p *Process) Signal(ctx context.Context, signal string, tree bool) error {
	if !strings.HasPrefix(signal, "SIG") {
		signal = "SIG" + signal
	}
	body := map[string]any{"signal": signal, "tree": tree}
	return p.c.do(ctx, call{method: http.MethodPost, path: p.path("signal"), json: body}, nil)
}

// Cancel kills the command with everything that descends from it. Canceling
// one that has ended does nothing.
func (p *Process) Cancel(ctx context.Context) error {
	return p.c.do(ctx, call{method: http.MethodPost, path: p.path("cancel")}, nil)
}

// Resize changes the size of the command's terminal.
func (p *Process) Resize(ctx context.Context, size WindowSize) error {
	return p.c.do(ctx, call{method: http.MethodPost, path: p.path("resize"), json: size}, nil)
}

// Stdin returns a writer to the command's input, from its beginning. Close
// gives the command its end of input. Writes are bound to ctx, wait while the
// command does not read, and fail with [WrongState] once it has ended. It is
// not safe for concurrent use.
func (p *Process) Stdin(ctx context.Context) io.WriteCloser { return &stdin{ctx: ctx, p: p} }

// stdin counts what the command's input has taken, so that a write whose
// answer was lost can be repeated.
type stdin struct {
	ctx    context.Context //nolint:containedctx // an io.Writer has no other place for it
	p      *Process
	offset int64
	closed bool
}

// maxStdinWrite bounds one request's body.
const maxStdinWrite = 256 << 10

func (s *stdin) Write(data []byte) (int, error) {
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	written := 0
	for written < len(data) {
		chunk := data[written:]
		if len(chunk) > maxStdinWrite {
			chunk = chunk[:maxStdinWrite]
		}
		n, err := s.post(chunk, false)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func (s *stdin) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	_, err := s.post(nil, true)
	if errors.Is(err, WrongState) { // it has ended: nobody misses the end of input
		return nil
	}
	return err
}

// post writes chunk at the current offset and returns how much of it was new.
func (s *stdin) post(chunk []byte, eof bool) (int, error) {
	q := url.Values{"offset": {strconv.FormatInt(s.offset, 10)}}
	if eof {
		q.Set("eof", "true")
	}
	again := s.p.c.newBackoff()
	for {
		var answer struct {
			Offset int64 `json:"offset"`
		}
		err := s.p.c.do(s.ctx, call{
			method: http.MethodPost, path: s.p.path("stdin"), query: q,
			header: http.Header{"Content-Type": {"application/octet-stream"}},
			body:   bytes.NewReader(chunk),
		}, &answer)
		if err != nil {
			if again.worthwhile(s.ctx, err) {
				continue
			}
			return 0, err
		}
		n := int(answer.Offset - s.offset)
		if n < 0 || n > len(chunk) {
			return 0, &Error{Code: Internal, Message: "the daemon's count of the input does not match"}
		}
		s.offset = answer.Offset
		return n, nil
	}
}
