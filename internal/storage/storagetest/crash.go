package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// stateBytes is large enough that a copy takes a while.
const stateBytes = 2 << 20

// Busy makes, uses, copies, restores and removes disks until ctx ends or
// something fails. It is for a process that is killed meanwhile; [CheckLeft] then
// looks at what it left.
func Busy(ctx context.Context, s storage.Storage) error {
	for n := 1; ctx.Err() == nil; n++ {
		if err := busyRound(ctx, s, n); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func busyRound(ctx context.Context, s storage.Storage, n int) error {
	uid, clone, other := sandbox.NewUID(), sandbox.NewUID(), sandbox.NewUID()
	write := func(uid sandbox.UID, n int) func() error {
		return func() error {
			m, err := s.Attach(ctx, storage.Use{User: uid, Own: uid})
			if err != nil {
				return err
			}
			if err := writeState(m.Own.Dir, n); err != nil {
				return err
			}
			return s.Detach(ctx, uid, uid)
		}
	}
	snapshot := func(name string) func() error {
		return func() error { _, _, err := s.Snapshot(ctx, uid, name); return err }
	}
	remove := func(uid sandbox.UID) func() error {
		return func() error { _, err := s.Remove(ctx, uid); return err }
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"Create", func() error { return s.Create(ctx, uid, storage.Own, storage.MinBytes) }},
		{"write", write(uid, n)},
		{"Snapshot", snapshot("one")},
		{"write again", write(uid, n+1)},
		{"Clone", func() error { _, err := s.Clone(ctx, storage.Source{UID: uid}, clone); return err }},
		{"Restore", func() error { return Restore(ctx, s, uid, storage.Source{UID: uid, Snapshot: "one"}) }},
		{"Snapshot again", snapshot("two")},
		{"Clone of a snapshot", func() error { _, err := s.Clone(ctx, storage.Source{UID: uid, Snapshot: "two"}, other); return err }},
		{"write to the clone", write(clone, n+2)},
		{"Restore to the clone", func() error { return Restore(ctx, s, uid, storage.Source{UID: clone}) }},
		{"RemoveSnapshot", func() error { _, err := s.RemoveSnapshot(ctx, uid, "one"); return err }},
		{"Remove of a clone", remove(clone)},
		{"Remove", remove(uid)},
		{"Remove of the other clone", remove(other)},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func stateOf(n int) []byte {
	return append([]byte(strconv.Itoa(n)+"\n"), bytes.Repeat([]byte{byte(n)}, stateBytes)...)
}

// writeState puts a file into the workspace that is whole whenever it is there.
func writeState(dir string, n int) error {
	tmp := filepath.Join(dir, "workspace", "state.tmp")
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(stateOf(n))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, "workspace", "state"))
}

// Left is what a process left that was killed while it was busy.
type Left struct{ Disks, Snapshots int }

// CheckLeft looks at what a killed process left: each disk is whole or only a
// name to remove, and each snapshot is whole. It removes all of it.
func CheckLeft(t *testing.T, st storage.Storage) (left Left) {
	t.Helper()
	s := &suite{st, t}
	for _, uid := range s.list() {
		left.Disks++
		left.Snapshots += s.checkDisk(uid)
	}
	s.ok(s.Release(t.Context(), func(sandbox.UID) bool { return false }))
	for _, uid := range s.list() {
		if _, err := s.Remove(t.Context(), uid); err != nil {
			t.Errorf("Remove of what was left = %v", err)
		}
	}
	return left
}

// checkDisk checks one disk, and returns how many snapshots it has.
func (s *suite) checkDisk(uid sandbox.UID) int {
	s.t.Helper()
	m, err := s.Attach(s.t.Context(), storage.Use{User: uid, Own: uid})
	if errors.Is(err, errs.NotFound) {
		return 0 // a remove that was cut off
	}
	s.ok(err)
	s.checkState("a disk", m.Own.Dir, false)
	s.detach(uid)
	all, err := s.Snapshots(s.t.Context(), uid)
	s.ok(err)
	for _, snapshot := range all {
		clone := sandbox.NewUID()
		_, err := s.Clone(s.t.Context(), storage.Source{UID: uid, Snapshot: snapshot.Name}, clone)
		s.ok(err)
		s.with(clone, func(dir string) { s.checkState("snapshot "+snapshot.Name, dir, true) })
		s.ok(s.restore(s.t.Context(), uid, storage.Source{UID: uid, Snapshot: snapshot.Name}))
		s.with(uid, func(dir string) { s.checkState("a disk restored to "+snapshot.Name, dir, true) })
	}
	return len(all)
}

// checkState checks the file of [writeState].
func (s *suite) checkState(what, dir string, must bool) {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "workspace", "state"))
	if errors.Is(err, os.ErrNotExist) && !must {
		return
	}
	s.ok(err)
	number, _, _ := bytes.Cut(b, []byte("\n"))
	n, err := strconv.Atoi(string(number))
	if err != nil || !bytes.Equal(b, stateOf(n)) {
		s.t.Errorf("%s has a file of %d bytes that nobody wrote", what, len(b))
	}
}
