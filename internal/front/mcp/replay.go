package mcp

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
)

const (
	// maxReplay bounds the events of a principal that are kept for clients whose
	// connection broke, in bytes, and maxReplayStreams the responses that have
	// some. The oldest give way.
	maxReplay        = 4 << 20
	maxReplayStreams = 1000
)

// replay keeps events so that a client that lost its connection can go on with
// Last-Event-ID. The SDK's own store keeps a note of every request until its
// session ends.
type replay struct {
	mu      sync.Mutex
	streams map[streamID]*events // guarded by mu
	order   []streamID           // by their age; guarded by mu
	bytes   int                  // guarded by mu
}

type streamID struct{ session, stream string }

// events are those of one stream, from its first on.
type events struct {
	list  [][]byte
	bytes int
}

func newReplay() *replay { return &replay{streams: make(map[streamID]*events)} }

var errForgotten = errors.New("these events are not kept any more")

// Open implements [sdk.EventStore]. The stream of what belongs to no request
// has no events here.
func (r *replay) Open(ctx context.Context, session, name string) error {
	if name == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := streamID{session, name}
	if s := streamOf(ctx); s != nil {
		s.carries(id)
	}
	r.streams[id] = new(events)
	r.order = append(r.order, id)
	r.trim()
	return nil
}

// Append implements [sdk.EventStore].
func (r *replay) Append(_ context.Context, session, name string, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := streamID{session, name}
	s := r.streams[id]
	if s == nil {
		return nil // forgotten
	}
	if len(data) > maxReplay/4 { // what is too large to be an event
		r.forget(id)
		return nil
	}
	s.list = append(s.list, data)
	s.bytes += len(data)
	r.bytes += len(data)
	r.trim()
	return nil
}

// trim drops the oldest streams beyond the bounds. The caller holds mu.
func (r *replay) trim() {
	for len(r.order) > 0 && (r.bytes > maxReplay || len(r.order) > maxReplayStreams) {
		r.forget(r.order[0])
		r.order = r.order[1:]
	}
}

// forget drops a stream. The caller holds mu.
func (r *replay) forget(id streamID) {
	if s := r.streams[id]; s != nil {
		r.bytes -= s.bytes
		delete(r.streams, id)
	}
}

// After implements [sdk.EventStore]. A stream that goes on begins at once.
func (r *replay) After(ctx context.Context, session, name string, index int) iter.Seq2[[]byte, error] {
	r.mu.Lock()
	s := r.streams[streamID{session, name}]
	var list [][]byte
	ok := name == "" // the one for what belongs to no request has nothing to replay
	if s != nil && index < len(s.list) {
		ok, list = true, slices.Clone(s.list[index+1:])
	}
	r.mu.Unlock()
	return func(yield func([]byte, error) bool) {
		if !ok {
			yield(nil, errForgotten)
			return
		}
		if s := streamOf(ctx); s != nil {
			s.carries(streamID{session, name})
			s.Header().Set("Content-Type", "text/event-stream")
			s.Header().Set("Cache-Control", "no-cache, no-transform")
			s.begin()
		}
		for _, data := range list {
			if !yield(data, nil) {
				return
			}
		}
	}
}

// SessionClosed implements [sdk.EventStore].
func (r *replay) SessionClosed(_ context.Context, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = slices.DeleteFunc(r.order, func(id streamID) bool {
		if id.session == session {
			r.forget(id)
		}
		return id.session == session
	})
	return nil
}
