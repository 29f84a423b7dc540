package relay

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// halfOpen is how long a stream may carry nothing once one of its directions has
	// ended.
	halfOpen = 5 * time.Minute
	// lookEvery is how often a stream is looked at that has one direction left.
	lookEvery = time.Second
)

// Watch ends a stream that leads nowhere: when a side has closed its connection
// whole, which a copy that waits for the other side does not notice, and when only
// one direction is left and nothing flows in it for some minutes. A side that leaves
// would otherwise keep the stream for as long as the other one neither sends nor
// reads.
type Watch struct {
	a, b  net.Conn
	quiet int              // looks without a byte after which it ends
	looks <-chan time.Time // nil: every [lookEvery]
	moved atomic.Int64     // writes
	half  atomic.Bool      // a direction has ended
	begun sync.Once
	over  chan struct{}
	done  sync.WaitGroup
}

// NewWatch returns a watch over the stream of two connections. It looks at nothing
// before a write takes long or [Watch.Half]; end it by [Watch.Stop].
func NewWatch(a, b net.Conn) *Watch {
	return &Watch{a: a, b: b, quiet: int(halfOpen / lookEvery), over: make(chan struct{})}
}

// Writer is to, with what is written to it counted as flowing.
func (w *Watch) Writer(to io.Writer) io.Writer { return watched{to, w} }

type watched struct {
	io.Writer
	w *Watch
}

func (w watched) Write(p []byte) (int, error) {
	w.w.moved.Add(1)
	stuck := time.AfterFunc(lookEvery, w.w.begin)
	defer stuck.Stop()
	return w.Writer.Write(p)
}

// Half says that a direction has ended.
func (w *Watch) Half() {
	w.half.Store(true)
	w.begin()
}

func (w *Watch) begin() {
	w.begun.Do(func() { w.done.Go(w.run) })
}

// Stop ends the watch. The connections stay as they are.
func (w *Watch) Stop() {
	w.begun.Do(func() {})
	close(w.over)
	w.done.Wait()
}

// run counts looks instead of time, which goes on while a sandbox sleeps.
func (w *Watch) run() {
	looks := w.looks
	if looks == nil {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		looks = tick.C
	}
	for before, quiet := w.moved.Load(), 0; ; {
		select {
		case <-w.over:
			return
		case <-looks:
		}
		quiet++
		if now := w.moved.Load(); now != before || !w.half.Load() {
			before, quiet = now, 0
		}
		if quiet >= w.quiet || hungUp(w.a, 0) || hungUp(w.b, 0) {
			_ = w.a.Close()
			_ = w.b.Close()
			return
		}
	}
}

// Join copies both ways until both directions have ended, or one has failed, which
// ends both. What a [Watch] finds to lead nowhere ends too.
func Join(a, b net.Conn) { NewWatch(a, b).join() }

func (w *Watch) join() {
	defer w.Stop()
	var both sync.WaitGroup
	defer both.Wait()
	one := func(to, from net.Conn) {
		if _, err := Copy(w.Writer(to), from); err != nil {
			_ = w.a.Close()
			_ = w.b.Close()
			return
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		} else {
			_ = to.Close()
		}
		w.Half()
	}
	both.Go(func() { one(w.a, w.b) })
	one(w.b, w.a)
}
