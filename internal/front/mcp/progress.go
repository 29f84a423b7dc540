package mcp

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// progressEvery is how often a client that asked for it hears of progress.
	progressEvery = time.Second
	// maxLine bounds the line of output that goes with it, in bytes.
	maxLine = 200
)

// progress tells a client that asked for it, once a second, for how many
// seconds an exec has run and the last line that it printed. The client hears
// nothing any more when done has returned.
func (c *call) progress(ctx context.Context, id string, seq int64) (done func()) {
	return c.notify(ctx, func(ctx context.Context, last *line) {
		for entry, err := range c.core.Execs().Output(ctx, id, seq, 0, true) {
			if err != nil || entry.Exit != nil {
				return
			}
			last.add(entry.Output.Data)
		}
	})
}

// doing is progress for work without output.
func (c *call) doing(ctx context.Context, what string) (done func()) {
	return c.notify(ctx, func(_ context.Context, last *line) { last.add([]byte(what + "\n")) })
}

func (c *call) notify(ctx context.Context, follow func(context.Context, *line)) (done func()) {
	token := c.req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	last := new(line)
	parts.Go(func() { follow(ctx, last) })
	parts.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		began := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			_ = c.req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ // the client may be gone
				ProgressToken: token, Progress: time.Since(began).Seconds(), Message: last.text(),
			})
		}
	})
	return func() { cancel(); parts.Wait() }
}

// line keeps the last line of output that has something in it.
type line struct {
	mu   sync.Mutex
	last []byte // guarded by mu
	open []byte // without its end yet; guarded by mu
}

func (l *line) add(data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(data) > 0 {
		part, rest, ended := bytes.Cut(data, []byte{'\n'})
		if room := maxLine - len(l.open); room > 0 {
			l.open = append(l.open, part[:min(room, len(part))]...)
		}
		if ended {
			if len(bytes.TrimSpace(l.open)) > 0 {
				l.last = append(l.last[:0], l.open...)
			}
			l.open = l.open[:0]
		}
		data = rest
	}
}

func (l *line) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	shown := l.last
	if len(bytes.TrimSpace(l.open)) > 0 {
		shown = l.open
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(shown), ""))
}
