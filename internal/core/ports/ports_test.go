package ports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// world is a Watch of sandboxes whose ports the test sets.
type world struct {
	*Watch
	end func() // the service

	mu     sync.Mutex
	ports  []sandbox.Port // nil: the sandbox does not run
	looks  int
	now    int // looks that go on
	most   int // at once
	notes  []string
	takes  time.Duration // of a look
	during func()        // while a look goes on; nil: nothing

	failure error // of every look
}

func newWorld() *world {
	w := &world{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	w.end = func() {
		cancel()
		all.Wait()
	}
	w.Watch = New(Config{
		Look: w.look,
		Note: func(_ context.Context, e sandbox.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			p, err := event.PayloadOf(e)
			if err != nil {
				panic(err)
			}
			switch p := p.(type) {
			case event.PortOpen:
				w.notes = append(w.notes, fmt.Sprintf("+%d %s %d", p.Port, p.Program, p.PID))
			case event.PortClose:
				w.notes = append(w.notes, fmt.Sprintf("-%d %s %d", p.Port, p.Program, p.PID))
			}
		},
		Spawn: func(fn func(context.Context)) bool {
			if ctx.Err() != nil {
				return false
			}
			all.Go(func() { fn(ctx) })
			return true
		},
	})
	return w
}

func (w *world) look(ctx context.Context, _ sandbox.UID) ([]sandbox.Port, error) {
	w.mu.Lock()
	w.looks++
	w.now++
	w.most = max(w.most, w.now)
	ports, takes, during := slices.Clone(w.ports), w.takes, w.during
	w.mu.Unlock()
	if during != nil {
		during()
	}
	if takes > 0 && !sleep(ctx, takes) {
		ports = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now--
	if err := w.failure; err != nil {
		return nil, err
	}
	if ports == nil {
		return nil, errs.E(errs.WrongState, "it does not run")
	}
	return ports, nil
}

func (w *world) set(ports ...sandbox.Port) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports = append([]sandbox.Port{}, ports...)
}

// noted returns what was noted since the last call, and how often it looked.
func (w *world) noted() (notes []string, looks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	notes, looks = w.notes, w.looks
	w.notes, w.looks = nil, 0
	return notes, looks
}

func node(port int, pid int64) sandbox.Port {
	return sandbox.Port{Port: port, Listening: true, Program: "node", PID: pid}
}

// A command that ends is a reason to look once, and for many that end at once it
// is the same look.
func TestAnEndIsOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		w.set(node(3000, 7))
		for range 100 {
			w.Ended("a")
		}
		time.Sleep(time.Hour)
		notes, looks := w.noted()
		if diff := cmp.Diff([]string{"+3000 node 7"}, notes); diff != "" || looks != 1 {
			t.Errorf("%d looks, (-want +got):\n%s", looks, diff)
		}
		// What has closed since is noted when something is a reason again.
		w.set(node(4000, 8))
		time.Sleep(time.Hour)
		if notes, looks := w.noted(); looks != 0 {
			t.Errorf("without a reason: %d looks, %q", looks, notes)
		}
		w.Ended("a")
		time.Sleep(time.Minute)
		notes, looks = w.noted()
		if diff := cmp.Diff([]string{"-3000 node 7", "+4000 node 8"}, notes); diff != "" || looks != 1 {
			t.Errorf("%d looks, (-want +got):\n%s", looks, diff)
		}
	})
}

// TestAFailedLookIsMadeAgain: what a command left is news also when the first look at
// it fails; that of a sandbox in which nobody answers is given up.
func TestAFailedLookIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		fail := func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failure = err
		}
		w.set(node(3000, 7))
		fail(errors.New("no answer in time"))
		w.Ended("a")
		time.Sleep(3 * time.Second)
		fail(nil)
		time.Sleep(time.Minute)
		if notes, looks := w.noted(); looks < 2 || looks > 5 || !slices.Equal(notes, []string{"+3000 node 7"}) {
			t.Errorf("%d looks, %q", looks, notes)
		}
		fail(errors.New("no answer in time"))
		for range 2 {
			w.Ended("a")
			time.Sleep(time.Hour)
			if _, looks := w.noted(); looks != failures+1 {
				t.Errorf("%d looks, want %d", looks, failures+1)
			}
		}
		fail(errs.E(errs.WrongState, "it does not run"))
		w.Ended("a")
		time.Sleep(time.Hour)
		if _, looks := w.noted(); looks != 1 {
			t.Errorf("%d looks at a sandbox that does not run", looks)
		}
	})
}

// Commands that end without pause make no more than a look each second, and a slow
// one makes them fewer: never are there two at once.
func TestLooksDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		w.set()
		for range 10_000 {
			w.Ended("a")
			time.Sleep(time.Millisecond)
		}
		if _, looks := w.noted(); looks < 8 || looks > 11 {
			t.Errorf("%d looks in 10 seconds", looks)
		}
		w.mu.Lock()
		w.takes = 4 * time.Second
		w.mu.Unlock()
		left := w.Follow("a")
		for range 20_000 {
			w.Ended("a")
			time.Sleep(time.Millisecond)
		}
		left()
		if _, looks := w.noted(); looks < 3 || looks > 5 || w.most != 1 {
			t.Errorf("%d looks of 4 seconds in 20, %d at once", looks, w.most)
		}
	})
}

// While somebody follows, changes are found within seconds; the longer nothing
// changes the rarer the looks, and when the last one has left there are none.
func TestFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		w.set()
		left, second := w.Follow("a"), w.Follow("a")
		time.Sleep(time.Hour)
		if _, looks := w.noted(); looks < 440 || looks > 460 {
			t.Errorf("%d looks in an hour without a change", looks)
		}
		w.set(node(3000, 7))
		time.Sleep(most)
		if notes, _ := w.noted(); !cmp.Equal(notes, []string{"+3000 node 7"}) {
			t.Errorf("after %s: %q", most, notes)
		}
		w.set(node(3000, 9)) // another server
		time.Sleep(most)
		if notes, _ := w.noted(); !cmp.Equal(notes, []string{"-3000 node 7", "+3000 node 9"}) {
			t.Errorf("after another server: %q", notes)
		}
		w.set(node(3000, 0)) // nobody can tell whose it is
		time.Sleep(most)
		if notes, _ := w.noted(); len(notes) != 0 {
			t.Errorf("of the same server: %q", notes)
		}
		second()
		second()
		w.set()
		time.Sleep(most)
		if notes, _ := w.noted(); !cmp.Equal(notes, []string{"-3000 node 9"}) {
			t.Errorf("after the server: %q", notes)
		}
		left()
		time.Sleep(time.Hour)
		if _, looks := w.noted(); looks > 1 {
			t.Errorf("%d looks when nobody follows", looks)
		}
	})
}

// A sandbox that sleeps has its ports when it wakes; one that stopped begins
// without any, also when the stop came into a look.
func TestSleepAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		w.set(node(3000, 7))
		defer w.Follow("a")()
		time.Sleep(time.Minute)
		w.noted()
		w.mu.Lock()
		w.ports = nil
		w.mu.Unlock()
		time.Sleep(time.Minute)
		w.set(node(3000, 7))
		time.Sleep(time.Minute)
		if notes, _ := w.noted(); len(notes) != 0 {
			t.Errorf("a sleep closes ports: %q", notes)
		}
		w.Stopped("a")
		time.Sleep(time.Minute)
		if notes, _ := w.noted(); !cmp.Equal(notes, []string{"+3000 node 7"}) {
			t.Errorf("after a start: %q", notes)
		}
		w.mu.Lock()
		w.ports, w.during = []sandbox.Port{node(3000, 7), node(4000, 8)}, func() { w.Stopped("a") }
		w.mu.Unlock()
		time.Sleep(time.Minute)
		if notes, _ := w.noted(); len(notes) != 0 {
			t.Errorf("a look into which a stop came: %q", notes)
		}
	})
}

// What runs inside decides neither how much is written nor how much is remembered.
func TestAttackPortsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		var many []sandbox.Port
		for port := range 20_000 {
			many = append(many, node(port+1, 7))
		}
		defer w.Follow("a")()
		const seconds = 300
		for i := range seconds {
			w.set(many[i : i+10_000]...)
			time.Sleep(time.Second)
		}
		if notes, _ := w.noted(); len(notes) < seconds/2 || len(notes) > seconds+changesAtOnce {
			t.Errorf("%d changes noted in %d seconds", len(notes), seconds)
		}
		w.Watch.mu.Lock()
		if n := len(w.boxes["a"].known); n > maxKnown {
			t.Errorf("%d ports are remembered", n)
		}
		w.Watch.mu.Unlock()
	})
}

// Visits that come and go do not make a sandbox forget what it has noted already.
func TestAttackABurstForEachVisit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		var many []sandbox.Port
		for port := range changesAtOnce / 2 {
			many = append(many, node(port+1, 7))
		}
		const seconds = 300
		for range seconds / 3 {
			w.set(many...)
			left := w.Follow("a")
			time.Sleep(settle + time.Millisecond)
			w.set()
			time.Sleep(least)
			left()
			time.Sleep(3*time.Second - settle - least)
		}
		if notes, _ := w.noted(); len(notes) > seconds+changesAtOnce {
			t.Errorf("%d changes noted in %d seconds", len(notes), seconds)
		}
	})
}

// Sandboxes that nobody is interested in any more are not remembered for ever.
func TestRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		w.set()
		w.Ended("none")
		time.Sleep(time.Minute)
		w.set(node(3000, 7))
		for i := range maxResting + 100 {
			w.Ended(sandbox.UID(fmt.Sprint(i)))
		}
		time.Sleep(time.Minute)
		for i := range 100 {
			w.Ended(sandbox.UID(fmt.Sprint("more", i)))
			time.Sleep(time.Minute)
		}
		w.Watch.mu.Lock()
		if n := len(w.boxes); n > maxResting+100 || w.boxes["none"] != nil {
			t.Errorf("%d sandboxes are remembered, of which one without ports: %v", n, w.boxes["none"] != nil)
		}
		w.Watch.mu.Unlock()
		w.Stopped("99")
		w.Stopped("99")
		if w.boxes["99"] != nil {
			t.Error("one that stopped is remembered")
		}
	})
}
