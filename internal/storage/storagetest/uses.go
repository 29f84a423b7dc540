package storagetest

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

func (s *suite) wantUse(when string, uid sandbox.UID, want bool) {
	s.t.Helper()
	if got := s.InUse(uid); got != want {
		s.t.Errorf("%s the disk is in use: %v, want %v", when, got, want)
	}
}

func testUses(t *testing.T, s *suite) {
	a, b, shared := s.disk(storage.Own), s.disk(storage.Own), s.disk(storage.Shared)
	s.wantUse("made", a, false)
	attach := func(uid sandbox.UID) storage.Mounts {
		t.Helper()
		m, err := s.Attach(t.Context(), storage.Use{User: uid, Own: uid, Shared: shared})
		s.ok(err)
		return m
	}
	first := attach(a)
	if again := attach(a); again != first {
		t.Errorf("a second Attach = %+v, want %+v", again, first)
	}
	m := attach(b)
	if m.Shared != first.Shared {
		t.Errorf("the shared disk is %+v for one and %+v for another", first.Shared, m.Shared)
	}
	s.ok(os.WriteFile(filepath.Join(first.Shared.Dir, "outputs", "f"), []byte("shared"), 0o644))
	s.detach(a)
	s.wantUse("after its only user left", a, false)
	s.wantUse("after one of its users left", shared, true)
	if got, err := os.ReadFile(filepath.Join(m.Shared.Dir, "outputs", "f")); err != nil || string(got) != "shared" {
		t.Errorf("who stays reads %q, %v", got, err)
	}
	s.detach(b)
	s.wantUse("after its last user left", shared, false)
	s.ok(s.Rest(t.Context()))
	if got, err := os.ReadFile(filepath.Join(attach(a).Shared.Dir, "outputs", "f")); err != nil || string(got) != "shared" {
		t.Errorf("who comes back reads %q, %v", got, err)
	}
	s.detach(a)
}

func testFiles(t *testing.T, s *suite) {
	own, shared := s.disk(storage.Own), s.disk(storage.Shared)
	use := storage.Use{User: own, Own: own, Shared: shared}
	tree, done, err := s.Files(t.Context(), use)
	s.ok(err)
	for _, name := range []string{"/workspace/w", "/mnt/user-data/outputs/o", "/home/sandbox/h"} {
		_, err := tree.Write(t.Context(), name, strings.NewReader(name), sandbox.FileWrite{})
		s.ok(err)
	}
	if _, err := tree.Stat(t.Context(), sandbox.UploadsDir, true); err == nil {
		t.Error("the uploads are among the files of a sandbox")
	}
	m, err := s.Attach(t.Context(), use) // a start while files are used
	s.ok(err)
	for name, at := range map[string]string{
		"/workspace/w": filepath.Join(m.Shared.Dir, "workspace", "w"), "/mnt/user-data/outputs/o": filepath.Join(m.Shared.Dir, "outputs", "o"),
		"/home/sandbox/h": filepath.Join(m.Own.Dir, "home", "h"),
	} {
		if got, err := os.ReadFile(at); err != nil || string(got) != name {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
	s.detach(own)
	s.wantUse("while its files are used", shared, true)
	r, _, err := tree.Read(t.Context(), "/workspace/w", 0, -1)
	s.ok(err)
	if got, err := io.ReadAll(r); err != nil || string(got) != "/workspace/w" {
		t.Errorf("after a stop the reader has %q, %v", got, err)
	}
	s.ok(r.Close())
	done()
	done() // a use ends once
	s.wantUse("after that", shared, false)
	s.wantUse("after that", own, false)
	// Without a shared disk the workspace is the sandbox's own.
	tree, done, err = s.Files(t.Context(), storage.Use{User: own, Own: own})
	s.ok(err)
	defer done()
	_, err = tree.Stat(t.Context(), "/workspace/w", true)
	s.want(errs.NotFound, "a file of the shared workspace in the own one", err)
}

func testUploads(t *testing.T, s *suite) {
	own, shared := s.disk(storage.Own), s.disk(storage.Shared)
	tree, done, err := s.Uploads(t.Context(), shared)
	s.ok(err)
	_, err = tree.Write(t.Context(), sandbox.UploadsDir+"/f", strings.NewReader("up"), sandbox.FileWrite{})
	s.ok(err)
	if _, err := tree.Stat(t.Context(), "/workspace", true); err == nil {
		t.Error("the workspace is among the uploads")
	}
	s.wantUse("while its uploads are used", shared, true)
	done()
	s.wantUse("after that", shared, false)
	m, err := s.Attach(t.Context(), storage.Use{User: own, Own: own, Shared: shared})
	s.ok(err)
	if got, err := os.ReadFile(filepath.Join(m.Shared.Dir, "uploads", "f")); err != nil || string(got) != "up" {
		t.Errorf("the upload is %q, %v", got, err)
	}
	s.detach(own)
}

func testRemoveEndsUses(t *testing.T, s *suite) {
	uid := s.disk(storage.Own)
	s.attach(uid)
	_, done, err := s.Files(t.Context(), storage.Use{User: uid, Own: uid})
	s.ok(err)
	_, err = s.Remove(t.Context(), uid)
	s.ok(err)
	s.wantUse("after its remove", uid, false)
	s.detach(uid)
	s.wantUse("after the end of a use", uid, false)
	s.ok(s.Create(t.Context(), uid, storage.Own, diskBytes))
	s.wantUse("made anew", uid, false)
	_, again, err := s.Files(t.Context(), storage.Use{User: uid, Own: uid})
	s.ok(err)
	done()
	s.wantUse("after the end of a use of what was removed", uid, true)
	again()
	s.wantUse("after the end of its own use", uid, false)
}

func testRelease(t *testing.T, s *suite) {
	used, other := s.disk(storage.Own), s.disk(storage.Own)
	dir := s.attach(used)
	s.ok(s.Release(t.Context(), func(sandbox.UID) bool { return false }))
	s.wantUse("after a release of what is unknown", used, true)
	if _, err := os.Stat(filepath.Join(dir, "workspace")); err != nil {
		t.Errorf("a disk in use was released: %v", err)
	}
	s.wantFile(other, "f", "")
	s.detach(used)
}
