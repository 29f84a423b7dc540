//go:build root

package oci

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

//go:embed testdata/witness.py
var witness string

// pythonSpec is testSpec with the image base, which has Python.
func pythonSpec(t testing.TB) driver.Spec { return imageSpec(t, "base") }

// imageSpec is testSpec with an image of cubby's.
func imageSpec(t testing.TB, name string) driver.Spec {
	t.Helper()
	images := os.Getenv("CUBBY_TEST_IMAGE_DIR")
	data, err := os.ReadFile(filepath.Join(images, "names.json"))
	if err != nil {
		t.Fatalf("%v: run make test, or build the images and name their directory by CUBBY_TEST_IMAGE_DIR", err)
	}
	var index struct{ Names map[string]string }
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	spec := testSpec(t, sandbox.GVisor)
	spec.Limits.MemoryBytes = 1 << 30
	spec.Image = driver.Image{Dir: filepath.Join(images, index.Names[name], "rootfs")}
	return spec
}

// do fails the test with what a driver answers.
func (r *running) do(what string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

func (r *running) phase(want driver.Phase) {
	r.t.Helper()
	if status, err := r.d.Inspect(r.ctx, r.h); err != nil || status.Phase != want {
		r.t.Fatalf("Inspect = %+v, %v; want %s", status, err, want)
	}
}

// testify starts a program with something of every kind that a sleep must keep;
// what it says after a wake is "whole", or what is missing.
func (r *running) testify() {
	r.t.Helper()
	dir := driver.VolumeDir(r.spec.Volumes, driver.VolumeWorkspace)
	r.do("write the witness", os.WriteFile(filepath.Join(dir, "witness.py"), []byte(witness), 0o644))
	if out, exit := r.exec("sandbox", "setsid python3 witness.py serve </dev/null >witness.log 2>&1 & until [ -e /workspace/ready ]; do sleep 0.1; done"); exit.GetCode() != 0 {
		r.t.Fatalf("the witness does not begin: %s", out)
	}
	r.whole("before any sleep")
}

func (r *running) whole(when string) {
	r.t.Helper()
	if out, _ := r.exec("sandbox", "python3 witness.py ask || cat witness.log"); out != "whole\n" {
		r.t.Fatalf("%s: %s", when, out)
	}
}

func TestSleepKeepsAll(t *testing.T) {
	r := start(t, runsc, pythonSpec(t))
	r.testify()
	r.reachesOut("before any sleep")
	r.exec("sandbox", `setsid python3 -c 'import socket; s = socket.create_connection(("127.0.0.1", 3128)); s.send(b"x"); print(s.recv(1)); open("broke", "w")' </dev/null >/dev/null 2>&1 &`)
	open, _, err := r.d.AcceptEgress(r.ctx, r.h)
	r.do("AcceptEgress", err)
	defer open.Close()
	dialled, err := r.d.DialGuest(r.ctx, r.h)
	r.do("DialGuest", err)
	defer dialled.Close()
	for _, when := range []string{"after a wake", "after another wake"} {
		r.do("Sleep", r.d.Sleep(r.ctx, r.h))
		r.phase(driver.PhaseAsleep)
		for _, pid := range processesOf(t, r.spec.UID) {
			t.Errorf("process %s runs of a sandbox that sleeps", pid)
		}
		if info, err := os.Stat(r.d.box(r.spec.UID).path("memory")); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the memory is %v, %v; want it for root alone", info, err)
		}
		time.Sleep(2 * time.Second) // which the clock on the wall must not miss
		r.do("Wake", r.d.Wake(r.ctx, r.h))
		r.phase(driver.PhaseRunning)
		r.whole(when)
		r.reachesOut(when)
		out, _ := r.exec("sandbox", "date +%s; hostname; cat /etc/hostname; nproc; grep MemTotal /proc/meminfo")
		said := strings.Fields(out)
		at, err := strconv.ParseInt(said[0], 10, 64)
		if off := time.Since(time.Unix(at, 0)); err != nil || off > 2*time.Second || off < -time.Second {
			t.Errorf("%s: its clock says %s: %s off", when, said[0], off)
		}
		if len(said) < 3 || said[1] != "box" || said[2] != "box" {
			t.Errorf("%s: it says of itself: %s", when, out)
		}
		if _, err := os.Stat(r.d.box(r.spec.UID).path("memory")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the memory is still there: %v", when, err)
		}
		if max, err := os.ReadFile(filepath.Join(r.cgroupDir("pids"), "pids.max")); err == nil && strings.TrimSpace(string(max)) != itoa(int(gvisorTasks(r.spec.Limits.PIDs))) {
			t.Errorf("%s: pids.max is %s", when, max)
		}
	}
	r.exec("sandbox", "until [ -e broke ]; do sleep 0.05; done")
	r.h = asVersion1(t, r.h) // sleeps by the words of an earlier version
	r.do("Sleep", r.d.Sleep(r.ctx, r.h))
	r.d = r.m.open(t)
	r.do("Wake", r.d.Wake(r.ctx, r.h))
	r.whole("after a sleep by an earlier handle")
}

// cgroupDir is the sandbox's directory of a controller in version 1.
func (r *running) cgroupDir(controller string) string {
	return filepath.Join(r.d.cgroups.V1[controller], r.d.cgroups.Group(r.spec.UID).Path)
}

// reachesOut proves the ways out: the proxy's port, and the redirect.
func (r *running) reachesOut(when string) {
	r.t.Helper()
	for _, way := range []struct {
		address string
		door    sandbox.Door
	}{{"127.0.0.1 3128", sandbox.DoorProxy}, {"203.0.113.9 443", sandbox.DoorConnect}} {
		served := make(chan error, 1)
		go func() {
			conn, door, err := r.d.AcceptEgress(r.ctx, r.h)
			if err == nil {
				defer conn.Close()
				if door != way.door {
					err = errors.New("it came by the door " + string(door))
				}
				_, writeErr := io.WriteString(conn, "hello")
				err = errors.Join(err, writeErr)
			}
			served <- err
		}()
		host, port, _ := strings.Cut(way.address, " ")
		r.exec("sandbox", `python3 -c 'import socket; s = socket.create_connection(("`+host+`", `+port+`), 10); s.send(b"x"); s.recv(5)' || true`)
		if err := <-served; err != nil {
			r.t.Errorf("%s: the way out by %s: %v", when, way.address, err)
		}
	}
}

// damageByte changes the byte in the middle of a file.
func damageByte(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{b[0] ^ 0x40}, info.Size()/2); err != nil {
		t.Fatal(err)
	}
}

// Whatever happens to a memory, the sandbox can begin with its files.
func TestDamagedMemory(t *testing.T) {
	damages := map[string]func(t *testing.T, path string, size int64) error{
		"a byte":  func(t *testing.T, path string, _ int64) error { damageByte(t, path); return nil },
		"the end": func(t *testing.T, path string, size int64) error { return os.Truncate(path, size-1) },
		"all":     func(t *testing.T, path string, _ int64) error { return os.Remove(path) },
	}
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	if out, exit := r.exec("root", "echo one > /workspace/a && echo two > /etc/b"); exit.GetCode() != 0 {
		t.Fatalf("%v: %s", exit, out)
	}
	files := 0
	for index := 0; ; index++ {
		before := files
		for name, damage := range damages {
			r.do("Sleep", r.d.Sleep(r.ctx, r.h))
			b := r.d.box(r.spec.UID)
			var paths []string
			if err := filepath.WalkDir(b.path("memory"), func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() {
					paths = append(paths, path)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if index >= len(paths) {
				break
			}
			files++
			path := paths[index]
			if filepath.Base(path) == runsc { // which others have too
				data := mustRead(t, path)
				r.do("copy the program", errors.Join(os.Remove(path), os.WriteFile(path, data, 0o700)))
			}
			info, err := os.Stat(path)
			if err != nil || info.Size() == 0 {
				t.Fatalf("%s: %v, %v", path, info, err)
			}
			if err := damage(t, path, info.Size()); err != nil {
				t.Fatal(err)
			}
			if err := r.d.Wake(r.ctx, r.h); !errors.Is(err, errs.NotFound) {
				t.Errorf("Wake with %s of %s damaged = %v, want not found", name, filepath.Base(path), err)
			}
			r.do("Start", r.d.Start(r.ctx, r.h))
			r.phase(driver.PhaseRunning)
			if out, _ := r.exec("root", "cat /workspace/a /etc/b"); out != "one\ntwo\n" {
				t.Errorf("files after a cold start: %q", out)
			}
		}
		if files == before {
			break
		}
	}
	if files < 3*len(damages) {
		t.Errorf("only %d files were damaged", files)
	}
}

// A host without room for the memory leaves the sandbox as it was.
func TestSleepWithoutRoom(t *testing.T) {
	m := newMachine(t, runsc)
	if err := os.Mkdir(m.cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("small", m.cfg.StateDir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m.cfg.StateDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d, spec := m.open(t), testSpec(t, sandbox.GVisor)
	h, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Destroy(context.Background(), h); err != nil {
			t.Error(err)
		}
	}()
	if err := d.Start(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if err := d.Sleep(t.Context(), h); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Sleep = %v, want exhausted", err)
	}
	if out, _, err := drivertest.Exec(t.Context(), d, h, "sandbox", "echo on"); err != nil || out != "on\n" {
		t.Errorf("after that: %q, %v", out, err)
	}
}

// A disk that becomes full while the memory is written leaves the sandbox as it
// was, too.
func TestDiskFillsWhileFallingAsleep(t *testing.T) {
	r := startOnSmallDisk(t)
	r.fillsWhile("sleep", r.d.box(r.spec.UID).memory().HalfImage(), func() error { return r.d.Sleep(r.ctx, r.h) })
}

// startOnSmallDisk runs a sandbox that counts, with some memory, whose notes are on
// a disk of 2 GiB.
func startOnSmallDisk(t *testing.T) *running {
	t.Helper()
	m := newMachine(t, runsc)
	if err := os.Mkdir(m.cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	mountDisk(t, filepath.Join(t.TempDir(), "disk"), m.cfg.StateDir)
	spec := testSpec(t, sandbox.GVisor)
	spec.Limits.DiskBytes = 64 << 20
	r := startOn(t, m, spec)
	r.counts()
	r.exec("sandbox", "head -c 100000000 /dev/urandom > /dev/shm/ballast")
	return r
}

// mountDisk mounts an empty file system of 2 GiB, in a file, until the test ends.
func mountDisk(t testing.TB, file, dir string) {
	t.Helper()
	for _, command := range []string{
		"truncate -s 2G " + file, "mkfs.ext4 -q -m 0 " + file, "mount -o loop " + file + " " + dir, "rmdir " + filepath.Join(dir, "lost+found"),
	} {
		args := strings.Fields(command)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// fillsWhile does an act over and over, whose disk becomes full when half an image
// is there, until it has failed of that once.
func (r *running) fillsWhile(what, half string, act func() error) {
	t := r.t
	t.Helper()
	filler := filepath.Join(r.m.cfg.StateDir, "filler")
	for attempt := 1; ; attempt++ {
		done := make(chan error, 1)
		go func() { done <- act() }()
		err := errors.New("under way")
		for full := false; err != nil && err.Error() == "under way"; {
			select {
			case err = <-done:
			default:
				if _, statErr := os.Stat(filepath.Join(half, "checkpoint.img")); statErr == nil && !full {
					full = true
					fill(t, filler)
				}
			}
		}
		if removeErr := os.Remove(filler); removeErr != nil {
			t.Logf("%s: %v", what, err)
			t.Fatal(removeErr)
		}
		if err != nil && !errors.Is(err, errs.Exhausted) {
			t.Fatalf("%s = %v, want exhausted", what, err)
		}
		if err != nil {
			t.Logf("%s: %v", what, err)
			r.phase(driver.PhaseRunning)
		}
		r.goesOn(what+" on a disk that became full", attempt)
		if err != nil {
			return
		}
		if attempt == 10 {
			t.Fatal("the disk never became full in time")
		}
	}
}

// fill takes what is left of a disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(0)
	for size := int64(1 << 30); size >= 1<<20; {
		if unix.Fallocate(int(f.Fd()), 0, at, size) == nil {
			at += size
		} else {
			size /= 2
		}
	}
}

// A memory is woken by a daemon that would start the sandbox otherwise: one that may
// have fewer files open, or of a version with another specification.
func TestWakeWithAnotherSpecification(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.do("Sleep", r.d.Sleep(r.ctx, r.h))
	r.d.nofile = 2048
	r.do("Wake", r.d.Wake(r.ctx, r.h))
	r.phase(driver.PhaseRunning)
	r.alive()
}
