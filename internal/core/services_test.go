package core_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/services"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// pauses is the clock of back-offs: it notes each pause and ends it at once, or
// when it is let go of.
type pauses struct {
	held chan struct{} // nil: none is held

	mu  sync.Mutex
	all []time.Duration // guarded by mu
}

func (p *pauses) wait(ctx context.Context, d time.Duration) bool {
	p.mu.Lock()
	p.all = append(p.all, d)
	p.mu.Unlock()
	if p.held == nil {
		return ctx.Err() == nil
	}
	select {
	case <-p.held:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *pauses) seen() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

func (p *pauses) config(c *core.Config) { c.Sandboxes.ServicePause = p.wait }

// createWith makes a sandbox with services.
func (w *world) createWith(id string, list ...sandbox.Service) sandbox.Sandbox {
	w.t.Helper()
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Spec: sandbox.Spec{
		Services: list, Limits: sandbox.Limits{DiskBytes: 512 << 20},
	}})
	if err != nil {
		w.t.Fatalf("Create %s: %v", id, err)
	}
	return b
}

func (w *world) service(id, name string) services.Status {
	w.t.Helper()
	st, err := w.Services().Get(w.ctx, id, name)
	if err != nil {
		w.t.Fatalf("the service %s of %s: %v", name, id, err)
	}
	return st
}

// inState waits until a service is in a state.
func (w *world) inState(id, name string, state services.State) (st services.Status) {
	w.t.Helper()
	w.until(name+" is "+string(state), func() bool {
		st = w.service(id, name)
		return st.State == state
	})
	return st
}

// services counts the events of services of a sandbox by kind.
func (w *world) serviceEvents(id string) map[string]int {
	w.t.Helper()
	events, _, err := w.Events().List(w.ctx, id, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	counts := map[string]int{}
	for _, e := range events {
		if strings.HasPrefix(e.Kind, "service.") {
			counts[e.Kind]++
		}
	}
	return counts
}

// counted is a command that notes each of its starts in a file, and then goes on;
// starts waits until there are as many as are wanted, and reports that there are no
// more.
func (w *world) counted() (command string, starts func(want int) bool) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "starts")
	count := func() int {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
		return strings.Count(string(text), "x")
	}
	return "echo x >> " + file + "; exec sleep 1000", func(want int) bool {
		// It runs a moment before it has noted that.
		w.until("it has noted its start", func() bool { return count() >= want })
		return count() == want
	}
}

func TestServiceThatEndsAtOnceIsGivenUpAfterFiveTimes(t *testing.T) {
	var p pauses
	w := newWorld(t, p.config)
	w.createWith("a", sandbox.Service{Name: "web", Command: "echo it breaks; exit 3"})
	st := w.inState("a", "web", services.Failed)
	if !strings.Contains(st.Reason, "5 times") || !strings.Contains(st.Reason, "exit code 3") || st.Restarts != 4 ||
		st.PID != 0 || st.Exit == nil || st.Exit.Code == nil || *st.Exit.Code != 3 {
		t.Errorf("it failed with %+v", st)
	}
	if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}; !slices.Equal(p.seen(), want) {
		t.Errorf("pauses %v, want %v", p.seen(), want)
	}
	if n := w.serviceEvents("a")[event.ServiceFailed]; n != 1 {
		t.Errorf("it is given up, and %d events say so", n)
	}
	w.until("all is written", func() bool { return w.serviceEvents("a")[event.ServiceEnded] == 5 })
	if got := w.serviceEvents("a"); got[event.ServiceStarted] != 5 || got[event.ServiceEnded] != 5 {
		t.Errorf("events %v, want 5 starts and ends", got)
	}
	if p := w.payload("a", event.ServiceFailed).(event.ServiceFail); p.Service != "web" || p.Reason != st.Reason {
		t.Errorf("the event says %+v", p)
	}
	// Its output is a journal as that of commands is.
	r, err := w.Execs().Result(w.ctx, "a", st.Exec, live.OutputCaps{Stdout: -1, Stderr: -1})
	if err != nil || string(r.Stdout) != "it breaks\n" {
		t.Errorf("its output is %q, %v", r.Stdout, err)
	}
	// A daemon that comes then does not try again; somebody who asks for it does.
	w.restart()
	if st := w.inState("a", "web", services.Failed); st.Restarts != 4 {
		t.Errorf("after a restart of the daemon it is %+v", st)
	}
	if _, err := w.Services().Start(w.ctx, "a", "web"); err != nil {
		t.Fatal(err)
	}
	w.until("it is given up again", func() bool { return w.serviceEvents("a")[event.ServiceFailed] == 2 })
}

func TestServiceIsNoUseOfItsSandbox(t *testing.T) {
	w := newWorld(t)
	b := w.createWith("a",
		sandbox.Service{Name: "web", Command: "sleep 1000"},
		sandbox.Service{Name: "once", Command: "sleep 0.1", Restart: sandbox.RestartNever},
	)
	w.inState("a", "web", services.Running)
	w.inState("a", "once", services.Stopped)
	if now := w.get("a"); !now.LastActiveAt.Equal(b.LastActiveAt) {
		t.Errorf("it was used at %v, and created at %v", now.LastActiveAt, b.LastActiveAt)
	}
	if b := w.get("a"); b.IdleAt.IsZero() {
		t.Error("the sandbox never idles")
	}
	list, err := w.Execs().List(w.ctx, "a", live.ExecQuery{})
	if err != nil || len(list) != 0 {
		t.Errorf("its commands are %v, %v", list, err)
	}
	if list, err = w.Execs().List(w.ctx, "a", live.ExecQuery{Service: "web"}); err != nil || len(list) != 1 {
		t.Errorf("the runs of the service are %v, %v", list, err)
	}
	w.sleep("a", false) // no 409
	if st := w.service("a", "web"); st.State != services.Sleeping || st.PID != 0 {
		t.Errorf("while the sandbox sleeps it is %+v", st)
	}
}

func TestServiceGoesOnOverASleepAndADaemonThatIsKilled(t *testing.T) {
	w := newWorld(t)
	command, starts := w.counted()
	w.createWith("a", sandbox.Service{Name: "web", Command: command})
	before := w.inState("a", "web", services.Running)
	same := func(when string) {
		t.Helper()
		st := w.inState("a", "web", services.Running)
		if st.Exec != before.Exec || st.PID != before.PID || st.Restarts != 0 || !starts(1) {
			t.Errorf("%s it is %+v, or was started again; want that of before: %+v", when, st, before)
		}
	}
	w.sleep("a", false)
	if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	same("after a sleep")
	w.restart()
	same("after a restart of the daemon")
	w.sleep("a", false)
	w.restart()
	if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	same("after a sleep under another daemon")
	if got := w.serviceEvents("a"); got[event.ServiceStarted] != 1 || got[event.ServiceEnded] != 0 {
		t.Errorf("events %v", got)
	}
}

func TestServiceThatEndedWhileNoDaemonRanIsStartedAgain(t *testing.T) {
	w := newWorld(t)
	command, starts := w.counted()
	w.createWith("a", sandbox.Service{Name: "web", Command: "echo $$ > " + filepath.Join(t.TempDir(), "pid") + "; " + command})
	st := w.inState("a", "web", services.Running)
	starts(1)
	// It is killed as the daemon is: the end comes to the next one.
	w.stop()
	proc, err := os.FindProcess(int(st.PID))
	if err == nil {
		err = proc.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	var p pauses
	w.edit = append(w.edit, p.config)
	w.driverOfNext()
	w.open()
	w.start()
	w.until("it runs again", func() bool {
		st := w.service("a", "web")
		return st.State == services.Running && st.Restarts == 1
	})
	if !starts(2) || len(p.seen()) != 1 {
		t.Errorf("it was started more than twice, or after the pauses %v", p.seen())
	}
}

func TestServiceBeginsAnewWithItsSandbox(t *testing.T) {
	var p pauses
	w := newWorld(t, p.config)
	command, starts := w.counted()
	w.createWith("a",
		sandbox.Service{Name: "web", Command: command},
		sandbox.Service{Name: "broken", Command: "exit 1"},
	)
	w.inState("a", "web", services.Running)
	starts(1)
	w.inState("a", "broken", services.Failed)
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web", "broken"} {
		if st := w.service("a", name); st.State != services.Stopped || st.PID != 0 || st.Reason != "" {
			t.Errorf("in a stopped sandbox %s is %+v", name, st)
		}
	}
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	w.inState("a", "web", services.Running)
	w.until("it is given up again", func() bool { return w.serviceEvents("a")[event.ServiceFailed] == 2 })
	if !starts(2) {
		t.Error("it was started more than twice")
	}
}

func TestUpdateChangesOnlyTheServiceThatIsAnother(t *testing.T) {
	w := newWorld(t)
	first, starts := w.counted()
	second, others := w.counted()
	w.createWith("a",
		sandbox.Service{Name: "stays", Command: first},
		sandbox.Service{Name: "changes", Command: "sleep 1000"},
		sandbox.Service{Name: "goes", Command: "sleep 1001"},
	)
	stays := w.inState("a", "stays", services.Running)
	changes := w.inState("a", "changes", services.Running)
	goes := w.inState("a", "goes", services.Running)
	list := []sandbox.Service{
		{Name: "stays", Command: first, Restart: sandbox.RestartOnFailure},
		{Name: "changes", Command: "sleep 1002"},
		{Name: "comes", Command: second},
	}
	if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Services: &list}); err != nil {
		t.Fatal(err)
	}
	w.inState("a", "comes", services.Running)
	w.until("what changes is another", func() bool {
		st := w.service("a", "changes")
		return st.State == services.Running && st.Exec != changes.Exec
	})
	if x := w.wait("a", goes.Exec); x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("what was removed ended %+v", x.Exit)
	}
	if st := w.inState("a", "stays", services.Running); st.Exec != stays.Exec || st.PID != stays.PID || !starts(1) || !others(1) {
		t.Errorf("what stays is %+v, was %+v; or one was started twice", st, stays)
	}
	if _, err := w.Services().Get(w.ctx, "a", "goes"); !errors.Is(err, errs.NotFound) {
		t.Errorf("what was removed: %v, want not found", err)
	}
	if st := w.service("a", "changes"); st.Restarts != 0 {
		t.Errorf("a change counts as a restart: %+v", st)
	}
}

func TestServiceStaysStoppedUntilSomebodyStartsIt(t *testing.T) {
	w := newWorld(t)
	command, starts := w.counted()
	w.createWith("a", sandbox.Service{Name: "web", Command: command})
	first := w.inState("a", "web", services.Running)
	starts(1)
	st, err := w.Services().Stop(w.ctx, "a", "web")
	if err != nil || st.State != services.Stopped || st.PID != 0 || st.Exit == nil {
		t.Errorf("Stop = %+v, %v", st, err)
	}
	if st, err = w.Services().Stop(w.ctx, "a", "web"); err != nil || st.State != services.Stopped {
		t.Errorf("the second Stop = %+v, %v", st, err)
	}
	w.restart()
	w.sleep("a", false)
	if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if st := w.service("a", "web"); st.State != services.Stopped || !starts(1) {
		t.Errorf("after all that it is %+v, or was started", st)
	}
	if _, err := w.Services().Start(w.ctx, "a", "web"); err != nil {
		t.Fatal(err)
	}
	second := w.inState("a", "web", services.Running)
	if second.Exec == first.Exec || !starts(2) {
		t.Errorf("after Start it is %+v, or was started more than once", second)
	}
	if _, err := w.Services().Restart(w.ctx, "a", "web"); err != nil {
		t.Fatal(err)
	}
	third := w.inState("a", "web", services.Running)
	if third.Exec == second.Exec || !starts(3) {
		t.Errorf("after Restart it is %+v, or was started more than once", third)
	}
	if _, err := w.Services().Start(w.ctx, "a", "other"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Start of what is not there: %v", err)
	}
	// A stopped sandbox has nothing to stop; it is not started for that.
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Services().Restart(w.ctx, "a", "web"); !errors.Is(err, errs.WrongState) {
		t.Errorf("Restart in a stopped sandbox: %v", err)
	}
}

func TestServiceWaitsForItsPath(t *testing.T) {
	w := newWorld(t)
	command, starts := w.counted()
	path := filepath.Join(t.TempDir(), "package.json")
	w.createWith("a", sandbox.Service{Name: "dev", Command: command, Requires: path})
	w.inState("a", "dev", services.Waiting)
	w.sh("a", "true")
	if st := w.service("a", "dev"); st.State != services.Waiting || !starts(0) {
		t.Errorf("without its path it is %+v", st)
	}
	w.sh("a", "touch "+path) // it is looked for after a command
	w.inState("a", "dev", services.Running)
	if !starts(1) {
		t.Error("it was started more than once")
	}
}

func TestPauseOfAServiceEndsWithAnUpdate(t *testing.T) {
	p := pauses{held: make(chan struct{})}
	w := newWorld(t, p.config)
	w.createWith("a", sandbox.Service{Name: "web", Command: "exit 1"})
	w.inState("a", "web", services.Backoff)
	command, starts := w.counted()
	list := []sandbox.Service{{Name: "web", Command: command}}
	if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Services: &list}); err != nil {
		t.Fatal(err)
	}
	w.inState("a", "web", services.Running)
	if !starts(1) {
		t.Error("it was started more than once")
	}
}

func TestServiceThatCannotBeStartedNowIsTriedAgain(t *testing.T) {
	var p pauses
	p.held = make(chan struct{})
	w := newWorld(t, p.config, func(c *core.Config) { c.Sandboxes.Caps.Commands = 1 })
	ctx := as(w.ctx, "somebody", "team")
	if _, err := w.Sandboxes().Create(ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{}}); err != nil {
		t.Fatal(err)
	}
	x := w.launch("a", "echo ready; exec sleep 1000") // takes the tenant's only place
	list := []sandbox.Service{{Name: "web", Command: "sleep 1000"}}
	if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Services: &list}); err != nil {
		t.Fatal(err)
	}
	st := w.inState("a", "web", services.Backoff)
	if !strings.Contains(st.Reason, "cannot be started now") || st.Exec != 0 {
		t.Errorf("without a place it is %+v", st)
	}
	for range 2 * 5 { // more often than quick ends are borne
		p.held <- struct{}{}
	}
	if st := w.service("a", "web"); st.State != services.Backoff {
		t.Errorf("after many attempts it is %+v", st)
	}
	if _, err := w.Execs().Cancel(w.ctx, "a", x.Seq); err != nil {
		t.Fatal(err)
	}
	w.until("it runs", func() bool {
		select {
		case p.held <- struct{}{}:
		default:
		}
		return w.service("a", "web").State == services.Running
	})
	if st := w.service("a", "web"); st.Restarts != 0 || st.Reason != "" {
		t.Errorf("at last it is %+v", st)
	}
}

// A copy has what anybody was told of the services, also what is not written down yet:
// one that runs once and had done so ran again in each copy.
// TestServiceThatEndedStaysEnded: a run that has ended counts at once, and before and
// after it is accounted for.
func TestServiceThatEndedStaysEnded(t *testing.T) {
	w := newWorld(t)
	b := w.createWith("a", sandbox.Service{Name: "once", Restart: sandbox.RestartNever, Command: "true"})
	phase := func() sandbox.ServicePhase { return w.Services().States(b)["once"].Phase }
	for range 20 {
		w.inState("a", "once", services.Stopped)
		w.until("it is written", func() bool { return w.get("a").Services["once"].Phase == sandbox.ServiceStopped })
		if _, err := w.Services().Start(w.ctx, "a", "once"); err != nil {
			t.Fatal(err)
		}
		for late := time.Now().Add(time.Minute); phase() != sandbox.ServiceStopped; { // without a pause, which could miss the moment
			if time.Now().After(late) {
				t.Fatal("it does not end")
			}
		}
		for stop := time.Now().Add(10 * time.Millisecond); time.Now().Before(stop); {
			if p := phase(); p != sandbox.ServiceStopped {
				t.Fatalf("it has stopped, and is %s after that", p)
			}
		}
	}
}

func TestServiceThatRanOnceDoesNotRunInCopies(t *testing.T) {
	w := newWorld(t)
	command, starts := w.counted()
	command, _, _ = strings.Cut(command, ";") // and is done
	mend := storetest.Break(t, filepath.Join(w.dir, "cubby.db"), "UPDATE OF services ON sandboxes", "NEW.state = OLD.state")
	w.createWith("a", sandbox.Service{Name: "once", Restart: sandbox.RestartNever, Command: command})
	w.inState("a", "once", services.Stopped)
	if _, err := w.Snapshots().Fork(w.ctx, "a", 1, []string{"fork"}); err != nil {
		t.Fatal(err)
	}
	w.keep("a", "point")
	mend()
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "kept", Snapshot: "point"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"fork", "kept"} {
		// It is started after what was taken up.
		if _, err := w.Services().Start(w.ctx, id, "once"); err != nil {
			t.Error(err)
		}
		w.inState(id, "once", services.Stopped)
	}
	if !starts(3) {
		t.Error("it ran again in a copy")
	}
}
