package core_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// in runs a command of session main to its end.
func (w *world) in(id, script string) live.Result {
	w.t.Helper()
	r, err := w.Execs().Run(w.ctx, id, sandbox.ExecSpec{Shell: script, Session: "main"}, -1, live.OutputCaps{Stdout: -1, Stderr: -1})
	if err != nil {
		w.t.Fatalf("%s: %v", script, err)
	}
	return r
}

// queue puts a command into session main.
func (w *world) queue(id string, spec sandbox.ExecSpec) sandbox.Exec {
	w.t.Helper()
	spec.Session = "main"
	x, err := w.Execs().Start(w.ctx, id, spec)
	if err != nil {
		w.t.Fatalf("%s: %v", spec.Shell, err)
	}
	return x
}

// gate is a command that goes on when it is opened.
func gate(t *testing.T) (script string, open func()) {
	path := filepath.Join(t.TempDir(), "gate")
	return fmt.Sprintf("until [ -e %s ]; do sleep 0.02; done", path), func() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSessionKeepsItsState(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.in("a", "mkdir d; cd d; export E=1; v=2; f() { echo f $1; }; echo out; echo err >&2")
	r := w.in("a", "echo ${PWD##*/} $E $v; f 3; exit 7")
	if string(r.Stdout) != "d 1 2\nf 3\n" || *r.Exec.Exit.Code != 7 || r.Exec.Exit.Reason != sandbox.EndExited {
		t.Errorf("it wrote %q, %q and ended %+v", r.Stdout, r.Stderr, r.Exec.Exit)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if r := w.in("a", "echo ${PWD##*/} $E $?"); string(r.Stdout) != "d 1 7\n" {
		t.Errorf("after stop and start it wrote %q, %q", r.Stdout, r.Stderr)
	}
	w.restart()
	limit := 50 * time.Millisecond
	x := w.queue("a", sandbox.ExecSpec{Shell: "E=2; sleep 60", Timeout: &limit})
	if x = w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndTimeout {
		t.Errorf("it ended %+v, want timeout", x.Exit)
	}
	if r := w.in("a", "echo $E"); string(r.Stdout) != "1\n" {
		t.Errorf("after a timeout it wrote %q, %q", r.Stdout, r.Stderr)
	}
}

func TestSessionRunsOneAfterAnother(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	hold, open := gate(t)
	first := w.queue("a", sandbox.ExecSpec{Shell: hold})
	var want []string
	var last sandbox.Exec
	for i := range 30 {
		last = w.queue("a", sandbox.ExecSpec{Shell: fmt.Sprintf("n=$((n+1)); echo %d $n >> log", i), Env: map[string]string{"N": "x"}})
		want = append(want, fmt.Sprintf("%d %d", i, i+1))
	}
	if x, err := w.Execs().Wait(w.ctx, "a", last.Seq, 0); err != nil || x.Status != sandbox.ExecPending || last.Seq != first.Seq+30 {
		t.Errorf("the last of the queue is %+v, %v", x, err)
	}
	// Others do not wait for them.
	if r := w.sh("a", "echo plain"); string(r.Stdout) != "plain\n" {
		t.Errorf("a plain command wrote %q", r.Stdout)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for entry, err := range w.Execs().Output(w.ctx, "a", last.Seq, 0, true) {
			if err != nil || entry.Exit == nil || entry.Exit.Reason != sandbox.EndExited {
				t.Errorf("who follows the last gets %+v, %v", entry, err)
			}
		}
	})
	open()
	waiting.Wait()
	w.wait("a", last.Seq)
	if r := w.sh("a", "cat log"); string(r.Stdout) != strings.Join(want, "\n")+"\n" {
		t.Errorf("they ran as\n%s", r.Stdout)
	}
}

func TestSessionsRunBesideEachOther(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	hold, open := gate(t)
	x := w.queue("a", sandbox.ExecSpec{Shell: hold})
	r, err := w.Execs().Run(w.ctx, "a", sandbox.ExecSpec{Shell: "echo other", Session: "other"}, -1, live.OutputCaps{Stdout: -1})
	if err != nil || string(r.Stdout) != "other\n" {
		t.Errorf("the other session wrote %q, %v", r.Stdout, err)
	}
	open()
	w.wait("a", x.Seq)
}

// A daemon that is replaced goes on with the queue where it was.
func TestRestartKeepsTheQueue(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	hold, open := gate(t)
	w.in("a", "n=0")
	w.queue("a", sandbox.ExecSpec{Shell: hold + "; echo gate >> log"})
	want := []string{"gate"}
	var seqs []int64
	for i := range 20 {
		x := w.queue("a", sandbox.ExecSpec{
			Shell: `n=$((n+1)); echo "$I $n" >> log`, Env: map[string]string{"I": fmt.Sprint(i)},
		})
		seqs = append(seqs, x.Seq)
		want = append(want, fmt.Sprintf("%d %d", i, i+1))
	}
	w.restart()
	w.restart()
	late := w.queue("a", sandbox.ExecSpec{Shell: "echo late $n >> log"})
	want = append(want, "late 20")
	open()
	// In the middle of it, too.
	w.wait("a", seqs[5])
	w.restart()
	w.wait("a", late.Seq)
	for _, seq := range seqs {
		if x := w.wait("a", seq); x.Status != sandbox.ExecDone {
			t.Errorf("%d ended %+v", seq, x.Exit)
		}
	}
	if r := w.sh("a", "cat log"); string(r.Stdout) != strings.Join(want, "\n")+"\n" {
		t.Errorf("they ran as\n%swant\n%s", r.Stdout, strings.Join(want, "\n"))
	}
}

func TestQueuedSecretsAreLostWithTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	hold, open := gate(t)
	w.queue("a", sandbox.ExecSpec{Shell: hold})
	secret := w.queue("a", sandbox.ExecSpec{Shell: "echo $TOKEN >> log", Secrets: map[string]string{"TOKEN": "t"}})
	after := w.queue("a", sandbox.ExecSpec{Shell: "echo after ${TOKEN-none} >> log"})
	w.restart()
	again := w.queue("a", sandbox.ExecSpec{Shell: "echo $TOKEN >> log", Secrets: map[string]string{"TOKEN": "again"}})
	open()
	w.wait("a", again.Seq)
	if x := w.wait("a", secret.Seq); x.Exit.Reason != sandbox.EndLost || x.Status != sandbox.ExecError {
		t.Errorf("it ended %+v, want lost", x.Exit)
	}
	if x := w.wait("a", after.Seq); x.Status != sandbox.ExecDone {
		t.Errorf("the one after it ended %+v", x.Exit)
	}
	if r := w.sh("a", "cat log"); string(r.Stdout) != "after none\nagain\n" {
		t.Errorf("the log is %q", r.Stdout)
	}
}

func TestCancelOfAQueuedCommand(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	hold, open := gate(t)
	begun := filepath.Join(t.TempDir(), "begun")
	first := w.queue("a", sandbox.ExecSpec{Shell: "touch " + begun + "; " + hold})
	w.until("the first runs", func() bool {
		_, err := os.Stat(begun)
		return err == nil
	})
	canceled := w.queue("a", sandbox.ExecSpec{Shell: "echo canceled >> log"})
	signalled := w.queue("a", sandbox.ExecSpec{Shell: "echo signalled >> log"})
	last := w.queue("a", sandbox.ExecSpec{Shell: "echo last >> log"})
	x, err := w.Execs().Cancel(w.ctx, "a", canceled.Seq)
	if err != nil || x.Status != sandbox.ExecError || x.Exit == nil || x.Exit.Reason != sandbox.EndNotRun {
		t.Errorf("Cancel = %+v, %v, want not_started", x.Exit, err)
	}
	if err := w.Execs().Signal(w.ctx, "a", signalled.Seq, "INT", false); err != nil {
		t.Errorf("Signal: %v", err)
	}
	if x := w.wait("a", signalled.Seq); x.Exit.Reason != sandbox.EndNotRun {
		t.Errorf("after a signal it is %+v, want not_started", x.Exit)
	}
	if r, err := w.Execs().Result(w.ctx, "a", canceled.Seq, live.OutputCaps{}); err != nil || r.Pruned {
		t.Errorf("its result is %+v, %v", r, err)
	}
	// The one that runs is killed as any other.
	if x, err := w.Execs().Cancel(w.ctx, "a", first.Seq); err != nil || x.Exit == nil || x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("Cancel of the running one = %+v, %v", x.Exit, err)
	}
	w.wait("a", last.Seq)
	open()
	if r := w.sh("a", "cat log"); string(r.Stdout) != "last\n" {
		t.Errorf("the log is %q", r.Stdout)
	}
}

func TestStopEndsTheQueue(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	hold, _ := gate(t)
	var seqs []int64
	for range 10 {
		seqs = append(seqs, w.queue("a", sandbox.ExecSpec{Shell: hold}).Seq)
	}
	waited := make(chan sandbox.Exec, 1)
	go func() {
		x, err := w.Execs().Wait(w.ctx, "a", seqs[9], -1)
		if err != nil {
			t.Errorf("WaitExec: %v", err)
		}
		waited <- x
	}()
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if x := <-waited; x.Exit == nil || x.Exit.Reason != sandbox.EndStopped {
		t.Errorf("who waits sees %+v, want sandbox_stopped", x.Exit)
	}
	for _, seq := range seqs {
		if x := w.wait("a", seq); x.Exit.Reason != sandbox.EndStopped {
			t.Errorf("%d ended %+v, want sandbox_stopped", seq, x.Exit)
		}
	}
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if r := w.in("a", "echo on"); string(r.Stdout) != "on\n" {
		t.Errorf("then it wrote %q", r.Stdout)
	}
}

func TestSessionsAreListedAndForgotten(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	want := func(when string, check func(list []core.Session) bool) {
		t.Helper()
		list, err := w.Sessions().List(w.ctx, "a")
		if err != nil || !check(list) {
			t.Errorf("%s there is %+v, %v", when, list, err)
		}
	}
	want("at first", func(list []core.Session) bool { return len(list) == 0 })
	w.in("a", "mkdir d; cd d; x=1")
	idle := func(list []core.Session) bool {
		return len(list) == 1 && list[0].Name == "main" && list[0].Status == core.SessionIdle &&
			strings.HasSuffix(list[0].Cwd, "/d") && !list[0].LastUsedAt.IsZero()
	}
	want("after a command", idle)
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	want("while it is stopped", idle)
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	hold, open := gate(t)
	x := w.queue("a", sandbox.ExecSpec{Shell: hold})
	last := w.queue("a", sandbox.ExecSpec{Shell: "true"})
	w.until("it is busy", func() bool {
		list, err := w.Sessions().List(w.ctx, "a")
		return err == nil && len(list) == 1 && list[0].Status == core.SessionBusy && list[0].RunningSeq == x.Seq && list[0].Pending == 1
	})
	if err := w.Sessions().Forget(w.ctx, "a", "main"); errs.KindOf(err) != errs.WrongState {
		t.Errorf("ForgetSession of a busy one = %v, want wrong_state", err)
	}
	open()
	w.wait("a", last.Seq)
	if err := w.Sessions().Forget(w.ctx, "a", "main"); err != nil {
		t.Errorf("ForgetSession = %v", err)
	}
	if err := w.Sessions().Forget(w.ctx, "a", "main"); errs.KindOf(err) != errs.NotFound {
		t.Errorf("ForgetSession again = %v, want not_found", err)
	}
	if err := w.Sessions().Forget(w.ctx, "a", "../x"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("ForgetSession of no name = %v, want invalid", err)
	}
	if r := w.in("a", "echo ${x-none} ${PWD##*/}"); string(r.Stdout) != "none workspace\n" {
		t.Errorf("then it wrote %q", r.Stdout)
	}
}

// What keeps a command from being started keeps those behind it waiting, and
// nothing is dropped.
func TestQueueWaitsForAPlace(t *testing.T) {
	w := newWorld(t)
	free, err := w.FillPlaces(w.create("a").UID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "true"}); errs.KindOf(err) != errs.Exhausted {
		t.Errorf("a plain command = %v, want exhausted", err)
	}
	first := w.queue("a", sandbox.ExecSpec{Shell: "echo 1"})
	second := w.queue("a", sandbox.ExecSpec{Shell: "echo 2"})
	if x, err := w.Execs().Wait(w.ctx, "a", first.Seq, 50*time.Millisecond); err != nil || x.Status != sandbox.ExecPending {
		t.Errorf("without a place it is %s, %v", x.Status, err)
	}
	free()
	for i, x := range []sandbox.Exec{first, second} {
		w.wait("a", x.Seq)
		r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1})
		if err != nil || string(r.Stdout) != fmt.Sprintln(i+1) {
			t.Errorf("then it wrote %q, %v", r.Stdout, err)
		}
	}
}
