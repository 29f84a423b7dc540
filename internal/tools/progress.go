package tools

import (
	"context"
	"sync"
)

// follow tells whoever watches the call what an exec prints. Nothing is told any
// more when done has returned; when the exec has ended well, that is after all of
// its output for those who want the whole.
func (c *call) follow(ctx context.Context, seq int64) (done func(ended bool)) {
	if c.Watch == nil {
		return func(bool) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	heard, left := c.Watch(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		for entry, err := range c.core.Execs().Output(ctx, c.id, seq, 0, true) {
			if err != nil || entry.Exit != nil {
				return
			}
			if !heard(Said{Session: c.id, Exec: seq, Stream: entry.Output.Stream, Data: entry.Output.Data}) {
				return
			}
		}
	})
	return func(ended bool) {
		if ended && c.Whole {
			following.Wait()
		}
		cancel()
		following.Wait()
		left()
	}
}

// watch lets words about the work be told.
func (c *call) watch(ctx context.Context) (tell func(text string), done func()) {
	if c.Watch == nil {
		return func(string) {}, func() {}
	}
	heard, left := c.Watch(ctx)
	return func(text string) { heard(Said{Data: []byte(text + "\n")}) }, left
}

// doing tells what is being done, for work without output.
func (c *call) doing(ctx context.Context, what string) (done func()) {
	tell, done := c.watch(ctx)
	tell(what)
	return done
}
