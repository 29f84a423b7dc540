package history_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestAnEventIsEncodedOnce: however many follow a busy sandbox, each event is read and
// encoded for one of them, and all are sent it.
func TestAnEventIsEncodedOnce(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	const followers, writes = 50, 40
	var encoded, sent atomic.Int64
	var all, begun sync.WaitGroup
	begun.Add(followers)
	for range followers {
		all.Go(func() {
			f, err := w.Follower(w.ctx)
			if err != nil {
				t.Error(err)
				begun.Done()
				return
			}
			defer f.Leave()
			for e, err := range f.Follow(w.ctx, "a", 0) {
				if err != nil {
					t.Error(err)
					break
				}
				if e.Kind == event.SandboxStarted {
					begun.Done()
				}
				text, err := e.Form(func(e sandbox.Event) ([]byte, error) {
					encoded.Add(1)
					return fmt.Append(nil, e.Cursor), nil
				})
				if err != nil || string(text) != fmt.Sprint(e.Cursor) {
					t.Errorf("event %d is sent as %q, %v", e.Cursor, text, err)
				}
				sent.Add(1)
			}
		})
	}
	begun.Wait()
	for i := range writes {
		w.noteWrite(b, fmt.Sprint(i))
	}
	w.move(b, sandbox.Destroyed, event.Destroyed{})
	all.Wait()
	if events := int64(writes + 3); encoded.Load() != events || sent.Load() != events*followers {
		t.Errorf("%d events were encoded %d times and sent %d times, want once and %d times", events, encoded.Load(), sent.Load(), events*followers)
	}
}

// TestFollowersFarApart: who begins ahead of what there is, or reads a long history while
// others follow its end, misses nothing and keeps nobody from theirs.
func TestFollowersFarApart(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	const writes = 700
	for i := range writes {
		w.noteWrite(b, fmt.Sprint(i))
	}
	var all sync.WaitGroup
	counts := make([]int, 4)
	for i, after := range []int64{0, 300, writes, writes + 10} {
		all.Go(func() {
			last := after
			for e, err := range w.following(w.ctx, "a", after) {
				if err != nil || e.Cursor <= last {
					t.Errorf("after %d: event %d after %d, %v", after, e.Cursor, last, err)
				}
				last = e.Cursor
				counts[i]++
			}
		})
	}
	for i := range 50 {
		w.noteWrite(b, fmt.Sprint("more", i))
	}
	w.move(b, sandbox.Destroyed, event.Destroyed{})
	all.Wait()
	total := writes + 50 + 3
	for i, want := range []int{total, total - 300, total - writes, total - writes - 10} {
		if counts[i] != want {
			t.Errorf("follower %d saw %d events, want %d", i, counts[i], want)
		}
	}
}

// TestTheLastOfABatchSaysSo: what is sent is held back until the event that says that no
// other one follows at once, also where the last ones are of kinds that nobody wants.
func TestTheLastOfABatchSaysSo(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	for i := range 5 {
		w.noteWrite(b, fmt.Sprint(i))
	}
	w.move(b, sandbox.Destroyed, event.Destroyed{})
	for kind, want := range map[string]string{"": "11111110", event.SandboxStarted: "0"} {
		var kinds []string
		if kind != "" {
			kinds = []string{kind}
		}
		got := ""
		f, err := w.Follower(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range f.Follow(w.ctx, "a", 0, kinds...) {
			if err != nil {
				t.Fatal(err)
			}
			got += map[bool]string{true: "1", false: "0"}[e.More]
		}
		f.Leave()
		if got != want {
			t.Errorf("of %q more follow: %s, want %s", kind, got, want)
		}
	}
}
