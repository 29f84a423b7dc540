package bridge

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// lingerFor is how long calls may go on after the end of the input: scripts
	// write all that they want to ask and close their end.
	lingerFor = 3 * time.Second
	// settle is how long nothing must happen until all answers are written.
	settle = 100 * time.Millisecond
)

// lingering is an input whose end is told when what came before it is answered,
// or has had its time.
type lingering struct {
	io.ReadCloser
	life context.Context //nolint:containedctx // ends the waiting
	busy atomic.Int64    // requests that are being answered
}

func (l *lingering) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		l.wait()
	}
	return n, err
}

func (l *lingering) wait() {
	over, cancel := context.WithTimeout(l.life, lingerFor)
	defer cancel()
	for idle := false; ; {
		select {
		case <-over.Done():
			return
		case <-time.After(settle):
		}
		if l.busy.Load() > 0 {
			idle = false
		} else if idle {
			return
		} else {
			idle = true
		}
	}
}

// count is a middleware that knows when requests are being answered.
func (l *lingering) count(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		l.busy.Add(1)
		defer l.busy.Add(-1)
		return next(ctx, method, req)
	}
}
