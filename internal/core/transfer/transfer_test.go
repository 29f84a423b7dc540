package transfer_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/storage/local"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world has a stopped sandbox, a, whose files are on a real disk.
type world struct {
	*transfer.Files
	exports *transfer.Exports
	imports *transfer.Imports
	store   *store.Store
	box     sandbox.Sandbox
	uses    atomic.Int32 // accesses that are not done
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	key, err := seal.OpenKey(filepath.Join(dir, "seal.key"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{}
	storetest.Migrate(t, filepath.Join(dir, "cubby.db"))
	if w.store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "cubby.db"), Seal: key}); err != nil {
		t.Fatal(err)
	}
	disks, err := local.New(local.Config{Dir: filepath.Join(dir, "disks"), Plain: true, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.box = sandbox.Sandbox{UID: sandbox.NewUID(), ID: "a", Spec: sandbox.Spec{Image: "base", Isolation: sandbox.GVisor, User: sandbox.UserSandbox}}
	w.box.DiskUID = w.box.UID
	if err := w.store.CreateSandbox(t.Context(), w.box, event.New(w.box.UID, "", event.Created{ID: "a"})); err != nil {
		t.Fatal(err)
	}
	if err := disks.Create(t.Context(), w.box.UID, storage.Own, 64<<20); err != nil {
		t.Fatal(err)
	}
	g := gate.New()
	running, stop := context.WithCancel(context.Background())
	if err := g.Begin(running); err != nil {
		t.Fatal(err)
	}
	g.Open()
	t.Cleanup(func() {
		g.End(stop)
		if n := w.uses.Load(); n != 0 {
			t.Errorf("%d uses of the files are not done", n)
		}
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	log, sees := slog.New(slog.DiscardHandler), scope.New(w.store, g, time.Now)
	open := func(ctx context.Context, id string) (*transfer.Access, error) {
		b, err := sees.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		tree, done, err := disks.Files(ctx, storage.Use{User: b.UID, Own: b.DiskUID})
		if err != nil {
			return nil, err
		}
		w.uses.Add(1)
		return &transfer.Access{Files: tree, Box: b, Done: func() { w.uses.Add(-1); done() }}, nil
	}
	w.Files = transfer.NewFiles(open, history.NewRecorder(w.store, g, log, time.Now), 2)
	w.exports = transfer.NewExports(transfer.ExportsConfig{
		Files: w.Files, Store: w.store, Scope: sees, Log: log, Now: time.Now,
		DownloadURL: func(b sandbox.Sandbox, name string) string { return "http://cubby.example/" + string(b.ID) + name },
	})
	w.imports = transfer.NewImports(w.exports, nil, nil)
	return w
}

// kinds of the history without that of the create.
func (w *world) kinds(t *testing.T) string {
	t.Helper()
	events, err := w.store.Events(t.Context(), w.box.UID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range events[1:] {
		all = append(all, e.Kind)
	}
	return strings.Join(all, " ")
}

func (w *world) read(t *testing.T, name string) string {
	t.Helper()
	r, f, err := w.Read(t.Context(), "a", name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || f.Size != int64(len(text)) {
		t.Fatalf("%s: %d bytes of %d, %v", name, len(text), f.Size, err)
	}
	return string(text)
}

func TestFiles(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	if _, err := w.Write(ctx, "a", "d/one", strings.NewReader("hello"), sandbox.FileWrite{Parents: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.MakeDir(ctx, "a", "empty", 0, false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Move(ctx, "a", "d/one", "d/two", false); err != nil {
		t.Fatal(err)
	}
	if got := w.read(t, "/workspace/d/two"); got != "hello" {
		t.Errorf("read %q", got)
	}
	if _, err := w.Stat(ctx, "a", "d/one", true); !errors.Is(err, errs.NotFound) {
		t.Errorf("Stat of what was moved = %v", err)
	}
	if _, _, err := w.Read(ctx, "a", "d/two", -1, 1); !errors.Is(err, errs.Invalid) {
		t.Errorf("Read before the beginning = %v", err)
	}
	if err := w.Remove(ctx, "a", "empty", false); err != nil {
		t.Fatal(err)
	}
	var names []string
	for f, err := range w.List(ctx, "a", "", true) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, f.Path)
	}
	if got := strings.Join(names, " "); got != "/workspace/d /workspace/d/two" {
		t.Errorf("List = %s", got)
	}
	if got, want := w.kinds(t), "file.written file.dir_made file.moved file.removed"; got != want {
		t.Errorf("history: %s, want %s", got, want)
	}
	if err := w.Remove(ctx, "b", "x", false); !errors.Is(err, errs.NotFound) {
		t.Errorf("Remove in no sandbox = %v", err)
	}
}

// TestArchivesGoAround: what is packed in each format that can be unpacked is
// unpacked as it was.
func TestArchivesGoAround(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Write(t.Context(), "a", "from/file", strings.NewReader("content"), sandbox.FileWrite{Parents: true}); err != nil {
		t.Fatal(err)
	}
	for _, format := range []sandbox.ArchiveFormat{sandbox.Tar, sandbox.TarGz} {
		r, err := w.Archive(t.Context(), "a", "from", format)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		to := "to-" + string(format)
		if err := w.Extract(t.Context(), "a", to, bytes.NewReader(packed)); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if got := w.read(t, to+"/file"); got != "content" {
			t.Errorf("%s: unpacked %q", format, got)
		}
	}
	if _, err := w.Archive(t.Context(), "a", "from", "rar"); !errors.Is(err, errs.Invalid) {
		t.Errorf("an unknown format = %v", err)
	}
	if err := w.Extract(t.Context(), "a", "x", strings.NewReader("\x1f\x8b is no gzip")); !errors.Is(err, errs.Invalid) {
		t.Errorf("a broken archive = %v", err)
	}
}

func TestExportsAndImports(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	in, err := w.imports.Import(ctx, "a", []transfer.ImportEntry{
		{Content: strings.NewReader("one"), Destination: "out/one"},
		{Source: "/etc/passwd"},
		{Content: strings.NewReader("x")},
	})
	if err != nil || in[0].Err != nil || in[0].Destination != "/workspace/out/one" || in[0].Size != 3 {
		t.Fatalf("Import = %+v, %v", in, err)
	}
	if !errors.Is(in[2].Err, errs.Invalid) || in[1].Err == nil {
		t.Errorf("what cannot be imported = %v, %v", in[1].Err, in[2].Err)
	}
	if _, err := w.exports.Open(ctx, "a", "out/one", ""); !errors.Is(err, errs.Forbidden) {
		t.Errorf("Open before it was exported = %v", err)
	}
	given, err := w.exports.Add(ctx, "a", []string{"out", "/home/sandbox", "nothing"})
	if err != nil || given[0].Err != nil || given[0].Size != 3 || !given[0].Dir {
		t.Fatalf("Add = %+v, %v", given, err)
	}
	if want := "http://cubby.example/a/workspace/out"; given[0].DownloadURL != want {
		t.Errorf("DownloadURL = %s, want %s", given[0].DownloadURL, want)
	}
	if !errors.Is(given[1].Err, errs.Invalid) || !errors.Is(given[2].Err, errs.NotFound) {
		t.Errorf("what cannot be exported = %v, %v", given[1].Err, given[2].Err)
	}
	// A file below a directory that was exported, and the directory as zip.
	file, err := w.exports.Open(ctx, "a", "out/one", "")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); string(text) != "one" || errors.Join(err, file.Close()) != nil || file.Name != "one" {
		t.Errorf("%s has %q, %v", file.Name, text, err)
	}
	dir, err := w.exports.Open(ctx, "a", "out", "")
	if err != nil {
		t.Fatal(err)
	}
	packed, err := io.ReadAll(dir)
	if err := errors.Join(err, dir.Close()); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	if got := z.File[len(z.File)-1].Name; got != "out/one" || dir.Name != "out.zip" {
		t.Errorf("%s has %s", dir.Name, got)
	}
	// The same paths come in again, from the sandbox that exported them.
	in, err = w.imports.Import(ctx, "a", []transfer.ImportEntry{{Sandbox: "a", Path: "out", Destination: "copy"}, {Sandbox: "a", Path: "other"}})
	if err != nil || in[0].Err != nil || in[0].Size != 3 || !errors.Is(in[1].Err, errs.Forbidden) {
		t.Fatalf("Import of an export = %+v, %v", in, err)
	}
	if got := w.read(t, "copy/one"); got != "one" {
		t.Errorf("the copy has %q", got)
	}
}

// TestNoArchiveStorage: without one nothing can be stored there.
func TestNoArchiveStorage(t *testing.T) {
	a := transfer.NewArchives(nil, gate.New(), time.Now)
	if _, err := a.Get(t.Context(), "", "x"); !errors.Is(err, errs.Unsupported) {
		t.Errorf("Get = %v", err)
	}
	if err := a.Remove(t.Context(), "", "x"); !errors.Is(err, errs.Unsupported) {
		t.Errorf("Remove = %v", err)
	}
}
