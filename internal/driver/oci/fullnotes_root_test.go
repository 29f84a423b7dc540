//go:build root

package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// filesLeft is how many files the disk of the notes takes in these tests.
const filesLeft = 4096

// startOnFullNotes runs a sandbox whose notes are on a disk of their own. What fills
// it with names takes no other room.
func startOnFullNotes(t *testing.T) (r *running, fill, free func()) {
	t.Helper()
	m := newMachine(t, runsc)
	m.cfg.Sentries = 0
	if err := os.Mkdir(m.cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("notes", m.cfg.StateDir, "tmpfs", 0, "nr_inodes="+itoa(filesLeft)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m.cfg.StateDir, 0); err != nil {
			t.Error(err)
		}
	})
	r = startOn(t, m, testSpec(t, sandbox.GVisor))
	dir := filepath.Join(r.d.box(r.spec.UID).dir, "filler")
	return r, func() {
			t.Helper()
			r.do("Mkdir", os.Mkdir(dir, 0o700))
			for n := 0; ; n++ {
				err := os.WriteFile(filepath.Join(dir, itoa(n)), nil, 0o600)
				if errors.Is(err, unix.ENOSPC) {
					return
				}
				r.do("fill", err)
			}
		}, func() {
			t.Helper()
			r.do("free", os.RemoveAll(dir))
		}
}

// A memory that was used is none, and the run that came out of it all that there is:
// a note that cannot be written must not end that.
func TestWakeIsNotUndoneForANote(t *testing.T) {
	r, fill, free := startOnFullNotes(t)
	held, err := r.d.held(r.h)
	r.do("held", err)
	b := r.d.box(r.spec.UID)
	rec, _, err := b.record()
	r.do("record", err)
	rec.Waking = true
	r.do("setRecord", b.setRecord(rec))
	r.do("Mkdir", os.Mkdir(b.path("memory"), 0o700))
	discard := make(chan struct{})
	held.leave(func() { <-discard }) // its files, which make room
	fill()
	err = r.d.used(b, held)
	free()
	close(discard)
	if _, kept, keptErr := b.memory().Kept(); kept || keptErr != nil {
		t.Errorf("the memory is kept: %v, %v", kept, keptErr)
	}
	if err != nil {
		t.Errorf("used = %v: whoever woke it would end it, and all that it has is lost", err)
	}
	// What is still in the notes keeps nobody from a sleep and a wake.
	r.counts()
	r.do("Sleep", r.d.Sleep(r.ctx, r.h))
	r.phase(driver.PhaseAsleep)
	r.goesOn("after a note that was not written", 1)
}

// A stop that was refused for want of room leaves a sandbox that runs, and whose end is
// told as what it is.
func TestStopWithoutRoomForItsNote(t *testing.T) {
	r, fill, free := startOnFullNotes(t)
	fill()
	err := r.d.Stop(r.ctx, r.h, 0)
	free()
	if !errors.Is(err, errs.Exhausted) {
		t.Errorf("Stop = %v, want exhausted", err)
	}
	r.phase(driver.PhaseRunning)
	r.exec("sandbox", "true")
	r.m.crash(t, r.spec.UID)
	death, err := r.d.Wait(context.Background(), r.h)
	if forgotten := death.Cause == driver.DeathUnknown && forgetsDeaths(t); err != nil || !forgotten && death.Cause != driver.DeathSignal {
		t.Errorf("Wait = %+v, %v; want a death by a signal", death, err)
	}
}
