//go:build root

package oci

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// bench is a sandbox that is measured, and what came of that.
type bench struct {
	b    *testing.B
	ctx  context.Context
	d    *Driver
	spec driver.Spec
	h    driver.Handle
	took map[string][]time.Duration
}

// benchPython starts a sandbox with a Python that has some memory.
func benchPython(b *testing.B, megabytes int) *bench {
	m := newMachine(b, runsc)
	w := &bench{b: b, ctx: context.Background(), d: m.open(b), spec: pythonSpec(b), took: make(map[string][]time.Duration)}
	// Of its own, as sandboxes have it: a sync of the host's would be one of all that
	// the host does.
	disk := b.TempDir()
	mountDisk(b, filepath.Join(b.TempDir(), "disk"), disk)
	w.spec.Volumes = driver.DiskVolumes(plainDiskIn(b, disk), "")
	var err error
	w.h, err = w.d.Create(w.ctx, w.spec)
	w.must(err)
	b.Cleanup(func() { w.must(w.d.Destroy(w.ctx, w.h)) })
	w.must(w.d.Start(w.ctx, w.h))
	w.run(w.h, fmt.Sprintf(`setsid python3 -c 'import os, time; x = os.urandom(%d << 20); open("ready", "w"); time.sleep(10000)' </dev/null >/dev/null 2>&1 & until [ -e ready ]; do sleep 0.1; done`, megabytes))
	return w
}

func (w *bench) must(err error) {
	w.b.Helper()
	if err != nil {
		w.b.Fatal(err)
	}
}

func (w *bench) run(h driver.Handle, script string) {
	w.b.Helper()
	_, _, err := drivertest.Exec(w.ctx, w.d, h, "sandbox", script)
	w.must(err)
}

func (w *bench) measure(name string, f func()) {
	began := time.Now()
	f()
	w.took[name] = append(w.took[name], time.Since(began))
}

// report gives the medians, and the ratios of acts to their floors.
func (w *bench) report(ratios ...[2]string) {
	medians := make(map[string]float64)
	for name, all := range w.took {
		slices.Sort(all)
		medians[name] = float64(all[len(all)/2].Microseconds()) / 1000
		w.b.ReportMetric(medians[name], name+"-ms")
	}
	for _, r := range ratios {
		w.b.ReportMetric(medians[r[0]]/medians[r[1]], r[0]+"/"+r[1])
	}
}

// floorRun is a sandbox that is about to be restored by the runtime's own command.
type floorRun struct {
	n      note
	rec    record
	bundle bundle
	place  *place
}

func (w *bench) ready(n note, secret string) floorRun {
	w.b.Helper()
	box := w.d.box(n.UID)
	w.must(box.lay(n, &w.d.authorities))
	f := floorRun{n: n, rec: record{Secret: secret, HostID: w.d.hostID}, bundle: bundle{note: n, box: box, cgroups: w.d.cgroups, nofile: w.d.nofile, oom: w.d.oom, root: n.Rootfs}}
	w.must(box.setRecord(f.rec))
	var err error
	f.place, err = w.d.takePlace(n)
	w.must(err)
	w.must(f.place.taken())
	w.must(f.bundle.layGVisor())
	return f
}

// restore is the floor: the runtime's own command, and nothing else.
func (w *bench) restore(f floorRun, from memory.Memory) {
	args := append(f.bundle.runscFlags(), "restore", "--detach", "--bundle="+f.bundle.box.bundle(), "--pid-file="+f.bundle.box.pidFile(),
		"--image-path="+from.Image(), string(f.n.UID))
	w.must(w.d.execute(w.ctx, exec.Command(from.Program(), args...), f.bundle, nil, nil, f.place))
}

// take makes what the floor restored a run of the driver's.
func (w *bench) take(f floorRun) {
	w.b.Helper()
	f.place.leave()
	f.rec.Waking = true // so that its process is looked for
	f.rec = w.d.launched(f.bundle.box, f.rec)
	f.rec.Waking = false
	w.must(f.bundle.box.setRecord(f.rec))
	h, err := places{}.handle(f.n)
	w.must(err)
	w.must(w.d.Adopt(w.ctx, h))
	r, err := w.d.held(h)
	w.must(err)
	w.must(w.d.greet(w.ctx, r))
}

// BenchmarkSleep measures a sleep, and a wake until a command answers, beside
// what gVisor's own checkpoint with an fsync of what it wrote, and its restore,
// take of the same sandbox.
func BenchmarkSleep(b *testing.B) {
	for _, megabytes := range []int{10, 200} {
		b.Run(fmt.Sprintf("python%dMB", megabytes), func(b *testing.B) {
			w := benchPython(b, megabytes)
			d, ctx, h := w.d, w.ctx, w.h
			for b.Loop() {
				w.measure("sleep", func() { w.must(d.Sleep(ctx, h)) })
				w.measure("wake", func() { w.must(d.Wake(ctx, h)); w.run(h, "true") })

				n, err := places{}.parse(h)
				w.must(err)
				r, err := d.held(h)
				w.must(err)
				box := d.box(n.UID)
				rec, _, err := box.record()
				w.must(err)
				w.must(r.line().Sever())
				kept := box.memory()
				w.must(kept.Begin(r.process.Program()))
				w.measure("checkpoint", func() {
					w.must(d.command(ctx, n, r.process, "checkpoint", "--image-path="+kept.HalfImage()))
					w.must(memory.SyncTree(kept.HalfImage()))
				})
				w.must(kept.Seal(memory.Content{Secret: rec.Secret}, func() error { return nil }))
				w.must(d.clear(ctx, n.UID))
				f := w.ready(n, rec.Secret)
				w.measure("restore", func() { w.restore(f, kept) })
				w.must(kept.Forget())
				w.take(f)
			}
			w.report([2]string{"sleep", "checkpoint"}, [2]string{"wake", "restore"})
		})
	}
}

// snapshot keeps the sandbox and returns what it kept.
func (w *bench) snapshot() (sandbox.UID, memory.Memory, memory.Content) {
	w.b.Helper()
	name := sandbox.NewUID()
	_, err := w.d.Snapshot(w.ctx, w.h, name, func(context.Context) error { return nil })
	w.must(err)
	kept := w.d.snapshotOf(name)
	says, err := kept.Open()
	w.must(err)
	return name, kept, says
}

// specs are specs of sandboxes with the files of the one that is measured.
func (w *bench) specs(count int) []driver.Spec {
	w.b.Helper()
	all := make([]driver.Spec, count)
	for i := range all {
		all[i] = w.spec
		all[i].UID, all[i].Volumes = sandbox.NewUID(), driver.DiskVolumes(plainDisk(w.b), "")
		for _, v := range w.spec.Volumes {
			if out, err := exec.Command("cp", "-a", v.Dir+"/.", driver.VolumeDir(all[i].Volumes, v.Role)).CombinedOutput(); err != nil {
				w.b.Fatalf("cp: %v: %s", err, out)
			}
		}
	}
	return all
}

// twoAtOnce does an act for each number, by two at once.
func twoAtOnce(count int, f func(i int)) {
	next, done := make(chan int), make(chan struct{})
	for range 2 {
		go func() {
			for i := range next {
				f(i)
			}
			done <- struct{}{}
		}()
	}
	for i := range count {
		next <- i
	}
	close(next)
	<-done
	<-done
}

// BenchmarkFork measures a snapshot of a running sandbox and 20 sandboxes out of
// it, two at once, beside as many of gVisor's own restores, two at once.
func BenchmarkFork(b *testing.B) {
	const count = 20
	w := benchPython(b, 10)
	sweep := func(specs []driver.Spec) {
		for _, spec := range specs {
			w.must(w.d.Sweep(w.ctx, spec.UID))
		}
	}
	for b.Loop() {
		specs := w.specs(count)
		w.measure("fork", func() {
			name := sandbox.NewUID()
			_, err := w.d.Snapshot(w.ctx, w.h, name, func(context.Context) error { return nil })
			w.must(err)
			twoAtOnce(count, func(i int) {
				if _, err := w.d.Restore(w.ctx, name, specs[i]); err != nil {
					b.Error(err)
				}
			})
			w.must(w.d.RemoveSnapshot(w.ctx, name))
		})
		sweep(specs)

		name, kept, says := w.snapshot()
		specs = w.specs(count)
		runs := make([]floorRun, count)
		for i, spec := range specs {
			n, err := places{}.parse(says.Note)
			w.must(err)
			w.must(n.become(spec))
			runs[i] = w.ready(n, says.Secret)
		}
		w.measure("restores", func() { twoAtOnce(count, func(i int) { w.restore(runs[i], kept) }) })
		for _, f := range runs {
			f.place.leave()
		}
		sweep(specs)
		w.must(w.d.RemoveSnapshot(w.ctx, name))
	}
	w.report([2]string{"fork", "restores"})
}

// BenchmarkRollback measures how long a sandbox takes back to a snapshot of itself,
// beside gVisor's own delete and restore.
func BenchmarkRollback(b *testing.B) {
	w := benchPython(b, 10)
	name, kept, says := w.snapshot()
	b.Cleanup(func() { w.must(w.d.RemoveSnapshot(w.ctx, name)) })
	for b.Loop() {
		w.measure("rollback", func() {
			w.must(w.d.Destroy(w.ctx, w.h))
			h, err := w.d.Restore(w.ctx, name, w.spec)
			w.must(err)
			w.h = h
		})
		n, err := places{}.parse(w.h)
		w.must(err)
		r, err := w.d.held(w.h)
		w.must(err)
		w.must(r.line().Sever())
		w.measure("delete", func() {
			w.must(w.d.command(w.ctx, n, r.process, "delete", "--force"))
		})
		w.must(w.d.clear(w.ctx, n.UID))
		f := w.ready(n, says.Secret)
		w.measure("restore", func() { w.restore(f, kept) })
		w.take(f)
		w.took["delete+restore"] = append(w.took["delete+restore"], last(w.took["delete"])+last(w.took["restore"]))
	}
	w.report([2]string{"rollback", "delete+restore"})
}

func last(all []time.Duration) time.Duration { return all[len(all)-1] }
