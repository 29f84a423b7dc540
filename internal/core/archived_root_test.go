//go:build root

package core_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/archive/archivetest"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestArchiveAndRestore(t *testing.T) {
	srv := archivetest.Start(t)
	w := newWorld(t, withArchives(t, srv.URL))
	alice := auth.WithPrincipal(w.ctx, auth.Principal{Name: "alice"})
	other := auth.WithPrincipal(w.ctx, auth.Principal{Name: "bob", Tenant: "other"})
	restore := func(ctx context.Context, id, name string) error {
		_, err := w.Sandboxes().Create(ctx, lifecycle.CreateRequest{ID: id, Restore: name})
		return err
	}
	exec := func(id, script string) string {
		t.Helper()
		r, err := w.Execs().Run(alice, id, sandbox.ExecSpec{Shell: script}, -1, live.OutputCaps{Stdout: -1, Stderr: -1})
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Stdout) + string(r.Stderr)
	}

	first, err := w.Sandboxes().Create(alice, lifecycle.CreateRequest{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	exec("a", `mkdir -p deep/er && echo text > deep/er/file && chmod 750 deep/er/file && ln -s deep/er link && ln -s /etc/shadow away && echo h > ../home/marker`)
	made, err := w.Sandboxes().Archive(alice, "a")
	if err != nil || made.Name != "a."+string(first.UID) || made.Bytes() == 0 {
		t.Fatalf("DestroyArchived = %+v, %v", made, err)
	}
	w.nothingLeft()
	if _, err := w.Sandboxes().Get(alice, "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("the sandbox after it: %v", err)
	}

	if err := restore(other, "b", made.Name); !errors.Is(err, errs.NotFound) {
		t.Errorf("another tenant's Create = %v", err)
	}
	if err := w.Archives().Remove(other, "", made.Name); !errors.Is(err, errs.NotFound) {
		t.Errorf("another tenant's RemoveArchive = %v", err)
	}
	if err := restore(alice, "b", "a."+string(sandbox.NewUID())); !errors.Is(err, errs.NotFound) {
		t.Errorf("Create from an archive that is not there = %v", err)
	}
	if err := restore(alice, "b", made.Name); err != nil {
		t.Fatal(err)
	}
	if got := exec("b", `cat link/file && stat -c %a deep/er/file && readlink away && cat ../home/marker`); got != "text\n750\n/etc/shadow\nh\n" {
		t.Errorf("the restored sandbox has %q", got)
	}

	// Where a disk is kept under the id it is not clear what to begin with.
	if err := w.Sandboxes().Destroy(alice, "b", true); err != nil {
		t.Fatal(err)
	}
	if err := restore(alice, "b", made.Name); !errors.Is(err, errs.Conflict) {
		t.Errorf("Create beside a kept disk = %v", err)
	}
	if _, err := w.Sandboxes().Purge(alice, "b"); err != nil {
		t.Error(err)
	}
	if err := w.Archives().Remove(alice, "", made.Name); err != nil {
		t.Error(err)
	}
	if err := restore(alice, "b", made.Name); !errors.Is(err, errs.NotFound) {
		t.Errorf("Create from a removed archive = %v", err)
	}
	w.nothingLeft()
}

// An archive that has a workspace of its own is not put into the files that a tenant's
// sandboxes share, where it would take the place of theirs: the create is refused
// before anything is changed. What was archived without it is restored.
func TestRestoreIntoSharedFilesIsRefused(t *testing.T) {
	srv := archivetest.Start(t)
	w := newWorld(t, withArchives(t, srv.URL))
	alice := auth.WithPrincipal(w.ctx, auth.Principal{Name: "alice", Tenant: "acme"})
	create := func(id string, shares bool, restore string) error {
		_, err := w.Sandboxes().Create(alice, lifecycle.CreateRequest{ID: id, SharedFiles: &shares, Restore: restore})
		return err
	}
	exec := func(id, script string) string {
		t.Helper()
		r, err := w.Execs().Run(alice, id, sandbox.ExecSpec{Shell: script}, -1, live.OutputCaps{Stdout: -1})
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		return string(r.Stdout)
	}
	archived := map[bool]string{}
	for _, shares := range []bool{false, true} {
		if err := create("a", shares, ""); err != nil {
			t.Fatal(err)
		}
		exec("a", fmt.Sprintf("echo %t > f", shares))
		w.write("a", "/home/sandbox/marker", "home")
		m, err := w.Sandboxes().Archive(alice, "a")
		if err != nil {
			t.Fatal(err)
		}
		archived[shares] = m.Name
	}
	if err := create("b", true, archived[false]); !errors.Is(err, errs.SharedFiles) {
		t.Errorf("a restore into shared files: %v, want shared_files", err)
	}
	if _, err := w.Sandboxes().Get(alice, "b"); !errors.Is(err, errs.NotFound) {
		t.Errorf("the sandbox of that: %v, want not found", err)
	}
	for _, tt := range []struct {
		id      string
		shares  bool
		from    string
		f, told string
	}{
		{"own", false, archived[false], "false\n", "of its own"},
		{"sharing", true, archived[true], "true\n", "of the tenant, as it was"},
	} {
		if err := create(tt.id, tt.shares, tt.from); err != nil {
			t.Errorf("%s: Create = %v", tt.id, err)
			continue
		}
		if got := exec(tt.id, "cat f"); got != tt.f {
			t.Errorf("%s: the file %s has %q, want %q", tt.id, tt.told, got, tt.f)
		}
		if got := w.content(tt.id, "/home/sandbox/marker"); got != "home" {
			t.Errorf("%s: its home has %q", tt.id, got)
		}
	}
}

// TestRestoreOfAHostileArchive: somebody who can write to the bucket cannot
// write to the host.
func TestRestoreOfAHostileArchive(t *testing.T) {
	srv := archivetest.Start(t)
	w := newWorld(t, withArchives(t, srv.URL))
	storage, err := archive.Open(archive.Config{
		URL: "s3://boxes/prefix", Endpoint: srv.URL, Region: "us-east-1", AccessKey: archivetest.AccessKey, SecretKey: archivetest.SecretKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, headers := range map[string][]tar.Header{
		"dotdot":       {{Name: "../escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"absolute":     {{Name: "/tmp/escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"through link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, {Name: "l/escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"device":       {{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, Mode: 0o666}},
		"hard link":    {{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			tw := tar.NewWriter(&b)
			for _, h := range headers {
				if err := tw.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			if err := tw.Close(); err != nil {
				t.Fatal(err)
			}
			m, err := storage.Put(w.ctx, archive.Manifest{ID: "evil", UID: sandbox.NewUID()}, []string{"/workspace"},
				func(context.Context, string) (io.ReadCloser, error) {
					return io.NopCloser(bytes.NewReader(b.Bytes())), nil
				})
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Restore: m.Name})
			if !errors.Is(err, errs.Invalid) {
				t.Errorf("Create = %v", err)
			}
			w.nothingLeft()
		})
	}
	// A tree of the manifest that is no tree of a sandbox.
	m, err := storage.Put(w.ctx, archive.Manifest{ID: "evil", UID: sandbox.NewUID()}, []string{"/etc"},
		func(context.Context, string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Restore: m.Name}); err == nil {
		t.Error("a create wrote to /etc")
	}
	w.nothingLeft()
}

// TestARestoreIsMadeCold and takes nothing of what is kept ready: that has files of its
// own already.
func TestARestoreIsMadeCold(t *testing.T) {
	w := newWorld(t, keepReady(1), withArchives(t, archivetest.Start(t).URL))
	w.untilReady(1)
	w.create("a")
	w.write("a", "/workspace/f", "kept\n")
	made, err := w.Sandboxes().Archive(w.ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	w.untilReady(1)
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "b", Restore: made.Name}); err != nil {
		t.Fatal(err)
	}
	if how := w.begun("b"); how != event.Cold || w.waiting() != 1 {
		t.Errorf("it is %q, and %d are ready, want cold, and one", how, w.waiting())
	}
	if got := w.content("b", "/workspace/f"); got != "kept\n" {
		t.Errorf("it has %q", got)
	}
}
