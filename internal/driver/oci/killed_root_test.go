//go:build root

package oci

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// victim is what a daemon does that is going to be killed.
type victim struct {
	Config Config
	Spec   driver.Spec
	Stop   bool
	// Ahead is a sandbox that comes and goes before, so that a sentry is ready.
	Ahead *driver.Spec
	// Of a sandbox that is there already: what it does with it.
	Handle      driver.Handle
	Sleep, Wake bool
	// It stays when it has woken it, and is killed then if it was not before.
	Stay bool
	// It keeps it in Snapshot, with a copy of its files in Files, or restores
	// Spec from that.
	Snapshot sandbox.UID
	Files    string
	Restore  bool
}

func TestMain(m *testing.M) {
	if job := os.Getenv("CUBBY_TEST_VICTIM"); job != "" {
		beVictim(job)
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(sharedRootfs.dir); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

// beVictim walks through a sandbox's life and says where it is.
func beVictim(job string) {
	var v victim
	say := func(what string, err error) {
		if err != nil {
			what = "error " + err.Error()
		}
		_, _ = os.Stdout.WriteString(what + "\n")
		if err != nil {
			os.Exit(1)
		}
	}
	if err := json.Unmarshal([]byte(job), &v); err != nil {
		say("", err)
	}
	ctx := context.Background()
	d, err := New(v.Config)
	if err == nil && v.Ahead != nil {
		err = goAhead(ctx, d, *v.Ahead)
	}
	say("open", err)
	switch {
	case v.Sleep:
		say("adopted", d.Adopt(ctx, v.Handle))
		say("asleep", d.Sleep(ctx, v.Handle))
		return
	case v.Wake:
		say("awake", d.Wake(ctx, v.Handle))
		if v.Stay {
			select {}
		}
		return
	case v.Restore:
		h, err := d.Restore(ctx, v.Snapshot, v.Spec)
		say("restored "+string(h), err)
		return
	case v.Snapshot != "":
		say("adopted", d.Adopt(ctx, v.Handle))
		_, err := d.Snapshot(ctx, v.Handle, v.Snapshot, func(context.Context) error { return copyVolumes(v.Spec, v.Files) })
		say("kept", err)
		return
	}
	h, err := d.Create(ctx, v.Spec)
	say("created "+string(h), err)
	say("started", d.Start(ctx, h))
	if v.Stop {
		say("stopped", d.Stop(ctx, h, time.Second))
	} else {
		say("destroyed", d.Destroy(ctx, h))
	}
	select {}
}

func goAhead(ctx context.Context, d *Driver, spec driver.Spec) error {
	h, err := d.Create(ctx, spec)
	if err == nil {
		err = d.Start(ctx, h)
	}
	if err == nil {
		err = d.Destroy(ctx, h)
	}
	if err == nil {
		_, err = d.awaitSentry(ctx)
	}
	return err
}

// A daemon that is killed at any moment leaves nothing that its successor does
// not find and remove, or finish.
func TestKilledAtAnyMoment(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			length := 60 * time.Millisecond
			if w.isolation == sandbox.GVisor {
				length = 300 * time.Millisecond
			}
			const steps = 16
			for step := range steps {
				m := newMachine(t, w.runtime)
				spec := testSpec(t, w.isolation)
				reached, h := murder(t, victim{Config: m.cfg, Spec: spec, Stop: step%2 == 1}, length*time.Duration(step)/steps)
				succeed(t, m, reached, h, step%4 < 2, spec.UID)
			}
		})
	}
}

// succeed opens the successor of a daemon that was killed, which carries on with the
// victim's sandbox or not, and removes all that it finds; nothing else is left, also no
// process of sandboxes.
func succeed(t *testing.T, m *machine, reached string, h driver.Handle, carryOn bool, uids ...sandbox.UID) {
	t.Helper()
	d := m.open(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if h != nil && carryOn {
		if err := d.Start(ctx, h); err != nil {
			t.Errorf("killed after %s: Start: %v", reached, err)
		}
	}
	found, err := d.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		uids = append(uids, f.UID)
		if err := d.Sweep(ctx, f.UID); err != nil {
			t.Errorf("killed after %s: Sweep: %v", reached, err)
		}
	}
	m.left(t)
	if left, _ := d.List(context.Background()); len(left) > 0 {
		t.Errorf("killed after %s: %v is still listed", reached, left)
	}
	for _, uid := range uids {
		for _, pid := range processesOf(t, uid) {
			t.Errorf("killed after %s: process %s of %s is left", reached, pid, uid)
		}
	}
}

// murder runs a victim and kills it a while after its sandbox was created, or
// before. It returns the last thing that the victim said.
func murder(t *testing.T, v victim, after time.Duration) (reached string, h driver.Handle) {
	t.Helper()
	return murderBy(t, v, after, func(daemon *os.Process) { _ = daemon.Kill() })
}

// murderBy is murder by somebody who may kill more than the victim.
func murderBy(t *testing.T, v victim, after time.Duration, kill func(*os.Process)) (reached string, h driver.Handle) {
	t.Helper()
	v.Config.Log = nil // it does not come out of JSON as it went in
	if v.Ahead == nil {
		v.Config.Sentries = 0 // it would make one now and then
	}
	job, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CUBBY_TEST_VICTIM="+string(job))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var timer *time.Timer
	murder := sync.OnceFunc(func() { kill(cmd.Process) })
	murdered := make(chan struct{})
	for lines.Scan() {
		reached = lines.Text()
		if strings.HasPrefix(reached, "error") {
			t.Errorf("the victim failed by itself: %s", reached)
		}
		if timer == nil { // it is open; from here on the clock runs
			timer = time.AfterFunc(after, func() {
				defer close(murdered)
				murder()
			})
		}
		if text, ok := strings.CutPrefix(reached, "created "); ok {
			h, reached = driver.Handle(text), "created"
		}
		if reached == "stopped" || reached == "destroyed" || v.Stay && reached == "awake" {
			murder()
		}
	}
	_ = cmd.Wait()
	if timer == nil {
		t.Fatalf("the victim ended by itself: %v", cmd.ProcessState)
	}
	if !timer.Stop() {
		<-murdered
	}
	return reached, h
}

// processesOf finds processes of the host that belong to a sandbox, by their
// cgroup or their command line.
func processesOf(t *testing.T, uid sandbox.UID) (pids []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		for _, name := range []string{"cgroup", "cmdline"} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil && strings.Contains(string(data), string(uid)) {
				pids = append(pids, filepath.Base(dir))
				break
			}
		}
	}
	return pids
}

// A sandbox whose stop was cut off does not count as running, although it does:
// its agent takes no commands any more. A further stop ends it.
func TestStopThatWasCutOff(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			m := newMachine(t, w.runtime)
			d := m.open(t)
			spec := testSpec(t, w.isolation)
			h, err := d.Create(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Destroy(context.Background(), h); err != nil {
					t.Error(err)
				}
			})
			if err := d.Start(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			b := d.box(spec.UID)
			rec, found, err := b.record()
			if err != nil || !found {
				t.Fatalf("its record: %v, %v", found, err)
			}
			rec.Stopping = true
			if err := b.setRecord(rec); err != nil {
				t.Fatal(err)
			}
			d = m.open(t)
			if st, err := d.Inspect(t.Context(), h); err != nil || st.Phase != driver.PhaseCreated {
				t.Errorf("Inspect = %+v, %v; want created", st, err)
			}
			if err := d.Stop(t.Context(), h, 0); err != nil {
				t.Errorf("Stop: %v", err)
			}
			for _, pid := range processesOf(t, spec.UID) {
				t.Errorf("process %s is left", pid)
			}
		})
	}
}

// A command of the runtime that a killed daemon began is not in the sandbox's cgroup:
// it ends soon after the sandbox, and until then it writes where an image of its files
// was begun.
func TestEndWaitsForTheRuntimesCommands(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	b := r.d.box(r.spec.UID)
	command, err := b.lockRuntime(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	swept := make(chan error, 1)
	go func() { swept <- r.d.Sweep(r.ctx, r.spec.UID) }()
	ended := func() (bool, error) { return len(processesOf(t, r.spec.UID)) == 0, nil }
	r.do("the sandbox's end", poll.Until(r.ctx, time.Millisecond, 10*time.Millisecond, ended))
	for range 20 {
		r.do("write", os.MkdirAll(filepath.Join(b.halfSaved(), strconv.Itoa(time.Now().Nanosecond())), 0o700))
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-swept:
		t.Errorf("Sweep = %v while a command of the runtime went on", err)
	default:
	}
	r.do("unlock", command.Close())
	r.do("Sweep", <-swept)
	if _, err := os.Lstat(b.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was written is left: %v", err)
	}
}
