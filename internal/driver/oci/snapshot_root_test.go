//go:build root

package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// copyVolumes takes the files of a sandbox, each volume in a directory of its role.
func copyVolumes(spec driver.Spec, to string) error {
	for _, v := range spec.Volumes {
		if out, err := exec.Command("cp", "-a", v.Dir+"/.", filepath.Join(to, string(v.Role))).CombinedOutput(); err != nil {
			return fmt.Errorf("cp: %w: %s", err, out)
		}
	}
	return nil
}

// keeps takes a snapshot and returns its name and where its files are.
func (r *running) keeps() (name sandbox.UID, files string) {
	r.t.Helper()
	name, files = sandbox.NewUID(), r.t.TempDir()
	_, err := r.d.Snapshot(r.ctx, r.h, name, func(context.Context) error { return copyVolumes(r.spec, files) })
	r.do("Snapshot", err)
	r.t.Cleanup(func() {
		if err := r.d.RemoveSnapshot(context.Background(), name); err != nil {
			r.t.Errorf("RemoveSnapshot: %v", err)
		}
	})
	return name, files
}

// cloneSpec is a spec of a sandbox that begins with the files of a snapshot.
func (r *running) cloneSpec(files string) driver.Spec {
	r.t.Helper()
	spec := r.spec
	spec.UID, spec.Volumes = sandbox.NewUID(), driver.DiskVolumes(plainDisk(r.t), "")
	for _, v := range spec.Volumes {
		if out, err := exec.Command("cp", "-a", filepath.Join(files, string(v.Role))+"/.", v.Dir).CombinedOutput(); err != nil {
			r.t.Fatalf("cp: %v: %s", err, out)
		}
	}
	return spec
}

// clone is a sandbox of the test that was restored.
func (r *running) clone(spec driver.Spec, h driver.Handle) *running {
	c := *r
	c.spec, c.h = spec, h
	return &c
}

// Ten sandboxes at once that begin as one did not know of: each has its own files,
// memory, name and ways out.
func TestTenClonesAtOnce(t *testing.T) {
	r := start(t, runsc, pythonSpec(t))
	r.testify()
	r.exec("sandbox", `setsid python3 -c 'import os, time
x = os.urandom(50 << 20)
n = 0
open("ready50", "w")
while True:
    time.sleep(0.02)
    if os.path.exists("ask50"):
        os.remove("ask50"); n += 1
        open("new50", "w").write("%d %d" % (n, hash(x) and len(x)))
        os.rename("new50", "answer50")' </dev/null >/dev/null 2>&1 & until [ -e ready50 ]; do sleep 0.1; done`)
	heap := func(r *running, who string, want int) {
		t.Helper()
		out, _ := r.exec("sandbox", "rm -f answer50; touch ask50; until [ -e answer50 ]; do sleep 0.02; done; cat answer50")
		if out != fmt.Sprintf("%d %d", want, 50<<20) {
			t.Errorf("%s: its heap says %q, want that it was asked %d times", who, out, want)
		}
	}
	heap(r, "the parent", 1)
	name, files := r.keeps()
	r.whole("the parent after a snapshot")
	heap(r, "the parent", 2)

	const many = 10
	clones, failed := make([]*running, many), make(chan error, many)
	began := time.Now()
	for i := range many {
		spec := r.cloneSpec(files)
		t.Cleanup(func() {
			if err := r.d.Sweep(context.Background(), spec.UID); err != nil {
				t.Errorf("Sweep: %v", err)
			}
		})
		go func() {
			h, err := r.d.Restore(r.ctx, name, spec)
			clones[i] = r.clone(spec, h)
			failed <- err
		}()
	}
	for range many {
		r.do("Restore", <-failed)
	}
	t.Logf("%d sandboxes in %v", many, time.Since(began))
	for i, c := range clones {
		who := fmt.Sprintf("clone %d", i)
		is, err := c.d.Identify(c.ctx, c.h, driver.Identity{ID: who[:5] + who[6:], Env: c.spec.Identity.Env})
		c.do("Identify", err)
		c.h = is.Handle
		c.exec("root", fmt.Sprintf("echo %d > /workspace/mine; echo %d > /etc/mine; echo %d > /tmp/mine", i, i, i))
	}
	for i, c := range clones {
		who := fmt.Sprintf("clone %d", i)
		heap(c, who, 2)
		if out, _ := c.exec("root", "cat /workspace/mine /etc/mine /tmp/mine; hostname"); out != fmt.Sprintf("%d\n%d\n%d\nclone%d\n", i, i, i, i) {
			t.Errorf("%s has of its own %q", who, out)
		}
	}
	for _, c := range clones[:2] {
		c.whole("a clone")
		c.reachesOut("a clone")
	}
	r.whole("the parent of ten")
	r.reachesOut("the parent of ten")
	heap(r, "the parent of ten", 3)
	if out, _ := r.exec("root", "ls /workspace/mine /etc/mine /tmp/mine 2>/dev/null; hostname"); out != "box\n" {
		t.Errorf("the parent has of its clones %q", out)
	}
}

// A snapshot of which a byte of any file has changed is never restored.
func TestDamagedSnapshot(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	name, files := r.keeps()
	if info, err := os.Stat(r.d.snapshotsDir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("snapshots are %v, %v; want them for root alone", info, err)
	}
	var paths []string
	if err := filepath.WalkDir(r.d.snapshotDir(name), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(paths) < 9 { // manifest, note, program, three of the memory, four of the root
		t.Errorf("a snapshot has the files %v", paths)
	}
	spec := r.cloneSpec(files)
	for _, path := range paths {
		if filepath.Base(path) == runsc { // which others have too
			data := mustRead(t, path)
			r.do("copy the program", errors.Join(os.Remove(path), os.WriteFile(path, data, 0o700)))
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			continue // gVisor leaves some empty
		}
		damageByte(t, path)
		if _, err := r.d.Restore(r.ctx, name, spec); !errors.Is(err, errs.NotFound) {
			t.Errorf("Restore with a byte of %s damaged = %v, want not found", filepath.Base(path), err)
		}
		damageByte(t, path) // which heals it
	}
	h, err := r.d.Restore(r.ctx, name, spec)
	r.do("Restore of what is whole again", err)
	r.do("Destroy", r.d.Destroy(r.ctx, h))
}

// A disk that becomes full while a snapshot is written leaves the sandbox as it
// was, and no snapshot.
func TestDiskFillsDuringASnapshot(t *testing.T) {
	r := startOnSmallDisk(t)
	name := sandbox.NewUID()
	r.fillsWhile("snapshot", r.d.snapshotOf(name).HalfImage(), func() error {
		_, err := r.d.Snapshot(r.ctx, r.h, name, func(context.Context) error { return nil })
		if left, listErr := r.d.Snapshots(r.ctx); err != nil && (listErr != nil || len(left) > 0) {
			t.Errorf("a snapshot that failed leaves %v, %v", left, listErr)
		}
		return errors.Join(err, r.d.RemoveSnapshot(r.ctx, name))
	})
}

// A daemon that is killed at any moment of a snapshot leaves a sandbox that runs,
// and a snapshot that is whole or none.
func TestKilledInSnapshot(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	const steps = 12
	for step := range steps {
		name, files := sandbox.NewUID(), t.TempDir()
		for _, volume := range r.spec.Volumes { // it may not come so far
			r.do("Mkdir", os.Mkdir(filepath.Join(files, string(volume.Role)), 0o755))
		}
		v := victim{Config: r.m.cfg, Spec: r.spec, Handle: r.h, Snapshot: name, Files: files}
		v.Config.Log = nil
		if err := r.d.Close(); err != nil {
			t.Fatal(err)
		}
		after := 600 * time.Millisecond * time.Duration(step) / steps
		reached, _ := murder(t, v, after)
		r.d = r.m.open(t)
		when := "snapshot that was killed after " + after.String()
		r.goesOn(when, 2*step+1)
		left, err := r.d.Snapshots(r.ctx)
		r.do("Snapshots", err)
		spec := r.cloneSpec(files)
		h, err := r.d.Restore(r.ctx, name, spec)
		t.Logf("%s: it had %q, and restoring it ends with %v", when, reached, err)
		switch {
		case err == nil:
			r.clone(spec, h).goesOn(when+" and restored", 2*step+1)
			r.do("Destroy", r.d.Destroy(r.ctx, h))
		case !errors.Is(err, errs.NotFound) || reached == "kept":
			t.Errorf("%s: Restore = %v", when, err)
		}
		if err == nil && len(left) != 1 {
			t.Errorf("%s: Snapshots = %v, want the one that can be restored", when, left)
		}
		r.do("RemoveSnapshot", r.d.RemoveSnapshot(r.ctx, name))
		if left, err := r.d.Snapshots(r.ctx); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", when, left, err)
		}
		r.goesOn(when, 2*step+2)
	}
}

// A daemon that is killed at any moment of a restore leaves what a listing finds,
// and the snapshot as it was.
func TestKilledInRestore(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	name, files := r.keeps()
	const steps = 12
	for step := range steps {
		spec := r.cloneSpec(files)
		v := victim{Config: r.m.cfg, Spec: spec, Snapshot: name, Restore: true}
		v.Config.Log = nil
		if err := r.d.Close(); err != nil {
			t.Fatal(err)
		}
		after := 400 * time.Millisecond * time.Duration(step) / steps
		reached, _ := murder(t, v, after)
		r.d = r.m.open(t)
		when := "restore that was killed after " + after.String()
		r.do("Adopt", r.d.Adopt(r.ctx, r.h))
		found, err := r.d.List(r.ctx)
		r.do("List", err)
		t.Logf("%s: it had %.10q, and there are %+v", when, reached, found)
		if h, ok := strings.CutPrefix(reached, "restored "); ok {
			c := r.clone(spec, driver.Handle(h))
			c.goesOn(when, 1)
		}
		r.do("Sweep", r.d.Sweep(r.ctx, spec.UID))
		for _, pid := range processesOf(t, spec.UID) {
			t.Errorf("%s: process %s is left", when, pid)
		}
		h, err := r.d.Restore(r.ctx, name, spec)
		r.do("Restore once more", err)
		r.clone(spec, h).goesOn(when+" and again", 1)
		r.do("Destroy", r.d.Destroy(r.ctx, h))
	}
	r.goesOn("the parent", 1)
}

// The runtime that is killed in the middle of its part of a snapshot leaves a
// sandbox that runs and no snapshot, and in that of a restore no sandbox.
func TestRuntimeKilledInSnapshotAndRestore(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	name, files := r.keeps()
	count := 0
	for _, tt := range []struct{ act, command string }{
		{"snapshot", "fscheckpoint"}, {"snapshot", "checkpoint"}, {"restore", "restore"}, {"restore", "boot"},
	} {
		for attempt := 1; ; attempt++ {
			fresh, spec, uid := sandbox.NewUID(), r.cloneSpec(files), r.spec.UID
			act := func() error {
				_, err := r.d.Snapshot(r.ctx, r.h, fresh, func(context.Context) error { return nil })
				return err
			}
			if tt.act == "restore" {
				uid = spec.UID
				act = func() error { _, err := r.d.Restore(r.ctx, name, spec); return err }
			}
			killed, err := r.killDuring(uid, tt.command, act)
			count++
			r.goesOn(tt.command+" that was killed", count)
			left, listErr := r.d.Snapshots(r.ctx)
			if want := 1; listErr != nil || err != nil && len(left) != want {
				t.Errorf("%s that was killed leaves the snapshots %v, %v", tt.command, left, listErr)
			}
			if found, listErr := r.d.List(r.ctx); listErr != nil || err != nil && len(found) != 1 {
				t.Errorf("%s that was killed leaves the sandboxes %v, %v", tt.command, found, listErr)
			}
			r.do("RemoveSnapshot", r.d.RemoveSnapshot(r.ctx, fresh))
			r.do("Sweep", r.d.Sweep(r.ctx, spec.UID))
			if killed && err != nil {
				break
			}
			// It came and went unseen, or had done its part.
			if attempt == 30 {
				t.Fatalf("%s: %s was never killed in time", tt.act, tt.command)
			}
		}
	}
}

// What a snapshot holds of a sandbox that has more on its root filesystem and in
// /tmp than in its memory is all in it.
func TestSnapshotOfSystemFiles(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	sums := "md5sum /root/a /tmp/b /opt/c /workspace/d | md5sum"
	want, _ := r.exec("root", "mkdir -p /opt; for f in /root/a /tmp/b /opt/c /workspace/d; do head -c 10000000 /dev/urandom > $f; done; rm /etc/group; "+sums)
	name, files := r.keeps()
	r.exec("root", "rm /root/a /tmp/b /opt/c")
	spec := r.cloneSpec(files)
	h, err := r.d.Restore(r.ctx, name, spec)
	r.do("Restore", err)
	defer func() { r.do("Destroy", r.d.Destroy(r.ctx, h)) }()
	clone := r.clone(spec, h)
	if got, _ := clone.exec("root", sums); got != want {
		t.Errorf("the files have the sum %q, want %q", got, want)
	}
	if out, _, err := drivertest.Exec(r.ctx, r.d, h, "root", "test -e /etc/group || echo gone"); err != nil || out != "gone\n" {
		t.Errorf("a file that was removed: %q, %v", out, err)
	}
}
