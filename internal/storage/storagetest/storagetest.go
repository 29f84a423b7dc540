// Package storagetest is the conformance suite of [storage.Storage]: what an
// implementation promises about disks, their uses, their copies, and what a
// process leaves that is killed in the middle of any of these. It looks at disks
// through the directories that they are mounted at, and knows nothing of how
// they are kept.
package storagetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// diskBytes is the size of the suite's disks.
const diskBytes = 64 << 20

// Run proves an implementation. Each test opens a storage of its own, which open
// closes at the end of the test.
func Run(t *testing.T, open func(t *testing.T) storage.Storage) {
	for _, tt := range []struct {
		name string
		test func(t *testing.T, s *suite)
	}{
		{"life", testLife},
		{"layouts", testLayouts},
		{"refusals", testRefusals},
		{"what is not there", testNotFound},
		{"uses", testUses},
		{"files", testFiles},
		{"uploads", testUploads},
		{"remove ends uses", testRemoveEndsUses},
		{"sweep", testSweep},
		{"release", testRelease},
		{"clone", testClone},
		{"clone of a disk in use", testCloneInUse},
		{"clone of a disk that stands still", testCloneStill},
		{"clones in both directions", testClonesCross},
		{"deep trees", testDeep},
		{"snapshots", testSnapshots},
		{"names of snapshots", testSnapshotNames},
		{"restore", testRestore},
		{"restore from another disk", testRestoreFromAnother},
		{"restore that was prepared", testRestorePrepared},
		{"restores in both directions", testRestoresCross},
		{"clone of a snapshot", testCloneOfSnapshot},
		{"copies that are cut off", testCancelled},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, &suite{open(t), t}) })
	}
}

// suite is a storage and the test that uses it.
type suite struct {
	storage.Storage
	t *testing.T
}

// Restore gives a disk the content of a source.
func Restore(ctx context.Context, s storage.Storage, uid sandbox.UID, from storage.Source) error {
	r, err := s.Prepare(ctx, uid, from)
	if err != nil {
		return err
	}
	defer r.Discard()
	return r.Restore(ctx)
}

func (s *suite) restore(ctx context.Context, uid sandbox.UID, from storage.Source) error {
	return Restore(ctx, s.Storage, uid, from)
}

func (s *suite) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *suite) want(kind errs.Kind, what string, err error) {
	s.t.Helper()
	if !errors.Is(err, kind) {
		s.t.Errorf("%s = %v, want %v", what, err, kind)
	}
}

// disk makes one with a layout.
func (s *suite) disk(layout storage.Layout) sandbox.UID {
	s.t.Helper()
	uid := sandbox.NewUID()
	s.ok(s.Create(s.t.Context(), uid, layout, diskBytes))
	return uid
}

// attach gives the directory of a disk, which its own user attaches.
func (s *suite) attach(uid sandbox.UID) string {
	s.t.Helper()
	m, err := s.Attach(s.t.Context(), storage.Use{User: uid, Own: uid})
	s.ok(err)
	return m.Own.Dir
}

func (s *suite) detach(uid sandbox.UID) {
	s.t.Helper()
	s.ok(s.Detach(s.t.Context(), uid, uid))
}

// with runs fn on the directory of a disk.
func (s *suite) with(uid sandbox.UID, fn func(dir string)) {
	s.t.Helper()
	dir := s.attach(uid)
	fn(dir)
	s.detach(uid)
}

func (s *suite) write(uid sandbox.UID, name, content string) {
	s.t.Helper()
	s.with(uid, func(dir string) { s.ok(os.WriteFile(filepath.Join(dir, "workspace", name), []byte(content), 0o644)) })
}

// wantFile checks a file of the workspace; "" is for one that is not there.
func (s *suite) wantFile(uid sandbox.UID, name, want string) {
	s.t.Helper()
	s.with(uid, func(dir string) {
		got, err := os.ReadFile(filepath.Join(dir, "workspace", name))
		if want == "" && errors.Is(err, os.ErrNotExist) {
			return
		}
		if err != nil || string(got) != want {
			s.t.Errorf("%s has %.60q, %v, want %q", name, got, err, want)
		}
	})
}

func (s *suite) list() []sandbox.UID {
	s.t.Helper()
	all, err := s.List()
	s.ok(err)
	return all
}

func (s *suite) usage(uid sandbox.UID) storage.Usage {
	s.t.Helper()
	u, err := s.Usage(s.t.Context(), uid)
	s.ok(err)
	return u
}

func testLife(t *testing.T, s *suite) {
	uid := s.disk(storage.Own)
	s.want(errs.Conflict, "a second Create", s.Create(t.Context(), uid, storage.Own, diskBytes))
	s.write(uid, "f", strings.Repeat("x", 1<<20))
	s.wantFile(uid, "f", strings.Repeat("x", 1<<20))
	if all := s.list(); len(all) != 1 || all[0] != uid {
		t.Errorf("List = %v, want %v", all, uid)
	}
	if u := s.usage(uid); u.Bytes != diskBytes || u.Allocated < 1<<20 || u.Snapshots != 0 {
		t.Errorf("Usage = %+v, want a size of %d of which 1 MiB is allocated, and no snapshots", u, diskBytes)
	}
	freed, err := s.Remove(t.Context(), uid)
	if err != nil || freed < 1<<20 {
		t.Errorf("Remove = %d, %v, want at least 1 MiB", freed, err)
	}
	if freed, err := s.Remove(t.Context(), uid); err != nil || freed != 0 {
		t.Errorf("a second Remove = %d, %v, want nothing", freed, err)
	}
	if all := s.list(); len(all) != 0 {
		t.Errorf("List = %v, want none", all)
	}
}

func testLayouts(t *testing.T, s *suite) {
	own, shared := s.disk(storage.Own), s.disk(storage.Shared)
	m, err := s.Attach(t.Context(), storage.Use{User: own, Own: own, Shared: shared})
	s.ok(err)
	for _, tt := range []struct {
		disk storage.Disk
		uid  sandbox.UID
		dirs []string
	}{{m.Own, own, []string{"home", "root", "workspace"}}, {m.Shared, shared, []string{"outputs", "uploads", "workspace"}}} {
		entries, err := os.ReadDir(tt.disk.Dir)
		s.ok(err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if !slices.Equal(names, tt.dirs) || tt.disk.UID != tt.uid || tt.disk.Bytes != diskBytes {
			t.Errorf("disk %+v has %v, want %s of %d bytes with %v", tt.disk, names, tt.uid, diskBytes, tt.dirs)
		}
	}
	if link, err := os.Readlink(filepath.Join(m.Own.Dir, "home", "workspace")); err != nil || link != sandbox.WorkspaceDir {
		t.Errorf("~/workspace leads to %q, %v", link, err)
	}
	s.ok(s.Detach(t.Context(), own, own))
	s.ok(s.Detach(t.Context(), own, own)) // what has ended ends again
}

func testRefusals(t *testing.T, s *suite) {
	s.want(errs.Invalid, "Create of nothing", s.Create(t.Context(), sandbox.NewUID(), storage.Own, 0))
	s.want(errs.Invalid, "Create of too little", s.Create(t.Context(), sandbox.NewUID(), storage.Own, storage.MinBytes-1))
	s.want(errs.Invalid, "Create with a name that climbs", s.Create(t.Context(), "../../../etc/cron.d/x123", storage.Own, diskBytes))
	_, err := s.Remove(t.Context(), "..")
	s.want(errs.Invalid, "Remove with a name that climbs", err)
	uid := s.disk(storage.Own)
	_, err = s.Clone(t.Context(), storage.Source{UID: uid}, "../x")
	s.want(errs.Invalid, "Clone to a name that climbs", err)
	if all := s.list(); len(all) != 1 {
		t.Errorf("List = %v, want one", all)
	}
}

func testNotFound(t *testing.T, s *suite) {
	gone, there := sandbox.NewUID(), s.disk(storage.Own)
	for what, err := range map[string]error{
		"Attach":              second(s.Attach(t.Context(), storage.Use{User: gone, Own: gone})),
		"Attach, shared":      second(s.Attach(t.Context(), storage.Use{User: there, Own: there, Shared: gone})),
		"Usage":               second(s.Usage(t.Context(), gone)),
		"Files":               third(s.Files(t.Context(), storage.Use{User: gone, Own: gone})),
		"Uploads":             third(s.Uploads(t.Context(), gone)),
		"Clone":               second(s.Clone(t.Context(), storage.Source{UID: gone}, sandbox.NewUID())),
		"Clone of a snapshot": second(s.Clone(t.Context(), storage.Source{UID: there, Snapshot: "s"}, sandbox.NewUID())),
		"Snapshot":            third(s.Snapshot(t.Context(), gone, "s")),
		"Snapshots":           second(s.Snapshots(t.Context(), gone)),
		"Restore":             s.restore(t.Context(), there, storage.Source{UID: there, Snapshot: "s"}),
		"RemoveSnapshot":      second(s.RemoveSnapshot(t.Context(), there, "s")),
	} {
		s.want(errs.NotFound, what, err)
	}
	s.ok(s.Detach(t.Context(), gone, gone))
	if s.InUse(there) || s.InUse(gone) {
		t.Error("a failed use counts")
	}
	if all := s.list(); len(all) != 1 {
		t.Errorf("List = %v, want one", all)
	}
}

func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }

func testSweep(t *testing.T, s *suite) {
	kept, unwanted, unreadable := s.disk(storage.Own), s.disk(storage.Own), s.disk(storage.Shared)
	down := errs.E(errs.Unavailable, "down")
	removed, err := s.Sweep(t.Context(), func(uid sandbox.UID) (bool, error) {
		if uid == unreadable {
			return false, down
		}
		return uid == kept, nil
	})
	s.want(errs.Unavailable, "Sweep with a want that cannot be read", err)
	if len(removed) != 1 || removed[0] != unwanted {
		t.Errorf("Sweep removed %v, want %v", removed, unwanted)
	}
	all := s.list()
	if len(all) != 2 || !slices.Contains(all, kept) || !slices.Contains(all, unreadable) {
		t.Errorf("List = %v, want %v and %v", all, kept, unreadable)
	}
	removed, err = s.Sweep(t.Context(), func(sandbox.UID) (bool, error) { return true, nil })
	if err != nil || len(removed) != 0 {
		t.Errorf("Sweep of what is wanted = %v, %v", removed, err)
	}
}

func testCancelled(t *testing.T, s *suite) {
	uid := s.disk(storage.Own)
	s.write(uid, "f", strings.Repeat("x", 8<<20))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Clone(ctx, storage.Source{UID: uid}, sandbox.NewUID()); err == nil {
		t.Error("Clone with a context that has ended succeeds")
	}
	if _, _, err := s.Snapshot(ctx, uid, "s"); err == nil {
		t.Error("Snapshot with a context that has ended succeeds")
	}
	if all, err := s.Snapshots(t.Context(), uid); err != nil || len(all) != 0 {
		t.Errorf("Snapshots = %v, %v, want none", all, err)
	}
	if all := s.list(); len(all) != 1 {
		t.Errorf("List = %v, want one", all)
	}
	_, _, err := s.Snapshot(t.Context(), uid, "s")
	s.ok(err)
	s.write(uid, "f", "changed")
	if err := s.restore(ctx, uid, storage.Source{UID: uid, Snapshot: "s"}); err == nil {
		t.Error("Restore with a context that has ended succeeds")
	}
	s.wantFile(uid, "f", "changed")
}
