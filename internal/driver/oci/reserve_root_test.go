//go:build root

package oci

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestReserveBoundsMemories: what the operator keeps free of the disk was not asked,
// and it was 5 %, at least 1 GiB.
func TestReserveBoundsMemories(t *testing.T) {
	m := newMachine(t, runsc)
	if err := os.Mkdir(m.cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("notes", m.cfg.StateDir, "tmpfs", 0, "size=1000m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m.cfg.StateDir, 0); err != nil {
			t.Error(err)
		}
	})
	spec := testSpec(t, sandbox.GVisor)
	spec.Limits.DiskBytes = 64 << 20
	r := startOn(t, m, spec)
	r.counts()
	count := 0
	snapshot := func() error {
		name := sandbox.NewUID()
		_, err := r.d.Snapshot(r.ctx, r.h, name, func(context.Context) error { return nil })
		return errors.Join(err, r.d.RemoveSnapshot(r.ctx, name))
	}
	with := func(reserve int64) {
		m.cfg.DiskReserve = reserve
		r.d = m.open(t)
	}
	for what, reserve := range map[string]int64{"the default": 0, "more than is free": 1500 << 20, "nearly all": 990 << 20} {
		with(reserve)
		if err := r.d.Sleep(r.ctx, r.h); !errors.Is(err, errs.Exhausted) {
			t.Errorf("Sleep with a reserve of %s = %v, want exhausted", what, err)
		}
		if err := snapshot(); !errors.Is(err, errs.Exhausted) {
			t.Errorf("Snapshot with a reserve of %s = %v, want exhausted", what, err)
		}
		count++
		r.goesOn("with a reserve of "+what, count)
	}
	with(100 << 20)
	r.do("Snapshot with a small reserve", snapshot())
	r.do("Sleep with a small reserve", r.d.Sleep(r.ctx, r.h))
	r.phase(driver.PhaseAsleep)
	r.goesOn("with a small reserve", count+1)

	// The half of it is there for what is lost otherwise.
	r.exec("root", "echo kept > /etc/kept")
	with(1500 << 20)
	r.do("Stop", r.d.Stop(r.ctx, r.h, 0))
	r.do("Start", r.d.Start(r.ctx, r.h))
	if out, _ := r.exec("root", "cat /etc/kept"); out != "kept\n" {
		t.Errorf("of the system files there is %q", out)
	}
	r.exec("root", "echo lost > /etc/kept")
	with(2500 << 20)
	r.do("Stop", r.d.Stop(r.ctx, r.h, 0))
	r.do("Start", r.d.Start(r.ctx, r.h))
	if out, _ := r.exec("root", "cat /etc/kept"); out != "kept\n" {
		t.Errorf("of the system files there is %q, and below the half of the reserve none are saved", out)
	}
}
