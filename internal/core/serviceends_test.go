package core_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/services"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// A stop that was answered holds for the next daemon, which would start what it does
// not know to be stopped: one that cannot be stored is an error.
func TestStopOfAServiceThatCannotBeStored(t *testing.T) {
	w := newWorld(t)
	w.createWith("a", sandbox.Service{Name: "web", Command: "exec sleep 1000"})
	w.inState("a", "web", services.Running)
	mend := storetest.Break(t, filepath.Join(w.dir, "cubby.db"), "UPDATE OF services ON sandboxes", "")
	if st, err := w.Services().Stop(w.ctx, "a", "web"); err == nil {
		t.Errorf("Stop = %+v", st)
	}
	mend()
	if st, err := w.Services().Stop(w.ctx, "a", "web"); err != nil || st.State != services.Stopped {
		t.Errorf("Stop again = %+v, %v", st, err)
	}
	w.restart()
	w.inState("a", "web", services.Stopped)
}

// A rollback that could not end its sandbox forgot that a service was stopped: the next
// daemon started it.
func TestServiceStaysStoppedAfterARollbackThatFailed(t *testing.T) {
	w := newWorld(t)
	w.createWith("a", sandbox.Service{Name: "web", Command: "exec sleep 1000"})
	w.keep("a", "point")
	if _, err := w.Services().Stop(w.ctx, "a", "web"); err != nil {
		t.Fatal(err)
	}
	w.faults.SetFail("Destroy", errDown)
	if _, err := w.Snapshots().Rollback(w.ctx, "a", "point"); err == nil {
		t.Error("Rollback succeeded")
	}
	w.faults.SetFail("Destroy", nil)
	w.restart()
	w.inState("a", "web", services.Stopped)
}

// preparing is a storage that does something else while it prepares a rollback.
type preparing struct {
	storage.Storage

	meanwhile func()
}

func (p preparing) Prepare(ctx context.Context, uid sandbox.UID, from storage.Source) (storage.Restoration, error) {
	p.meanwhile()
	return p.Storage.Prepare(ctx, uid, from)
}

// So did one for which the service was stopped while it copied the files.
func TestServiceStoppedDuringARollbackThatFailsStaysStopped(t *testing.T) {
	var w *world
	w = newWorld(t, func(c *core.Config) {
		c.Disks = preparing{c.Disks, func() {
			if st, err := w.Services().Stop(w.ctx, "a", "web"); err != nil || st.State != services.Stopped {
				t.Errorf("Stop = %+v, %v", st, err)
			}
		}}
	})
	w.createWith("a", sandbox.Service{Name: "web", Command: "exec sleep 1000"})
	w.keep("a", "point")
	w.inState("a", "web", services.Running)
	w.faults.SetFail("Destroy", errDown)
	if _, err := w.Snapshots().Rollback(w.ctx, "a", "point"); err == nil {
		t.Error("Rollback succeeded")
	}
	w.faults.SetFail("Destroy", nil)
	w.restart()
	w.inState("a", "web", services.Stopped)
}

// A stop of a service that came to its end while the sandbox was taken apart was
// answered, and noted nowhere.
func TestStopOfAServiceWhileItsSandboxIsTakenApart(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	asked, end := filepath.Join(dir, "asked"), filepath.Join(dir, "end")
	w.createWith("a", sandbox.Service{Name: "web", Command: "trap 'touch " + asked + "; while [ ! -e " + end + " ]; do sleep 0.01; done; exit' TERM; " +
		"echo ready; while :; do sleep 0.05; done"})
	w.keep("a", "point")
	st := w.inState("a", "web", services.Running)
	w.until("it is ready", func() bool {
		r, err := w.Execs().Result(w.ctx, "a", st.Exec, live.OutputCaps{Stdout: -1, Stderr: -1})
		return err == nil && strings.Contains(string(r.Stdout), "ready")
	})
	stopped := make(chan error, 1)
	go func() {
		_, err := w.Services().Stop(w.ctx, "a", "web")
		stopped <- err
	}()
	w.until("it was asked to end", func() bool { _, err := os.Stat(asked); return err == nil })
	w.faults.SetBefore(func(_ context.Context, method string, _ sandbox.UID) {
		if method != "Destroy" {
			return
		}
		if err := os.WriteFile(end, nil, 0o600); err != nil {
			t.Error(err)
		}
		if err := <-stopped; !errors.Is(err, errs.Unavailable) {
			t.Errorf("Stop = %v, want unavailable: it cannot be noted", err)
		}
	})
	w.faults.SetFail("Destroy", errDown)
	if _, err := w.Snapshots().Rollback(w.ctx, "a", "point"); err == nil {
		t.Error("Rollback succeeded")
	}
	w.faults.SetBefore(nil)
	w.faults.SetFail("Destroy", nil)
	if st, err := w.Services().Stop(w.ctx, "a", "web"); err != nil || st.State != services.Stopped {
		t.Errorf("Stop again = %+v, %v", st, err)
	}
	w.restart()
	w.inState("a", "web", services.Stopped)
}

// A service that is removed is ended also when the daemon is, before it has ended.
func TestServiceThatWasRemovedDoesNotOutliveTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.createWith("a",
		sandbox.Service{Name: "quick", Command: "exec sleep 1000"},
		sandbox.Service{Name: "stubborn", Command: "trap '' TERM; while :; do sleep 0.1; done"},
	)
	quick := w.inState("a", "quick", services.Running)
	stubborn := w.inState("a", "stubborn", services.Running)
	if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Services: &[]sandbox.Service{}}); err != nil {
		t.Fatal(err)
	}
	w.wait("a", quick.Exec)
	w.until("that is written", func() bool {
		b, err := w.store.Sandbox(w.ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		_, there := b.Services["quick"]
		return !there
	})
	w.restart()
	if x := w.wait("a", stubborn.Exec); x.Exit == nil || x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("what was removed ended %+v", x.Exit)
	}
}

// What a run has left is killed before the next begins, also when the daemon was
// killed when it had written the end and nothing else: it may hold the port.
func TestWhatAServiceLeftIsKilledByTheNextDaemon(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	left, ended := filepath.Join(dir, "left"), filepath.Join(dir, "end")
	// The first run leaves a process, and ends when it may; later ones stay.
	b := w.createWith("a", sandbox.Service{Name: "web", Command: "[ -e " + left + " ] && exec sleep 1000; setsid sleep 1001 & echo $! > " + left +
		"; while [ ! -e " + ended + " ]; do sleep 0.01; done"})
	first := w.inState("a", "web", services.Running)
	read := func() (pid int) {
		text, err := os.ReadFile(left)
		if err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return pid
	}
	w.until("it has left a process", func() bool { return read() != 0 })
	w.stop()
	if err := os.WriteFile(ended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.until("it has ended", func() bool { return syscall.Kill(int(first.PID), 0) != nil })
	var p pauses
	w.edit = append(w.edit, p.config)
	w.driverOfNext()
	w.open()
	code := 0
	exit := sandbox.Exit{Reason: sandbox.EndExited, Code: &code}
	if _, err := w.store.FinishExec(w.ctx, b.UID, first.Exec, exit, sandbox.ExecDone, time.Now()); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.until("it runs again", func() bool {
		st := w.service("a", "web")
		return st.State == services.Running && st.Restarts == 1
	})
	// One that was killed and that nobody has collected yet has no command line.
	if line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(read()), "cmdline")); err == nil && len(line) > 0 {
		t.Errorf("what the first run left lives on as %d: %q", read(), line)
	}
}

// A daemon that is killed when it has started a service, and has not noted that yet,
// does not have it run twice.
func TestServiceThatRunsOnceDoesSoWhenTheDaemonIsKilled(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	starts, ended := filepath.Join(dir, "starts"), filepath.Join(dir, "end")
	b := w.createWith("a", sandbox.Service{
		Name: "once", Restart: sandbox.RestartNever,
		Command: "echo x >> " + starts + "; while [ ! -e " + ended + " ]; do sleep 0.01; done",
	})
	first := w.inState("a", "once", services.Running)
	w.until("it has begun", func() bool { text, err := os.ReadFile(starts); return err == nil && string(text) == "x\n" })
	w.stop()
	if err := os.WriteFile(ended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.until("it has ended", func() bool { return syscall.Kill(int(first.PID), 0) != nil })
	w.driverOfNext()
	w.open()
	code := 0
	_, err := w.store.FinishExec(w.ctx, b.UID, first.Exec, sandbox.Exit{Reason: sandbox.EndExited, Code: &code}, sandbox.ExecDone, time.Now())
	if err == nil {
		err = w.store.SetServices(w.ctx, b.UID, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	st := w.inState("a", "once", services.Stopped)
	if text, err := os.ReadFile(starts); err != nil || string(text) != "x\n" || st.Exec != first.Exec {
		t.Errorf("it noted the starts %q, %v, and is %+v", text, err, st)
	}
}

// A shell ends at SIGTERM, and what it runs may take longer.
func TestStopGivesAllOfAServiceTimeToEnd(t *testing.T) {
	w := newWorld(t)
	saved := filepath.Join(t.TempDir(), "saved")
	w.createWith("a", sandbox.Service{Name: "web", Command: "(trap 'sleep 0.3; echo x > " + saved + "; exit' TERM; echo ready; while :; do sleep 0.05; done) & wait"})
	st := w.inState("a", "web", services.Running)
	w.until("it is ready", func() bool {
		r, err := w.Execs().Result(w.ctx, "a", st.Exec, live.OutputCaps{Stdout: -1, Stderr: -1})
		return err == nil && strings.Contains(string(r.Stdout), "ready")
	})
	if _, err := w.Services().Stop(w.ctx, "a", "web"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(saved); err != nil {
		t.Errorf("what the service's shell ran was killed before it had ended: %v", err)
	}
}

// A sandbox whose service waits for its path writes nothing more for each command.
func TestServiceThatWaitsCostsNoWrites(t *testing.T) {
	w := newWorld(t)
	w.createWith("a", sandbox.Service{Name: "dev", Command: "sleep 1000", Requires: filepath.Join(t.TempDir(), "package.json")})
	w.inState("a", "dev", services.Waiting)
	db, err := sql.Open("sqlite", filepath.Join(w.dir, "cubby.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// What is written is sealed anew, so each write is another text.
	column := func() (text string) {
		if err := db.QueryRowContext(w.ctx, `SELECT services FROM sandboxes`).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	w.until("that is written", func() bool {
		b, err := w.store.Sandbox(w.ctx, "a")
		return err == nil && b.Services["dev"].Phase == sandbox.ServiceWaiting
	})
	before := column()
	for range 10 {
		w.sh("a", "true")
	}
	if column() != before {
		t.Error("where the service stands was written again, and is the same")
	}
}

// A create that the pool serves has its services.
func TestServicesOfASandboxThatWasKeptReady(t *testing.T) {
	w := newWorld(t, keepReady(1))
	w.untilReady(1)
	command, starts := w.counted()
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{
		Services: []sandbox.Service{{Name: "web", Command: command}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if how := w.begun("a"); how != event.Warm {
		t.Errorf("it began %s, want warm", how)
	}
	w.inState("a", "web", services.Running)
	if !starts(1) || !w.get("a").LastActiveAt.Equal(b.LastActiveAt) {
		t.Error("it was started more than once, or is a use")
	}
}

// A service prints for weeks: what it printed last is what one looks for.
func TestServiceKeepsTheNewestOfItsOutput(t *testing.T) {
	w := newWorld(t)
	w.createWith("a", sandbox.Service{Name: "web", Command: "head -c 12000000 /dev/zero | tr '\\0' x; echo newest; exec sleep 1000"})
	st := w.inState("a", "web", services.Running)
	var r live.Result
	w.until("all is there", func() (there bool) {
		var err error
		if r, err = w.Execs().Result(w.ctx, "a", st.Exec, live.OutputCaps{Stdout: -1, Stderr: -1}); err != nil {
			t.Fatal(err)
		}
		return int64(len(r.Stdout))+r.StdoutCut == 12000000+int64(len("newest\n"))
	})
	if !strings.HasSuffix(string(r.Stdout), "xnewest\n") || len(r.Stdout) > 8<<20 {
		t.Errorf("of its output %d bytes are kept, and they end with %q", len(r.Stdout), r.Stdout[max(0, len(r.Stdout)-10):])
	}
}
