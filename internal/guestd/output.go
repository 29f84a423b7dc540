package guestd

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Bounds of the output that waits for the host.
const (
	outputLimit    = 1 << 20  // per exec
	outputFloor    = 16 << 10 // an exec may always hold this much
	outputTotal    = 32 << 20 // over all execs, above their floors
	segmentMax     = 64 << 10
	segmentCost    = 128 // what a segment costs beside its bytes
	segmentJoining = 5 * time.Millisecond
	segmentBatch   = 64 // most segments handed out at once
)

// stream tells which pipe bytes came from.
type stream uint8

const (
	stdout stream = 1
	stderr stream = 2
	rich   stream = 3 // of cells
)

// segment is a run of output bytes of one stream.
type segment struct {
	offset int64
	stream stream
	at     time.Time
	data   []byte
}

func (s segment) end() int64 { return s.offset + int64(len(s.data)) }

// output holds an exec's output from the last acknowledged offset on. Writers
// wait while it is full; nothing is ever dropped. All streams share one
// offset space, in order of arrival.
type output struct {
	budget *budget

	mu       sync.Mutex
	segments []segment
	acked    int64 // everything before is freed
	written  int64 // offset of the next byte
	held     int64 // bytes and segment costs charged to budget
	done     bool  // no byte will follow
	readers  map[chan struct{}]struct{}
	room     chan struct{} // a token when a waiting writer should look again
}

func newOutput(b *budget) *output {
	return &output{budget: b, readers: make(map[chan struct{}]struct{}), room: make(chan struct{}, 1)}
}

// write appends a copy of p. It waits for room until ctx ends. Concurrent
// writes of different streams are ordered by arrival, not interleaved within
// one piece of at most [segmentMax] bytes.
func (o *output) write(ctx context.Context, s stream, p []byte, at time.Time) error {
	for len(p) > 0 {
		n, err := o.writeSome(ctx, s, p, at)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (o *output) writeSome(ctx context.Context, s stream, p []byte, at time.Time) (int, error) {
	p = p[:min(len(p), segmentMax)]
	for {
		o.mu.Lock()
		if n := o.add(s, p, at); n > 0 {
			o.wakeReaders()
			o.mu.Unlock()
			return n, nil
		}
		// Registered before the lock is released, so that no free is missed.
		o.budget.wait(o)
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			o.budget.forget(o)
			return 0, context.Cause(ctx)
		case <-o.room:
			o.budget.forget(o)
			// There may be room for the other stream's writer too.
			defer o.wakeWriter()
		}
	}
}

// add takes as much of p as there is room for. o.mu is held.
func (o *output) add(s stream, p []byte, at time.Time) int {
	room := outputLimit - o.held
	if last := o.last(); last != nil && last.stream == s && len(last.data) < segmentMax && at.Sub(last.at) < segmentJoining {
		n := int64(min(len(p), segmentMax-len(last.data)))
		n = o.charge(min(n, room), 0)
		last.data = append(last.data, p[:n]...)
		o.written += n
		return int(n)
	}
	n := o.charge(min(int64(len(p)), room-segmentCost), segmentCost)
	if n <= 0 {
		return 0
	}
	o.segments = append(o.segments, segment{offset: o.written, stream: s, at: at, data: append([]byte(nil), p[:n]...)})
	o.written += n
	return int(n)
}

// charge books n bytes plus cost, or as many bytes as the floor allows.
func (o *output) charge(n, cost int64) int64 {
	if n > 0 && o.hold(n+cost) {
		return n
	}
	if n = min(n, outputFloor-o.held-cost); n > 0 && o.hold(n+cost) {
		return n
	}
	return 0
}

// hold books an amount; what lies above the floor comes from the budget.
func (o *output) hold(amount int64) bool {
	if need := aboveFloor(o.held+amount) - aboveFloor(o.held); need > 0 && !o.budget.take(need) {
		return false
	}
	o.held += amount
	return true
}

func aboveFloor(held int64) int64 { return max(held-outputFloor, 0) }

func (o *output) last() *segment {
	if len(o.segments) == 0 {
		return nil
	}
	return &o.segments[len(o.segments)-1]
}

// ack frees everything before offset. Going backwards does nothing.
func (o *output) ack(offset int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if offset > o.written {
		return errs.E(errs.Invalid, "offset %d is beyond the output's end at %d", offset, o.written)
	}
	if offset <= o.acked {
		return nil
	}
	o.acked = offset
	before := aboveFloor(o.held)
	drop := 0
	for drop < len(o.segments) && o.segments[drop].end() <= offset {
		o.held -= int64(len(o.segments[drop].data)) + segmentCost
		o.segments[drop].data = nil
		drop++
	}
	if o.segments = o.segments[drop:]; len(o.segments) == 0 {
		o.segments = nil
	} else if first := &o.segments[0]; first.offset < offset {
		cut := offset - first.offset
		// A copy lets the acknowledged part go.
		first.data = append([]byte(nil), first.data[cut:]...)
		first.offset = offset
		o.held -= cut
	}
	o.budget.give(before - aboveFloor(o.held))
	o.wakeWriter()
	return nil
}

// finish says that no byte will follow.
func (o *output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	o.wakeReaders()
}

// drop frees everything: the host wants none of it.
func (o *output) drop() {
	o.mu.Lock()
	end := o.written
	o.mu.Unlock()
	_ = o.ack(end)
}

// after returns the output from offset on, as far as there is some, and
// whether it ends there for good. The data must not be changed. It is
// errs.WrongState when bytes after offset were acknowledged and are gone.
func (o *output) after(offset int64) (segs []segment, done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case offset < o.acked:
		return nil, false, errs.E(errs.WrongState, "output before offset %d was acknowledged and is gone", o.acked)
	case offset > o.written:
		return nil, false, errs.E(errs.Invalid, "offset %d is beyond the output's end at %d", offset, o.written)
	}
	i := sort.Search(len(o.segments), func(i int) bool { return o.segments[i].end() > offset })
	for _, s := range o.segments[i:min(len(o.segments), i+segmentBatch)] {
		if cut := offset - s.offset; cut > 0 {
			s.offset, s.data = offset, s.data[cut:]
		}
		// The capacity is cut so that a later join cannot be seen half done.
		s.data = s.data[:len(s.data):len(s.data)]
		segs = append(segs, s)
	}
	return segs, o.done && i+len(segs) == len(o.segments), nil
}

func (o *output) offsets() (acked, written int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acked, o.written
}

// subscribe returns a channel that gets a token when there is more to read,
// and the function that ends it.
func (o *output) subscribe() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readers[c] = struct{}{}
	return c, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.readers, c)
	}
}

func (o *output) wakeReaders() {
	for c := range o.readers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (o *output) wakeWriter() {
	select {
	case o.room <- struct{}{}:
	default:
	}
}

// budget bounds what all outputs hold together above their floors.
type budget struct {
	mu      sync.Mutex
	free    int64
	waiting map[*output]struct{} // writers that found it or their own limit exhausted
}

func newBudget(total int64) *budget {
	return &budget{free: total, waiting: make(map[*output]struct{})}
}

func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free < n {
		return false
	}
	b.free -= n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if n > 0 {
		for o := range b.waiting {
			delete(b.waiting, o)
			o.wakeWriter()
		}
	}
}

func (b *budget) wait(o *output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[o] = struct{}{}
}

func (b *budget) forget(o *output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, o)
}
