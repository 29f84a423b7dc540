package mcp

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	// progressEvery is how often a client that asked for it hears of progress.
	progressEvery = time.Second
	// maxLine bounds the line of output that goes with it, in bytes.
	maxLine = 200
)

// progress tells a client, once a second, for how many seconds something has gone
// on and the last line that was said of it. The client hears nothing any more when
// done has returned.
func progress(ctx context.Context, req *sdk.CallToolRequest) (heard func(tools.Said) bool, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	last := new(line)
	var ticking sync.WaitGroup
	ticking.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		began := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ // the client may be gone
				ProgressToken: req.Params.GetProgressToken(), Progress: time.Since(began).Seconds(), Message: last.text(),
			})
		}
	})
	heard = func(s tools.Said) bool {
		last.add(s.Data)
		return true
	}
	return heard, func() { cancel(); ticking.Wait() }
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
