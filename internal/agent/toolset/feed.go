package toolset

import (
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	// feedEvery is the time between two pieces of output that are told.
	feedEvery = 50 * time.Millisecond
	// feedPiece bounds one of them, and feedAll all of one call, in bytes: nobody
	// reads more while it goes by, and the result says how much there was.
	feedPiece = 16 << 10
	feedAll   = 256 << 10
)

// feed tells what a command prints, in pieces of whole characters.
type feed struct {
	tell func(session, stream, text string)

	mu      sync.Mutex
	session string                    // guarded by mu
	stream  sandbox.Stream            // of what waits; guarded by mu
	waiting []byte                    // guarded by mu
	torn    map[sandbox.Stream][]byte // beginnings of characters; guarded by mu
	told    int                       // bytes; guarded by mu
	last    time.Time                 // when something was told; guarded by mu
	timer   *time.Timer               // tells what waits; nil: it is not set; guarded by mu
	ended   bool                      // guarded by mu
}

func newFeed(tell func(session, stream, text string)) *feed {
	return &feed{tell: tell, torn: make(map[sandbox.Stream][]byte)}
}

// heard takes output in. It reports whether more is wanted.
func (f *feed) heard(s tools.Said) bool {
	if s.Session == "" || s.Stream != sandbox.Stdout && s.Stream != sandbox.Stderr {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session != s.Session || f.stream != s.Stream {
		f.flush()
		f.session, f.stream = s.Session, s.Stream
	}
	data := append(f.torn[s.Stream], s.Data...)
	whole := len(data) - front.PartialRune(data)
	f.torn[s.Stream] = append([]byte(nil), data[whole:]...)
	f.waiting = append(f.waiting, data[:whole]...)
	if len(f.waiting) >= feedPiece || time.Since(f.last) >= feedEvery {
		f.flush()
	} else if f.timer == nil {
		f.timer = time.AfterFunc(feedEvery, f.tick)
	}
	return f.told < feedAll
}

func (f *feed) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = nil
	if !f.ended {
		f.flush()
	}
}

// flush tells what waits. The caller holds mu.
func (f *feed) flush() {
	if len(f.waiting) == 0 {
		return
	}
	f.told += len(f.waiting)
	f.tell(f.session, f.stream.String(), strings.ToValidUTF8(string(f.waiting), "\ufffd"))
	f.waiting, f.last = f.waiting[:0], time.Now()
}

// end tells the rest. Nothing is told after it.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
	f.flush()
	for _, stream := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
		f.stream, f.waiting = stream, f.torn[stream]
		f.flush()
	}
	f.ended = true
}
