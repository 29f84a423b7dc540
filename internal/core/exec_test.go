package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

func TestExecEnds(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	short := 100 * time.Millisecond
	tests := []struct {
		name   string
		spec   sandbox.ExecSpec
		code   int
		reason sandbox.EndReason
		status sandbox.ExecStatus
		stdout string
	}{
		{"argv", sandbox.ExecSpec{Argv: []string{"echo", "a b"}}, 0, sandbox.EndExited, sandbox.ExecDone, "a b\n"},
		{"shell", sandbox.ExecSpec{Shell: "printf %s $((1+1)); exit 3"}, 3, sandbox.EndExited, sandbox.ExecDone, "2"},
		{"its own signal", sandbox.ExecSpec{Shell: "kill -TERM $$"}, 143, sandbox.EndExited, sandbox.ExecDone, ""},
		{"not found", sandbox.ExecSpec{Argv: []string{"no-such-program"}}, 127, sandbox.EndNotRun, sandbox.ExecError, ""},
		{"not executable", sandbox.ExecSpec{Argv: []string{"/etc/passwd"}}, 126, sandbox.EndNotRun, sandbox.ExecError, ""},
		{"no such directory", sandbox.ExecSpec{Shell: "true", Cwd: "nowhere"}, 126, sandbox.EndNotRun, sandbox.ExecError, ""},
		{"timeout", sandbox.ExecSpec{Shell: "echo begun; sleep 100", Timeout: &short}, 137, sandbox.EndTimeout, sandbox.ExecError, "begun\n"},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := w.Execs().Run(w.ctx, "a", tt.spec, -1, live.OutputCaps{Stdout: -1, Stderr: -1})
			if err != nil {
				t.Fatal(err)
			}
			x := r.Exec
			if x.Seq != int64(i+1) {
				t.Errorf("seq = %d, want %d", x.Seq, i+1)
			}
			if x.Exit == nil || x.Exit.Code == nil || *x.Exit.Code != tt.code || x.Exit.Reason != tt.reason || x.Status != tt.status {
				t.Errorf("it ended %s %+v, want %s with %d", x.Status, x.Exit, tt.reason, tt.code)
			}
			if string(r.Stdout) != tt.stdout {
				t.Errorf("stdout = %q, want %q", r.Stdout, tt.stdout)
			}
			var stored sandbox.Exec
			w.until("the store knows the end", func() bool {
				stored, err = w.store.Exec(w.ctx, x.Box, x.Seq)
				return err != nil || stored.Status.Finished()
			})
			if err != nil || stored.Status != x.Status || stored.Exit == nil || stored.Exit.Reason != tt.reason {
				t.Errorf("the store has %+v, %v", stored, err)
			}
			if tt.reason == sandbox.EndExited && stored.StartedAt.IsZero() {
				t.Error("the store does not know when it started")
			}
		})
	}
	list, err := w.Execs().List(w.ctx, "a", live.ExecQuery{AfterSeq: 2, Limit: 2})
	if err != nil || len(list) != 2 || list[0].Seq != 3 || list[1].Seq != 4 {
		t.Errorf("Execs after 2 = %v, %v", list, err)
	}
}

func TestExecRefusals(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("stopped")
	if _, err := w.Sandboxes().Stop(w.ctx, "stopped", 0); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		id   string
		spec sandbox.ExecSpec
		want errs.Kind
	}{
		{"a", sandbox.ExecSpec{}, errs.Invalid},
		{"a", sandbox.ExecSpec{Shell: "true", Env: map[string]string{"A=B": ""}}, errs.Invalid},
		{"nobody", sandbox.ExecSpec{Shell: "true"}, errs.NotFound},
		{"no/body", sandbox.ExecSpec{Shell: "true"}, errs.Invalid},
		{"stopped", sandbox.ExecSpec{Shell: "true"}, errs.WrongState},
	}
	for _, tt := range tests {
		_, err := w.Execs().Start(w.ctx, tt.id, tt.spec)
		if !errors.Is(err, tt.want) {
			t.Errorf("Exec %v in %s = %v, want %v", tt.spec, tt.id, err, tt.want)
		}
		if tt.want == errs.WrongState && errs.Public(err).Hint == "" {
			t.Errorf("%v says nothing about what to do", err)
		}
	}
	if _, err := w.Execs().Get(w.ctx, "a", 1); !errors.Is(err, errs.NotFound) {
		t.Errorf("a refused exec got a number: %v", err)
	}
}

func TestOutputFromAnyOffset(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	x := w.launch("a", `for i in $(seq 200); do echo line $i; echo err $i >&2; done; sleep 0.1; echo end`)
	collect := func(after int64, follow bool) (out string, end *sandbox.Exit) {
		for e, err := range w.Execs().Output(w.ctx, "a", x.Seq, after, follow) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Exit != nil {
				return out, e.Exit
			}
			out += string(e.Output.Data)
		}
		return out, nil
	}
	all, end := collect(0, true)
	if end == nil || *end.Code != 0 || !strings.Contains(all, "end\n") || strings.Count(all, "\n") != 401 {
		t.Fatalf("followed %d bytes, ended %+v", len(all), end)
	}
	for _, after := range []int64{0, 1, 777, int64(len(all)), int64(len(all)) + 10} {
		got, end := collect(after, false)
		want := all[min(int(after), len(all)):]
		if got != want || end == nil {
			t.Errorf("after %d: %d bytes, %+v, want %d", after, len(got), end, len(want))
		}
	}
}

func TestResultSaysWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	r, err := w.Execs().Run(w.ctx, "a", sandbox.ExecSpec{Shell: "printf 0123456789; printf abc >&2"}, -1, live.OutputCaps{Stdout: 4, Stderr: -1})
	if err != nil || len(r.Stdout) != 4 || r.StdoutCut != 6 || string(r.Stderr) != "abc" || r.StderrCut != 0 {
		t.Errorf("RunExec = %q (%d), %q (%d), %v", r.Stdout, r.StdoutCut, r.Stderr, r.StderrCut, err)
	}
	// Beyond the journal's cap of 1 MiB bytes are counted, and the command goes on.
	r = w.sh("a", "head -c 3000000 /dev/zero; echo fine >&2")
	if got := int64(len(r.Stdout)) + r.StdoutCut; got != 3000000 || len(r.Stdout) > 1<<20 || r.Exec.Exit.StdoutCut == 0 || *r.Exec.Exit.Code != 0 {
		t.Errorf("the result has %d bytes and %d cut, its exit %+v", len(r.Stdout), r.StdoutCut, r.Exec.Exit)
	}
}

// What was removed is not the same as what never was.
func TestOutputThatWasRemovedIsSaidToBe(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	const execs = 12 // of 1 MiB each, of which 8 are kept
	for range execs {
		if r := w.sh("a", "head -c 1000000 /dev/zero"); r.Pruned || len(r.Stdout) != 1000000 {
			t.Fatalf("exec %d has %d bytes, pruned %t", r.Exec.Seq, len(r.Stdout), r.Pruned)
		}
	}
	all := live.OutputCaps{Stdout: -1, Stderr: -1}
	r, err := w.Execs().Result(w.ctx, "a", 1, all)
	if err != nil || !r.Pruned || len(r.Stdout) != 0 || r.Exec.Status != sandbox.ExecDone {
		t.Errorf("Result of the first = %d bytes, pruned %t, %s, %v; want pruned", len(r.Stdout), r.Pruned, r.Exec.Status, err)
	}
	if err := w.Execs().CheckOutput(w.ctx, "a", 1); !errors.Is(err, errs.NotFound) || !strings.Contains(errs.Public(err).Message, "make room") {
		t.Errorf("CheckOutput of the first = %v, want not found and why", err)
	}
	for _, after := range []int64{0, 10} {
		for e, err := range w.Execs().Output(w.ctx, "a", 1, after, true) {
			if !errors.Is(err, errs.NotFound) {
				t.Errorf("Output of the first after %d = %+v, %v, want not found", after, e, err)
			}
		}
	}
	if r, err := w.Execs().Result(w.ctx, "a", execs, all); err != nil || r.Pruned || len(r.Stdout) != 1000000 {
		t.Errorf("Result of the last = %d bytes, pruned %t, %v", len(r.Stdout), r.Pruned, err)
	}
	if err := w.Execs().CheckOutput(w.ctx, "a", execs); err != nil {
		t.Errorf("CheckOutput of the last = %v", err)
	}
}

func TestMuchBinaryOutputWithoutAReader(t *testing.T) {
	w := newWorld(t)
	w.limits.PerExec, w.limits.PerSandbox = 64<<20, 128<<20
	w.restart()
	w.create("a")
	x, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: `yes "$(printf '\xff\x01')" | head -c 20000000`})
	if err != nil {
		t.Fatal(err)
	}
	if x = w.wait("a", x.Seq); x.Status != sandbox.ExecDone {
		t.Fatalf("it ended %+v", x.Exit)
	}
	r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1})
	want := bytes.Repeat([]byte("\xff\x01\n"), 20000000/3+1)[:20000000]
	if err != nil || !bytes.Equal(r.Stdout, want) {
		t.Errorf("the output has %d bytes, %v, and is not what was written", len(r.Stdout), err)
	}
}

func TestExecGoesOnWithoutItsCaller(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	ctx, cancel := context.WithCancel(w.ctx)
	x, err := w.Execs().Start(ctx, "a", sandbox.ExecSpec{Shell: "sleep 0.2; echo done"})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	w.wait("a", x.Seq)
	if r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1}); err != nil || string(r.Stdout) != "done\n" {
		t.Errorf("Result = %q, %v", r.Stdout, err)
	}
	// A wait that is over first returns what there is.
	r, err := w.Execs().Run(w.ctx, "a", sandbox.ExecSpec{Shell: "sleep 100"}, 0, live.OutputCaps{})
	if err != nil || r.Exec.Status.Finished() {
		t.Errorf("RunExec = %s, %v, want unfinished", r.Exec.Status, err)
	}
}

func TestCancelAndSignal(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	x := w.launch("a", `trap "" TERM; echo ready; while :; do sleep 0.05; done`)
	if err := w.Execs().Signal(w.ctx, "a", x.Seq, "term", false); err != nil {
		t.Errorf("Signal: %v", err)
	}
	if err := w.Execs().Signal(w.ctx, "a", x.Seq, "SIGNOPE", false); !errors.Is(err, errs.Invalid) {
		t.Errorf("an unknown signal = %v, want invalid", err)
	}
	got, err := w.Execs().Cancel(w.ctx, "a", x.Seq)
	if err != nil || got.Exit == nil || got.Exit.Reason != sandbox.EndKilled || *got.Exit.Code != 137 {
		t.Errorf("Cancel = %+v, %v", got.Exit, err)
	}
	if again, err := w.Execs().Cancel(w.ctx, "a", x.Seq); err != nil || again.Exit == nil {
		t.Errorf("a second Cancel = %+v, %v", again.Exit, err)
	}
	if err := w.Execs().Signal(w.ctx, "a", x.Seq, "KILL", true); !errors.Is(err, errs.WrongState) {
		t.Errorf("Signal of a finished exec = %v, want wrong state", err)
	}
	if _, err := w.Execs().Cancel(w.ctx, "a", 99); !errors.Is(err, errs.NotFound) {
		t.Errorf("Cancel of nothing = %v, want not found", err)
	}
}

func TestStdin(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	x, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Argv: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		offset int64
		data   string
		eof    bool
		want   int64
	}{{0, "hello ", false, 6}, {0, "hello ", false, 6}, {-1, "world", false, 11}, {6, "world!", true, 12}} {
		got, err := w.Execs().WriteStdin(w.ctx, "a", x.Seq, step.offset, []byte(step.data), step.eof)
		if err != nil || got != step.want {
			t.Fatalf("WriteStdin %d %q = %d, %v, want %d", step.offset, step.data, got, err, step.want)
		}
	}
	w.wait("a", x.Seq)
	if r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1}); err != nil || string(r.Stdout) != "hello world!" {
		t.Errorf("cat wrote %q, %v", r.Stdout, err)
	}
	if _, err := w.Execs().WriteStdin(w.ctx, "a", x.Seq, -1, nil, true); !errors.Is(err, errs.WrongState) {
		t.Errorf("WriteStdin to a finished exec = %v, want wrong state", err)
	}
}

func TestTerminal(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	x, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "stty size; read x; stty size", PTY: &sandbox.WindowSize{Cols: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Execs().Resize(w.ctx, "a", x.Seq, sandbox.WindowSize{Cols: 100, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	if err := w.Execs().Resize(w.ctx, "a", x.Seq, sandbox.WindowSize{}); !errors.Is(err, errs.Invalid) {
		t.Errorf("Resize to nothing = %v, want invalid", err)
	}
	if _, err := w.Execs().WriteStdin(w.ctx, "a", x.Seq, -1, []byte("\n"), false); err != nil {
		t.Fatal(err)
	}
	w.wait("a", x.Seq)
	r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1})
	if err != nil || !strings.Contains(string(r.Stdout), "30 100") {
		t.Errorf("the terminal showed %q, %v", r.Stdout, err)
	}
}

func TestParallelExecsAreNumberedWithoutGaps(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int64]string{}
	for i := range 40 {
		wg.Go(func() {
			r := w.sh("a", fmt.Sprintf("echo %d", i))
			mu.Lock()
			defer mu.Unlock()
			seen[r.Exec.Seq] = strings.TrimSpace(string(r.Stdout))
		})
	}
	wg.Wait()
	values := map[string]bool{}
	for seq := int64(1); seq <= 40; seq++ {
		values[seen[seq]] = true
	}
	if len(seen) != 40 || len(values) != 40 {
		t.Errorf("%d numbers and %d values, want 40 of each: %v", len(seen), len(values), seen)
	}
}

func TestExecsEndWithTheirSandbox(t *testing.T) {
	tests := []struct {
		name string
		end  func(w *world, b sandbox.Sandbox)
		want sandbox.EndReason
	}{
		{"stop", func(w *world, b sandbox.Sandbox) {
			if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
				w.t.Error(err)
			}
		}, sandbox.EndStopped},
		{"destroy", func(w *world, b sandbox.Sandbox) {
			if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
				w.t.Error(err)
			}
		}, sandbox.EndDestroyed},
		{"destroy and keep the disk", func(w *world, b sandbox.Sandbox) {
			if err := w.Sandboxes().Destroy(w.ctx, "a", true); err != nil {
				w.t.Error(err)
			}
		}, sandbox.EndDestroyed},
		{"oom", func(w *world, b sandbox.Sandbox) {
			w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathOOM})
		}, sandbox.EndOOM},
		{"death", func(w *world, b sandbox.Sandbox) {
			w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
		}, sandbox.EndDied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			b := w.create("a")
			x := w.launch("a", "echo ready; sleep 100")
			ended := make(chan sandbox.Exec, 1)
			followed := make(chan *sandbox.Exit, 1)
			go func() {
				x, _ := w.Execs().Wait(w.ctx, "a", x.Seq, 30*time.Second)
				ended <- x
			}()
			following := make(chan struct{})
			go func() {
				var once sync.Once
				for e := range w.Execs().Output(w.ctx, "a", x.Seq, 0, true) {
					once.Do(func() { close(following) })
					if e.Exit != nil {
						followed <- e.Exit
					}
				}
				close(followed)
			}()
			<-following
			tt.end(w, b)
			if end := <-followed; end == nil || end.Reason != tt.want {
				t.Errorf("a follower saw %+v, want %s", end, tt.want)
			}
			if got := <-ended; got.Exit != nil && got.Exit.Reason != tt.want {
				t.Errorf("WaitExec saw %+v, want %s", got.Exit, tt.want)
			}
			stored, err := w.store.Exec(w.ctx, b.UID, x.Seq)
			for err == nil && !stored.Status.Finished() && w.ctx.Err() == nil {
				stored, err = w.store.Exec(w.ctx, b.UID, x.Seq)
			}
			if err != nil || stored.Exit == nil || stored.Exit.Reason != tt.want || stored.Exit.Message == "" {
				t.Errorf("the store has %+v, %v, want %s with a message", stored.Exit, err, tt.want)
			}
		})
	}
}

// What a command left running when it ended by itself is killed by a cancel of
// it, at any time, and its end stays what it was.
func TestCancelOfAFinishedExecKillsWhatItLeft(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	left := func(signal func(seq int64) error) {
		t.Helper()
		r := w.sh("a", "sleep 617 >/dev/null 2>&1 & echo $!")
		x, pid := r.Exec, strings.TrimSpace(string(r.Stdout))
		// Another process of the host may get its number.
		runs := "grep -q 617 /proc/" + pid + "/cmdline"
		if r := w.sh("a", runs); *r.Exec.Exit.Code != 0 {
			t.Fatalf("what the command left does not run: %s", r.Stderr)
		}
		w.until("the agent has let go of the command", func() bool { return w.Released(b.UID) })
		if err := signal(x.Seq); err != nil {
			t.Errorf("exec %d: %v", x.Seq, err)
		}
		w.until("what the command left is gone", func() bool { return *w.sh("a", runs).Exec.Exit.Code != 0 })
		if got := w.wait("a", x.Seq); got.Exit.Reason != sandbox.EndExited || *got.Exit.Code != 0 {
			t.Errorf("the command's end became %+v", got.Exit)
		}
		// There is nothing left to cancel.
		if _, err := w.Execs().Cancel(w.ctx, "a", x.Seq); err != nil {
			t.Errorf("a second Cancel: %v", err)
		}
		if err := w.Execs().Signal(w.ctx, "a", x.Seq, "TERM", false); !errors.Is(err, errs.WrongState) {
			t.Errorf("Signal of the command alone = %v, want wrong state", err)
		}
	}
	left(func(seq int64) error {
		_, err := w.Execs().Cancel(w.ctx, "a", seq)
		return err
	})
	left(func(seq int64) error { return w.Execs().Signal(w.ctx, "a", seq, "TERM", true) })
}

// TestLongCommandsAreCutInTheHistory: 0.9 MB of arguments are run whole and
// leave a few KiB behind.
func TestLongCommandsAreCutInTheHistory(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	long := strings.Repeat("x", 900_000)
	for name, spec := range map[string]sandbox.ExecSpec{
		"argv":     {Argv: []string{"sh", "-c", `printf %s "${#1}" "${#2}" "${#3}" "${#4}" "${#5}" "${#6}" "${#7}"`, "sh", long[:120_000], long[:120_000], long[:120_000], long[:120_000], long[:120_000], long[:120_000], long[:120_000]}},
		"sessions": {Shell: "printf '%s' 120000120000120000120000120000120000120000 #" + long[:100_000], Session: "s"},
	} {
		r, err := w.Execs().Run(w.ctx, "a", spec, -1, live.OutputCaps{Stdout: -1, Stderr: -1})
		if err != nil || string(r.Stdout) != strings.Repeat("120000", 7) {
			t.Fatalf("%s: %.100q %.300q, %v", name, r.Stdout, r.Stderr, err)
		}
		w.until("its end is in the store", func() bool {
			b, err := w.Sandboxes().Get(w.ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			x, err := w.store.Exec(w.ctx, b.UID, r.Exec.Seq)
			if err != nil || !x.Status.Finished() {
				return false
			}
			kept := x.Spec.Shell + strings.Join(x.Spec.Argv, "")
			if len(kept) > 2*sandbox.KeptText || !strings.Contains(kept, "not kept]") {
				t.Errorf("%s: the history keeps %d bytes: %.40q…%q", name, len(kept), kept, kept[max(0, len(kept)-60):])
			}
			return true
		})
	}
}

// TestCommandsRespectTheDiskReserve: what is kept of them takes the host's disk.
func TestCommandsRespectTheDiskReserve(t *testing.T) {
	var full atomic.Bool
	w := newWorld(t, func(c *core.Config) { c.Disks = fullDisks{c.Disks, &full} })
	w.create("a")
	full.Store(true)
	for _, session := range []string{"", "s"} {
		if _, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "true", Session: session}); !errors.Is(err, errs.Exhausted) {
			t.Errorf("Exec in session %q on a full host = %v, want exhausted", session, err)
		}
	}
	full.Store(false)
	w.sh("a", "true")
}

type fullDisks struct {
	storage.Storage
	full *atomic.Bool
}

func (d fullDisks) Admit() error {
	if d.full.Load() {
		return errs.E(errs.Exhausted, "full")
	}
	return d.Storage.Admit()
}
