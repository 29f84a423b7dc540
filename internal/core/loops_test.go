package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

func TestEgressIsDecidedAndWrittenDown(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "reached") }))
	defer target.Close()
	operator, err := egress.ParseOperator(strings.TrimPrefix(target.URL, "http://"), "")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *core.Config) { c.Egress.Operator = operator })
	b := w.create("a")
	proxy := &url.URL{Scheme: "http", Host: w.fake.EgressAddr(b.UID)}
	inside := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
	get := func(u string) int {
		t.Helper()
		res, err := inside.Get(u)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if code := get(target.URL); code != 200 {
		t.Errorf("the operator's host answers %d, want 200", code)
	}
	if code := get("http://169.254.169.254/latest"); code != 403 {
		t.Errorf("the metadata service answers %d, want 403", code)
	}
	// An update holds from the next request on.
	if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Network: &sandbox.Policy{Mode: sandbox.NetworkNone}}); err != nil {
		t.Fatal(err)
	}
	if code := get(target.URL); code != 403 {
		t.Errorf("without a network the host answers %d, want 403", code)
	}
	w.until("the decisions are in the history", func() bool {
		events, _, err := w.Events().List(w.ctx, "a", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for _, e := range events {
			kinds[e.Kind]++
		}
		return kinds[event.EgressAllowed] == 1 && kinds[event.EgressDenied] == 2
	})
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestIdleSandboxes(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	timeout := time.Hour
	for id, policy := range map[string]sandbox.IdlePolicy{
		"stop": sandbox.IdleStop, "sleep": sandbox.IdleSleep, "destroy": sandbox.IdleDestroy, "always": sandbox.IdleAlwaysOn, "busy": sandbox.IdleSleep,
	} {
		spec := sandbox.Spec{IdlePolicy: policy, AutoWake: sandbox.AutoWakeNever}
		if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Spec: spec, IdleTimeout: &timeout}); err != nil {
			t.Fatal(err)
		}
	}
	w.launch("busy", "echo ready; sleep 100")
	if ended := w.Reap(); len(ended) != 0 {
		t.Fatalf("fresh sandboxes were ended: %v", ended)
	}
	if b, err := w.Sandboxes().Get(w.ctx, "stop"); err != nil || b.State != sandbox.Running {
		t.Fatalf("a fresh sandbox is %s, %v", b.State, err)
	}
	c.add(2 * time.Hour)
	w.until("the idle ones are ended", func() bool {
		counts, err := w.Sandboxes().Count(w.ctx)
		return err == nil && counts["stopped"] == 1 && counts["sleeping"] == 1 && counts["running"] == 2
	})
	if ended := w.Reap(); len(ended) != 0 {
		t.Errorf("sandboxes in use were ended: %v", ended)
	}
	for id, want := range map[string]sandbox.State{"stop": sandbox.Stopped, "sleep": sandbox.Sleeping, "always": sandbox.Running, "busy": sandbox.Running} {
		b, err := w.Sandboxes().Get(w.ctx, id)
		if err != nil || b.State != want {
			t.Errorf("%s is %s, %v, want %s", id, b.State, err, want)
		}
		if want != sandbox.Running && (b.Cause != sandbox.CauseIdle || !strings.HasPrefix(b.Reason, "idle")) {
			t.Errorf("%s rests because of %q, %q", id, b.Cause, b.Reason)
		}
	}
	_, err := w.Sandboxes().Get(w.ctx, "destroy")
	if info := errs.Public(err); info.Kind != errs.NotFound || !strings.HasPrefix(info.Message, "no such sandbox: destroyed ") || !strings.HasSuffix(info.Message, " ago: idle") || info.Hint == "" {
		t.Errorf("destroy: %+v, want not found, and why", info)
	}
	_, err = w.Execs().Start(w.ctx, "stop", sandbox.ExecSpec{Shell: "true"})
	if info := errs.Public(err); info.Kind != errs.WrongState || !strings.HasPrefix(info.Message, "the sandbox is stopped (") || !strings.HasSuffix(info.Message, " ago: idle)") {
		t.Errorf("a command in the one that rests: %+v, want that it was stopped, and why", info)
	}
}

// What counts as use, and what does not.
func TestUse(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	w.create("a")
	due := func(what string, want time.Duration) {
		t.Helper()
		b, err := w.Sandboxes().Get(w.ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		switch left := b.IdleAt.Sub(c.Now()); {
		case want == 0 && !b.IdleAt.IsZero():
			t.Errorf("%s: it idles in %s, want never while it is in use", what, left)
		case want != 0 && left != want:
			t.Errorf("%s: it idles in %s, want %s", what, left, want)
		}
	}
	const timeout = 30 * time.Minute
	c.add(10 * time.Minute)
	due("after a while", timeout-10*time.Minute)
	if _, err := w.Sandboxes().List(w.ctx, lifecycle.Query{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Stats(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Events().List(w.ctx, "a", 0, 0); err != nil {
		t.Fatal(err)
	}
	due("after looks at its status", timeout-10*time.Minute)
	unused := func() {
		t.Helper()
		w.until("it counts as unused again", func() bool {
			b, err := w.Sandboxes().Get(w.ctx, "a")
			return err == nil && !b.IdleAt.IsZero()
		})
	}
	w.sh("a", "true")
	unused() // its end is told before it is noted
	due("after a command", timeout)
	c.add(10 * time.Minute)
	if _, err := w.Files().MakeDir(w.ctx, "a", "dir", 0o755, false); err != nil {
		t.Fatal(err)
	}
	due("after a file call", timeout)
	c.add(10 * time.Minute)
	x := w.launch("a", "echo ready; sleep 1000")
	c.add(time.Hour)
	due("while a command runs", 0)
	if _, err := w.Execs().Cancel(w.ctx, "a", x.Seq); err != nil {
		t.Fatal(err)
	}
	unused()
	due("after that command", timeout)
}

// One that hangs while it is ended does not hold up the others.
func TestReaperIsNotHeldUp(t *testing.T) {
	c := &clock{now: time.Now()}
	var slow sandbox.UID
	reached, release := make(chan struct{}), make(chan struct{})
	w := stoppedWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	w.faults.Before = func(_ context.Context, method string, uid sandbox.UID) {
		if method == "Stop" && uid == slow {
			close(reached)
			<-release
		}
	}
	w.start()
	timeout := time.Hour
	for _, id := range []string{"slow", "quick"} {
		b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Spec: sandbox.Spec{IdlePolicy: sandbox.IdleStop}, IdleTimeout: &timeout})
		if err != nil {
			t.Fatal(err)
		}
		if id == "slow" {
			slow = b.UID
		}
	}
	// Only the slow one is idle.
	c.add(40 * time.Minute)
	w.sh("quick", "true")
	c.add(40 * time.Minute)
	<-reached
	c.add(time.Hour)
	w.until("the other one is stopped", func() bool {
		b, err := w.Sandboxes().Get(w.ctx, "quick")
		return err == nil && b.State == sandbox.Stopped
	})
	if b, err := w.Sandboxes().Get(w.ctx, "slow"); err != nil || b.State != sandbox.Running {
		t.Errorf("the slow one is %s, %v", b.State, err)
	}
	close(release)
	w.until("the slow one is stopped too", func() bool {
		b, err := w.Sandboxes().Get(w.ctx, "slow")
		return err == nil && b.State == sandbox.Stopped
	})
}

// The wall clock steps by hours and nothing ends but what was unused in truth.
func TestStepsOfTheClock(t *testing.T) {
	c, passed := &clock{now: time.Now()}, &clock{now: time.Unix(0, 0)}
	w := newWorld(t, func(cfg *core.Config) {
		cfg.Now, cfg.Uptime = c.Now, func() time.Duration { return passed.Now().Sub(time.Unix(0, 0)) }
	})
	life := 2 * time.Hour
	for id, policy := range map[string]sandbox.IdlePolicy{"stop": sandbox.IdleStop, "destroy": sandbox.IdleDestroy} {
		if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Spec: sandbox.Spec{IdlePolicy: policy}, MaxLifetime: &life}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []time.Duration{72 * time.Hour, -200 * time.Hour} {
		c.add(step)
		passed.add(time.Minute)
		if ended := w.Reap(); len(ended) != 0 {
			t.Errorf("a step of %s ended %v", step, ended)
		}
	}
	passed.add(time.Hour)
	w.until("they idle", func() bool {
		_, err := w.Sandboxes().Get(w.ctx, "destroy")
		b, stopErr := w.Sandboxes().Get(w.ctx, "stop")
		return errors.Is(err, errs.NotFound) && stopErr == nil && b.State == sandbox.Stopped
	})
	passed.add(time.Hour)
	w.until("its lifetime is over", func() bool {
		_, err := w.Sandboxes().Get(w.ctx, "stop")
		return errors.Is(err, errs.NotFound)
	})
}

func TestHistoryIsPruned(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now, cfg.History.Age = c.Now, time.Hour })
	b := w.create("a")
	w.sh("a", "echo output")
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	w.Prune(w.ctx)
	if boxes, err := w.journals.Boxes(); err != nil || len(boxes) != 1 {
		t.Errorf("within the retention there are journals of %v, %v", boxes, err)
	}
	c.add(2 * time.Hour)
	w.Prune(w.ctx)
	if boxes, err := w.journals.Boxes(); err != nil || len(boxes) != 0 {
		t.Errorf("after the retention there are journals of %v, %v", boxes, err)
	}
	if _, err := w.store.SandboxByUID(w.ctx, b.UID); !errors.Is(err, errs.NotFound) {
		t.Errorf("after the retention the row is there: %v", err)
	}
}

// A journal that cannot be written ends the command, and says so.
func TestOutputThatCannotBeKept(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	x := w.launch("a", "echo ready; while :; do echo more; sleep 0.01; done")
	if err := w.journals.Remove(b.UID); err != nil {
		t.Fatal(err)
	}
	x = w.wait("a", x.Seq)
	if x.Exit.Reason != sandbox.EndDiskFull || x.Status != sandbox.ExecError {
		t.Errorf("it ended %s %+v, want disk_full", x.Status, x.Exit)
	}
	got := 0
	for e, err := range w.Execs().Output(w.ctx, "a", x.Seq, 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Exit != nil && e.Exit.Reason == sandbox.EndDiskFull {
			got++
		}
	}
	if got != 1 {
		t.Errorf("Output told the end %d times, want once", got)
	}
}

// TestEndOfAFullHostIsWrittenAtTheStop: neither the journal nor the store could take an end
// that was told, and both have room when the service ends.
func TestEndOfAFullHostIsWrittenAtTheStop(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	x := w.launch("a", "echo ready; while :; do echo more; sleep 0.01; done")
	mend := storetest.Break(t, filepath.Join(w.dir, "cubby.db"), "UPDATE OF status ON execs", "")
	if err := w.journals.Remove(b.UID); err != nil {
		t.Fatal(err)
	}
	if x = w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndDiskFull {
		t.Fatalf("it ended %+v, want disk_full", x.Exit)
	}
	time.Sleep(time.Second) // the attempts become rare
	mend()
	w.restart()
	if x = w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndDiskFull {
		t.Errorf("after a restart it has ended %+v, want disk_full as before", x.Exit)
	}
}

func TestReady(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	if p := w.Ready(w.ctx); len(p) != 0 {
		t.Errorf("Ready = %+v, want no problem", p)
	}
	counts, err := w.Sandboxes().Count(w.ctx)
	if err != nil || counts["running"] != 1 || counts["stopped"] != 0 {
		t.Errorf("CountSandboxes = %v, %v", counts, err)
	}
	svc := w.Service
	w.stop()
	if p := svc.Ready(w.ctx); len(p) == 0 {
		t.Error("Ready after the end = no problem")
	}
}

// One whose end fails is tried again after a while, and not all the time.
func TestReaperTriesAgain(t *testing.T) {
	c := &clock{now: time.Now()}
	w := stoppedWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	var tries atomic.Int32
	w.faults.Before = func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Stop" {
			tries.Add(1)
		}
	}
	w.start()
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{IdlePolicy: sandbox.IdleStop}}); err != nil {
		t.Fatal(err)
	}
	w.faults.SetFail("Stop", errs.E(errs.Unavailable, "not now"))
	c.add(time.Hour)
	w.until("it was tried and failed", func() bool {
		for _, err := range w.Reap() {
			return err != nil
		}
		return tries.Load() > 0 // the loop was faster
	})
	w.until("nobody is at it", func() bool { return !w.Sandboxes().Reaping() })
	before := tries.Load()
	for range 3 {
		if ended := w.Reap(); len(ended) != 0 {
			t.Errorf("it is tried again at once: %v", ended)
		}
	}
	if n := tries.Load(); n != before {
		t.Errorf("it was tried %d times more", n-before)
	}
	w.faults.SetFail("Stop", nil)
	c.add(time.Minute)
	w.until("it is stopped", func() bool {
		b, err := w.Sandboxes().Get(w.ctx, "a")
		return err == nil && b.State == sandbox.Stopped
	})
}
