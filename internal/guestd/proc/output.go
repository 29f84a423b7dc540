package proc

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

// Stream tells which pipe bytes came from.
type Stream uint8

const (
	Stdout Stream = 1
	Stderr Stream = 2
	Rich   Stream = 3 // of cells
)

// Segment is a run of output bytes of one stream.
type Segment struct {
	Offset int64
	Stream Stream
	At     time.Time
	Data   []byte
}

func (s Segment) End() int64 { return s.Offset + int64(len(s.Data)) }

// Output holds an exec's output from the last acknowledged offset on. Writers
// wait while it is full; nothing is ever dropped. All streams share one
// offset space, in order of arrival.
type Output struct {
	budget *budget

	mu       sync.Mutex
	segments []Segment
	acked    int64 // everything before is freed
	written  int64 // offset of the next byte
	held     int64 // bytes and segment costs charged to budget
	done     bool  // no byte will follow
	unwanted bool  // what comes is dropped
	readers  map[chan struct{}]struct{}
	room     chan struct{} // a token when a waiting writer should look again
}

func newOutput(b *budget) *Output {
	return &Output{budget: b, readers: make(map[chan struct{}]struct{}), room: make(chan struct{}, 1)}
}

// Write appends a copy of p. It waits for room until ctx ends. Concurrent
// writes of different streams are ordered by arrival, not interleaved within
// one piece of at most [segmentMax] bytes.
func (o *Output) Write(ctx context.Context, s Stream, p []byte, at time.Time) error {
	for len(p) > 0 {
		n, err := o.writeSome(ctx, s, p, at)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (o *Output) writeSome(ctx context.Context, s Stream, p []byte, at time.Time) (int, error) {
	p = p[:min(len(p), segmentMax)]
	for {
		o.mu.Lock()
		if o.unwanted {
			o.written += int64(len(p))
			o.acked = o.written
			o.mu.Unlock()
			return len(p), nil
		}
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
func (o *Output) add(s Stream, p []byte, at time.Time) int {
	room := outputLimit - o.held
	if last := o.last(); last != nil && last.Stream == s && len(last.Data) < segmentMax && at.Sub(last.At) < segmentJoining {
		n := int64(min(len(p), segmentMax-len(last.Data)))
		n = o.charge(min(n, room), 0)
		last.Data = append(last.Data, p[:n]...)
		o.written += n
		return int(n)
	}
	n := o.charge(min(int64(len(p)), room-segmentCost), segmentCost)
	if n <= 0 {
		return 0
	}
	o.segments = append(o.segments, Segment{Offset: o.written, Stream: s, At: at, Data: append([]byte(nil), p[:n]...)})
	o.written += n
	return int(n)
}

// charge books n bytes plus cost, or as many bytes as the floor allows.
func (o *Output) charge(n, cost int64) int64 {
	if n > 0 && o.hold(n+cost) {
		return n
	}
	if n = min(n, outputFloor-o.held-cost); n > 0 && o.hold(n+cost) {
		return n
	}
	return 0
}

// hold books an amount; what lies above the floor comes from the budget.
func (o *Output) hold(amount int64) bool {
	if need := aboveFloor(o.held+amount) - aboveFloor(o.held); need > 0 && !o.budget.take(need) {
		return false
	}
	o.held += amount
	return true
}

func aboveFloor(held int64) int64 { return max(held-outputFloor, 0) }

func (o *Output) last() *Segment {
	if len(o.segments) == 0 {
		return nil
	}
	return &o.segments[len(o.segments)-1]
}

// Ack frees everything before offset. Going backwards does nothing.
func (o *Output) Ack(offset int64) error {
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
	for drop < len(o.segments) && o.segments[drop].End() <= offset {
		o.held -= int64(len(o.segments[drop].Data)) + segmentCost
		o.segments[drop].Data = nil
		drop++
	}
	if o.segments = o.segments[drop:]; len(o.segments) == 0 {
		o.segments = nil
	} else if first := &o.segments[0]; first.Offset < offset {
		cut := offset - first.Offset
		// A copy lets the acknowledged part go.
		first.Data = append([]byte(nil), first.Data[cut:]...)
		first.Offset = offset
		o.held -= cut
	}
	o.budget.give(before - aboveFloor(o.held))
	o.wakeWriter()
	return nil
}

// finish says that no byte will follow.
func (o *Output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	o.wakeReaders()
}

// Drop frees everything: the host wants none of it.
func (o *Output) Drop() {
	o.mu.Lock()
	end := o.written
	o.mu.Unlock()
	_ = o.Ack(end)
}

// Discard frees everything, now and later: nobody will read it, and its writers
// never wait.
func (o *Output) Discard() {
	o.mu.Lock()
	o.unwanted = true
	o.mu.Unlock()
	o.Drop()
}

// restart frees everything and counts from 0 from now on.
func (o *Output) restart() {
	o.Drop()
	o.mu.Lock()
	defer o.mu.Unlock()
	// What a writer added in between goes too: it belongs to before.
	before := aboveFloor(o.held)
	o.segments, o.held, o.acked, o.written = nil, 0, 0, 0
	o.budget.give(before)
	o.wakeWriter()
}

// After returns the output from offset on, as far as there is some, and
// whether it ends there for good. The data must not be changed. It is
// errs.WrongState when bytes after offset were acknowledged and are gone.
func (o *Output) After(offset int64) (segs []Segment, done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case offset < o.acked:
		return nil, false, errs.E(errs.WrongState, "output before offset %d was acknowledged and is gone", o.acked)
	case offset > o.written:
		return nil, false, errs.E(errs.Invalid, "offset %d is beyond the output's end at %d", offset, o.written)
	}
	i := sort.Search(len(o.segments), func(i int) bool { return o.segments[i].End() > offset })
	for _, s := range o.segments[i:min(len(o.segments), i+segmentBatch)] {
		if cut := offset - s.Offset; cut > 0 {
			s.Offset, s.Data = offset, s.Data[cut:]
		}
		// The capacity is cut so that a later join cannot be seen half done.
		s.Data = s.Data[:len(s.Data):len(s.Data)]
		segs = append(segs, s)
	}
	return segs, o.done && i+len(segs) == len(o.segments), nil
}

func (o *Output) Offsets() (acked, written int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acked, o.written
}

// Subscribe returns a channel that gets a token when there is more to read,
// and the function that ends it.
func (o *Output) Subscribe() (<-chan struct{}, func()) {
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

func (o *Output) wakeReaders() {
	for c := range o.readers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (o *Output) wakeWriter() {
	select {
	case o.room <- struct{}{}:
	default:
	}
}

// budget bounds what all outputs hold together above their floors.
type budget struct {
	mu      sync.Mutex
	free    int64
	waiting map[*Output]struct{} // writers that found it or their own limit exhausted
}

func newBudget(total int64) *budget {
	return &budget{free: total, waiting: make(map[*Output]struct{})}
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

func (b *budget) wait(o *Output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[o] = struct{}{}
}

func (b *budget) forget(o *Output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, o)
}
