//go:build root

package oci

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// awaitSentry returns a sentry that is ready.
func (d *Driver) awaitSentry(ctx context.Context) (*sentry, error) {
	for {
		if ready, _ := d.Stock(); ready == 1 {
			if ours := slices.Collect(maps.Values(d.sentries.boxes())); len(ours) == 1 {
				return ours[0], nil // and none goes
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("no sentry is ready: %w", ctx.Err())
		}
	}
}

// settle gives up what is kept for the next sandbox and returns when it has gone.
func (s *sentries) settle(t testing.TB) {
	t.Helper()
	s.d.GiveUp()
	soon(t, "no sentry is left", func() bool { return len(s.boxes()) == 0 })
}

// soon waits for what is to come.
func soon(t testing.TB, what string, is func() bool) {
	t.Helper()
	for wait := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(wait) {
			t.Fatalf("it does not come that %s", what)
		}
	}
}

// needSentries skips a test on a host that cannot have any.
func needSentries(t *testing.T) {
	t.Helper()
	if quick, err := cgroup.FavorMoves(); err != nil || !quick {
		t.Skipf("moves between cgroups wait on this host, and no kernel is started ahead: %v", err)
	}
}

func (r *running) awaitSentry() *sentry {
	r.t.Helper()
	needSentries(r.t)
	ctx, cancel := context.WithTimeout(r.ctx, 20*time.Second)
	defer cancel()
	k, err := r.d.awaitSentry(ctx)
	r.do("awaitSentry", err)
	return k
}

// another starts another sandbox on the same machine.
func (r *running) another(spec driver.Spec) *running {
	r.t.Helper()
	h, err := r.d.Create(r.ctx, spec)
	r.do("Create", err)
	c := r.clone(spec, h)
	r.t.Cleanup(func() {
		if err := c.d.Destroy(context.Background(), h); err != nil {
			c.t.Errorf("Destroy: %v", err)
		}
	})
	r.do("Start", r.d.Start(r.ctx, h))
	return c
}

// becameOf fails unless a sandbox's kernel was that sentry.
func (r *running) becameOf(k *sentry) {
	r.t.Helper()
	if id := r.d.box(r.spec.UID).runtimeID(); id != string(k.uid) {
		r.t.Fatalf("it began as %s, want as the sentry %s", id, k.uid)
	}
}

// gofer is the process of a sandbox's file server.
func (r *running) gofer() int {
	r.t.Helper()
	pids, err := r.d.cgroups.Group(r.spec.UID).Procs()
	r.do("Procs", err)
	for _, pid := range pids {
		if data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(data), "runsc-gofer") {
			return pid
		}
	}
	r.t.Fatalf("no file server among %v", pids)
	return 0
}

// mounts are what a sandbox's file server has, without the names that are the
// sandbox's own.
func (r *running) mounts() string {
	r.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", r.gofer()))
	r.do("read the mounts of the file server", err)
	var list []string
	for line := range strings.Lines(string(data)) {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
		f := strings.Fields(line)
		list = append(list, f[4]+" "+f[5]+" "+f[slices.Index(f, "-")+1])
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// seen is what programs can see of how their sandbox is made.
const seen = "cat /proc/mounts /etc/hostname /etc/hosts /etc/resolv.conf; hostname; nproc; grep MemTotal /proc/meminfo; df / /tmp /dev/shm | cut -c1-40; ls -la / /home /run/cubby 2>&1 | cut -c1-30; id"

// TestASandboxOfASentryIsLikeOthers: on the host and inside, and all that it writes is
// on its own disk.
func TestASandboxOfASentryIsLikeOthers(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	k := r.awaitSentry()
	if found, err := r.d.List(r.ctx); err != nil || len(found) != 1 {
		t.Errorf("List = %v, %v, want the sandbox alone", found, err)
	}
	warm := r.another(testSpec(t, sandbox.GVisor))
	warm.becameOf(k)
	if want, got := r.mounts(), warm.mounts(); want != got {
		t.Errorf("the file server has\n%s\nand without a sentry\n%s", got, want)
	}
	want, _ := r.exec("root", seen)
	if got, _ := warm.exec("root", seen); want != got {
		t.Errorf("inside there is\n%s\nand without a sentry\n%s", got, want)
	}
	// What was the sentry's goes in the background, with the directories that it had.
	soon(t, "the sentry's directories go", func() bool { return r.d.sentries.boxes()[k.uid] == nil })
	if out, exit := warm.exec("root", "for d in /workspace /home/sandbox /tmp /root; do mkdir -p $d; echo mine > $d/file && cat $d/file || exit; done; echo 127.0.0.1 x >> /etc/hosts; ls /run/cubby"); exit.GetCode() != 0 || strings.Count(out, "mine") != 4 {
		t.Errorf("it cannot write: %s", out)
	}
	for _, role := range []driver.VolumeRole{driver.VolumeWorkspace, driver.VolumeHome} {
		if data, err := os.ReadFile(filepath.Join(driver.VolumeDir(warm.spec.Volumes, role), "file")); string(data) != "mine\n" {
			t.Errorf("in its %s on the host there is %q, %v", role, data, err)
		}
		if _, err := os.Stat(filepath.Join(driver.VolumeDir(r.spec.Volumes, role), "file")); err == nil {
			t.Errorf("in the %s of another is its file", role)
		}
	}
	if entries, err := os.ReadDir(r.d.box(k.uid).dir); err == nil {
		t.Errorf("left of the sentry: %v", entries)
	}
}

// TestSentriesOfWakesAndRestores: memories go on in sentries, and a sandbox that sleeps
// again and again.
func TestSentriesOfWakesAndRestores(t *testing.T) {
	r := start(t, runsc, pythonSpec(t))
	r.testify()
	for range 2 {
		r.do("Sleep", r.d.Sleep(r.ctx, r.h))
		k := r.awaitSentry()
		r.do("Wake", r.d.Wake(r.ctx, r.h))
		r.becameOf(k)
		r.whole("after a wake")
		r.reachesOut("after a wake")
	}
	name, files := r.keeps()
	k := r.awaitSentry()
	c := r.restored(name, files)
	c.becameOf(k)
	c.whole("in a copy")
	r.do("RemoveSnapshot", r.d.RemoveSnapshot(r.ctx, name))
	r.exec("root", "echo kept > /etc/kept")
	r.do("Stop", r.d.Stop(r.ctx, r.h, time.Second))
	r.awaitSentry()
	r.do("Start", r.d.Start(r.ctx, r.h)) // with the files of its root, which no sentry has
	if b := r.d.box(r.spec.UID); b.runtimeID() != b.runID() {
		t.Errorf("it began as %s, and not anew", b.runtimeID())
	}
	if out, _ := r.exec("root", "cat /etc/kept"); out != "kept\n" {
		t.Errorf("of its root there is %q", out)
	}
}

// TestDamagedMemoryAndASentry: a memory is read by nothing before it is verified.
func TestDamagedMemoryAndASentry(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.do("Sleep", r.d.Sleep(r.ctx, r.h))
	r.awaitSentry()
	damageByte(t, filepath.Join(r.d.box(r.spec.UID).memory().Image(), "checkpoint.img"))
	if err := r.d.Wake(r.ctx, r.h); !errors.Is(err, errs.NotFound) {
		t.Errorf("Wake = %v, want not found", err)
	}
	r.do("Start", r.d.Start(r.ctx, r.h))
	r.alive()
}

// haveRead is how many bytes this process has read.
func haveRead(t *testing.T) (n int64) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/io")
	if err == nil {
		_, err = fmt.Sscanf(string(data), "rchar: %d", &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMemoryIsVerifiedOnce: a memory was verified again when its sandbox began without the sentry that it
// was to go on in.
func TestMemoryIsVerifiedOnce(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	if out, _ := r.exec("root", "head -c 33554432 /dev/urandom > /dev/shm/large; wc -c < /dev/shm/large 2>&1"); out != "33554432\n" {
		t.Fatalf("the sandbox has %q bytes", out)
	}
	r.do("Sleep", r.d.Sleep(r.ctx, r.h))
	status, err := r.d.Inspect(r.ctx, r.h)
	r.do("Inspect", err)
	k := r.awaitSentry()
	r.do("RemoveAll", os.RemoveAll(r.d.box(k.uid).runtime()))
	before := haveRead(t)
	r.do("Wake", r.d.Wake(r.ctx, r.h))
	if read := haveRead(t) - before; read < status.MemoryOnDisk/2 || read > status.MemoryOnDisk*3/2 {
		t.Errorf("%d bytes were read to wake from a memory of %d", read, status.MemoryOnDisk)
	}
	if b := r.d.box(r.spec.UID); b.runtimeID() != b.runID() {
		t.Errorf("it woke as %s", b.runtimeID())
	}
	r.alive()
}

// TestSentriesOfOtherVolumes: files that are shared, and files that are only read.
func TestSentriesOfOtherVolumes(t *testing.T) {
	shared := t.TempDir()
	for _, name := range []string{"workspace", "outputs", "uploads"} {
		if err := os.Mkdir(filepath.Join(shared, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	spec := func() driver.Spec {
		s := testSpec(t, sandbox.GVisor)
		s.Volumes = driver.DiskVolumes(plainDisk(t), shared)
		return s
	}
	r := start(t, runsc, spec())
	k := r.awaitSentry()
	warm := r.another(spec())
	warm.becameOf(k)
	if want, got := r.mounts(), warm.mounts(); want != got {
		t.Errorf("the file server has\n%s\nand without a sentry\n%s", got, want)
	}
	const write = "for v in " + sandbox.OutputsDir + " " + sandbox.UploadsDir + "; do touch $v/file 2>/dev/null; echo $?; done"
	want, _ := r.exec("root", write)
	if got, _ := warm.exec("root", write); got != want {
		t.Errorf("writing ends with %q, and without a sentry with %q", got, want)
	}
}

// TestSentriesThatEnd: what kills a part of a sentry, or is in its way, keeps no sandbox
// from its start.
func TestSentriesThatEnd(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	signal := func(t *testing.T, k *sentry, name string, signal unix.Signal) {
		t.Helper()
		pids, err := r.d.cgroups.Group(k.uid).Procs()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, pid := range pids {
			data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if program, _, _ := strings.Cut(string(data), "\x00"); strings.HasSuffix(program, name) {
				found = true
				_ = unix.Kill(pid, signal)
			}
		}
		if !found {
			t.Fatalf("no %s among %v", name, pids)
		}
	}
	kill := func(name string) func(*testing.T, *sentry) {
		return func(t *testing.T, k *sentry) { t.Helper(); signal(t, k, name, unix.SIGKILL) }
	}
	for name, hurt := range map[string]func(*testing.T, *sentry){
		"kernel":      kill("runsc-sandbox"),
		"file server": kill("runsc-gofer"),
		"runtime":     kill("/runsc"),
		"kernel that stands still": func(t *testing.T, k *sentry) {
			t.Helper()
			signal(t, k, "runsc-sandbox", unix.SIGSTOP)
		},
		"notes": func(t *testing.T, k *sentry) {
			t.Helper()
			if err := os.RemoveAll(r.d.box(k.uid).runtime()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := r.awaitSentry()
			hurt(t, k)
			c := r.another(testSpec(t, sandbox.GVisor))
			if b := c.d.box(c.spec.UID); b.runtimeID() != b.runID() {
				t.Errorf("it began as %s", b.runtimeID())
			}
			c.alive()
			if pids := processesOf(t, k.uid); len(pids) > 0 {
				time.Sleep(time.Second) // they end by themselves
				if pids = processesOf(t, k.uid); len(pids) > 0 {
					t.Errorf("left of the sentry: processes %v", pids)
				}
			}
		})
	}
}

// TestSentriesOfAnotherShape: a sandbox that a sentry cannot become begins without, and
// the next of its kind has one.
func TestSentriesOfAnotherShape(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	k := r.awaitSentry()
	spec := testSpec(t, sandbox.GVisor)
	spec.Limits.MemoryBytes *= 2
	c := r.another(spec)
	if id := c.d.box(spec.UID).runtimeID(); id == string(k.uid) {
		t.Error("it has the limits of another")
	}
	spec.UID, spec.Volumes = sandbox.NewUID(), driver.DiskVolumes(plainDisk(t), "")
	r.another(spec) // the second in a row
	soon(t, "the one that nobody wants ends", k.hasEnded)
	next := r.awaitSentry()
	spec.UID, spec.Volumes = sandbox.NewUID(), driver.DiskVolumes(plainDisk(t), "")
	c = r.another(spec)
	c.becameOf(next)
	if out, _ := c.exec("root", "grep MemTotal /proc/meminfo"); !strings.Contains(out, strconv.Itoa(512<<10)) {
		t.Errorf("it sees %s", out)
	}
}

// TestSentriesAreGivenUp under pressure, and none is made for a while.
func TestSentriesAreGivenUp(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	k := r.awaitSentry()
	if n := r.d.GiveUp(); n != 1 {
		t.Errorf("GiveUp = %d, want the one that was ready", n)
	}
	if pids := processesOf(t, k.uid); len(pids) > 0 {
		t.Errorf("left of the sentry: processes %v", pids)
	}
	r.another(testSpec(t, sandbox.GVisor)).alive()
	time.Sleep(2 * refillAfter)
	if n := r.d.GiveUp(); n != 0 {
		t.Errorf("GiveUp = %d, right after one", n)
	}
}

// TestASentryHoldsNoDisk: what was mounted on the host as it was made can be unmounted
// for good.
func TestASentryHoldsNoDisk(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	first := r.awaitSentry()
	dir := t.TempDir()
	image, mnt := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"truncate", "-s", "4M", image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, mnt}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	r.another(testSpec(t, sandbox.GVisor)).becameOf(first)
	k := r.awaitSentry()
	if err := unix.Unmount(mnt, 0); err != nil {
		t.Fatal(err)
	}
	soon(t, "nobody holds a disk that is not mounted any more", func() bool {
		out, err := exec.Command("losetup", "-j", image).CombinedOutput()
		return err == nil && len(out) == 0
	})
	r.another(testSpec(t, sandbox.GVisor)).becameOf(k)
}

// TestKilledAsASentryWakes: a daemon that is killed at any moment of a wake in a sentry leaves
// a sandbox that sleeps or one that runs, and its successor knows which at once.
func TestKilledAsASentryWakes(t *testing.T) {
	needSentries(t)
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	const steps = 10
	for step := range steps {
		r.do("Sleep", r.d.Sleep(r.ctx, r.h))
		if err := r.d.Close(); err != nil {
			t.Fatal(err)
		}
		ahead := testSpec(t, sandbox.GVisor)
		after := 120 * time.Millisecond * time.Duration(step) / steps
		murder(t, victim{Config: r.m.cfg, Ahead: &ahead, Handle: r.h, Wake: true}, after)
		begun := time.Now()
		r.d = r.m.open(t)
		r.goesOn("wake in a sentry that was killed after "+after.String(), step+1)
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("killed after %v: the successor took %v to find out", after, took)
		}
		found, err := r.d.List(r.ctx)
		r.do("List", err)
		for _, f := range found {
			if f.UID != r.spec.UID {
				r.do("Sweep", r.d.Sweep(r.ctx, f.UID))
			}
		}
	}
}

// TestRuntimeKilledAsASentryWakes: what is killed as a sandbox wakes leaves one that sleeps
// or one that runs.
func TestRuntimeKilledAsASentryWakes(t *testing.T) {
	for _, command := range []string{"ready", "boot", "gofer"} {
		for step := range 3 {
			after := 10 * time.Millisecond * time.Duration(step)
			t.Run(fmt.Sprint(command, after), func(t *testing.T) {
				r := start(t, runsc, testSpec(t, sandbox.GVisor))
				r.counts()
				r.do("Sleep", r.d.Sleep(r.ctx, r.h))
				k := r.awaitSentry()
				done := make(chan error, 1)
				go func() { done <- r.d.Wake(r.ctx, r.h) }()
				time.Sleep(after)
				killed := killCommand(t, k.uid, command)
				err := <-done
				t.Logf("killed %v: %.200v", killed, err)
				if killed && err == nil && command != "ready" {
					return // it was awake, and is dead, or began without
				}
				r.goesOn("killed", 1)
			})
		}
	}
}

// TestKilledAsASentryBecomes: a daemon that is killed at any moment, with a sentry that is
// ready or becomes a sandbox's, leaves nothing that its successor does not find and
// remove, or finish; and the sentry ends by itself.
func TestKilledAsASentryBecomes(t *testing.T) {
	needSentries(t)
	const steps = 8
	for step := range steps {
		m := newMachine(t, runsc)
		spec := testSpec(t, sandbox.GVisor)
		ahead := testSpec(t, sandbox.GVisor)
		reached, h := murder(t, victim{Config: m.cfg, Ahead: &ahead, Spec: spec, Stop: step%2 == 1}, 100*time.Millisecond*time.Duration(step)/steps)
		succeed(t, m, reached, h, step%4 < 2, spec.UID, ahead.UID)
	}
}
