//go:build root

package oci

import (
	"context"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// parts are what the driver has of the run.
func (r *running) parts() (note, *run, box, record) {
	r.t.Helper()
	n, err := places{}.parse(r.h)
	r.do("parse", err)
	held, err := r.d.held(r.h)
	r.do("held", err)
	b := r.d.box(r.spec.UID)
	rec, _, err := b.record()
	r.do("record", err)
	return n, held, b, rec
}

// A memory that is written while connections to its agent are open leaves an agent
// that nothing tells of their end, and that answers all the same: in the sandbox that
// goes on, and out of the memory.
func TestMemoryKeptWithConnectionsOpen(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	n, held, b, rec := r.parts()
	suspend := func(to memory.Memory, root string, hold bool) *suspension {
		r.do("PauseTimers", agent.New(held.line().Dial, new(capability.Known)).PauseTimers(r.ctx))
		s, err := r.d.standby(r.ctx, n, held, &rec, to, root, hold)
		r.do("standby", err)
		r.do("save", s.save())
		return s
	}

	name := sandbox.NewUID()
	r.do("takeName", r.d.takeName(name))
	kept := r.d.snapshotOf(name)
	r.do("close", suspend(kept, kept.HalfRoot(), true).close())
	r.do("RemoveSnapshot", r.d.RemoveSnapshot(r.ctx, name))
	r.do("close the channel", held.line().Close())
	r.do("afterCheckpoint", r.d.afterCheckpoint(r.ctx, b, held, rec))
	r.goesOn("kept with connections open", 1)

	s := suspend(b.memory(), b.halfSaved(), false)
	of, err := b.ofRun(n)
	r.do("ofRun", err)
	note, err := places{}.short(of)
	r.do("short", err)
	r.do("Seal", b.memory().Seal(memory.Content{Secret: rec.Secret, Note: note}, func() error {
		r.do("close", s.close())
		return memory.Exchange(b.halfSaved(), b.saved())
	}))
	r.do("clear", r.d.clear(context.WithoutCancel(r.ctx), r.spec.UID))
	r.goesOn("woken with connections open", 2)
}

// A pause ends when it is to end, also when a program that is being started has a copy
// of the pipe whose end would say so.
func TestPauseEndsWhileAProgramBegins(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	n, held, b, rec := r.parts()
	name := sandbox.NewUID()
	r.do("takeName", r.d.takeName(name))
	kept := r.d.snapshotOf(name)
	s, err := r.d.standby(r.ctx, n, held, &rec, kept, kept.HalfRoot(), true)
	r.do("standby", err)
	r.do("beforeCheckpoint", r.d.beforeCheckpoint(r.ctx, held))
	r.do("save", s.save())
	raw, err := s.in.(syscall.Conn).SyscallConn()
	r.do("SyscallConn", err)
	copied := -1
	r.do("Control", raw.Control(func(fd uintptr) { copied, err = unix.Dup(int(fd)) }))
	r.do("dup", err)
	ended := make(chan error, 1)
	go func() { ended <- s.close() }()
	select {
	case err := <-ended:
		r.do("close", err)
	case <-time.After(30 * time.Second):
		t.Error("the pause goes on")
	}
	_ = unix.Close(copied)
	r.do("RemoveSnapshot", r.d.RemoveSnapshot(r.ctx, name))
	r.do("afterCheckpoint", r.d.afterCheckpoint(r.ctx, b, held, rec))
	r.goesOn("a pause that has ended", 1)
}
