package take

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/backup"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// world is a data directory with stopped sandboxes, whose disks are directories of one file.
type world struct {
	*testing.T
	cfg Config
	key *seal.Key
}

func newWorld(t *testing.T) *world {
	t.Helper()
	data := t.TempDir()
	key, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, key: key}
	storetest.Migrate(t, filepath.Join(data, "cubby.db"))
	s := w.open(filepath.Join(data, "cubby.db"))
	w.cfg = Config{
		Dirs: Dirs{Data: data, State: filepath.Join(data, "run/oci"), Images: filepath.Join(data, "images")}, Store: s, Version: "test", Now: time.Now,
		Open: func(ctx context.Context, path string) (*store.Store, error) {
			return store.Open(ctx, store.Config{Path: path, Seal: key})
		},
		Keep: w.keep,
	}
	w.write("run/oci/.x")
	w.write("images/names.json")
	w.write("images/.lock")
	w.write("seal.key")
	return w
}

func (w *world) open(path string) *store.Store {
	w.Helper()
	s, err := store.Open(w.Context(), store.Config{Path: path, Seal: w.key})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.Error(err)
		}
	})
	return s
}

func (w *world) write(name string) {
	w.Helper()
	path := filepath.Join(w.cfg.Dirs.Data, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(name), 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// box makes a sandbox that is stopped.
func (w *world) box(id string) sandbox.Sandbox {
	w.Helper()
	b := sandbox.Sandbox{UID: sandbox.NewUID(), ID: sandbox.ID(id), Spec: sandbox.DefaultSpec()}
	err := w.cfg.Store.CreateSandbox(w.Context(), b)
	for _, state := range []sandbox.State{sandbox.Running, sandbox.Stopped} {
		if err == nil {
			b, err = w.cfg.Store.Move(w.Context(), b.UID, state, store.Change{Why: sandbox.Why{Cause: sandbox.CauseRequest}})
		}
	}
	if err != nil {
		w.Fatal(err)
	}
	w.write("disks/" + string(b.DiskUID) + "/disk.img")
	for _, name := range []string{"note.json", "run.json", "saved/image", "memory/image/pages", "runtime/state"} {
		w.write("run/oci/" + string(b.UID) + "/" + name)
	}
	return b
}

func (w *world) destroy(b sandbox.Sandbox) {
	w.Helper()
	if _, err := w.cfg.Store.Move(w.Context(), b.UID, sandbox.Destroyed, store.Change{}); err != nil {
		w.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(w.cfg.Dirs.Data, "disks", string(b.DiskUID))); err != nil {
		w.Fatal(err)
	}
}

func (w *world) keep(_ context.Context, uid sandbox.UID) (dir string, done func(), err error) {
	dir = filepath.Join(w.cfg.Dirs.Data, "disks", string(uid))
	if _, err := os.Stat(dir); err != nil {
		return "", nil, errs.E(errs.NotFound, "no such disk")
	}
	return dir, func() {}, nil
}

// backUp returns the files of a backup and its sandboxes.
func (w *world) backUp(without ...string) (names []string, ids []sandbox.ID) {
	w.Helper()
	taker, err := New(w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	var out bytes.Buffer
	if err := taker.Backup(w.Context(), &out, without); err != nil {
		w.Fatal(err)
	}
	to := w.TempDir()
	if _, err := backup.Unpack(to, &out); err != nil {
		w.Fatal(err)
	}
	err = filepath.WalkDir(to, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, strings.TrimPrefix(path, to+"/"))
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	all, _, err := w.open(filepath.Join(to, "cubby.db")).Sandboxes(w.Context(), store.Query{States: []sandbox.State{sandbox.Stopped}})
	if err != nil {
		w.Fatal(err)
	}
	for _, b := range all {
		ids = append(ids, b.ID)
	}
	if left, err := filepath.Glob(filepath.Join(w.cfg.Dirs.Data, "run", stagePrefix+"*")); err != nil || len(left) > 0 {
		w.Errorf("left: %v, %v", left, err)
	}
	return names, ids
}

func TestWhatIsInABackup(t *testing.T) {
	w := newWorld(t)
	b := w.box("a")
	state, disk := "run/oci/"+string(b.UID)+"/", "disks/"+string(b.DiskUID)+"/disk.img"
	want := []string{"cubby.db", disk, "images/names.json", state + "memory/image/pages", state + "note.json", state + "saved/image", "seal.key"}
	if names, ids := w.backUp(); !slices.Equal(names, want) || len(ids) != 1 {
		t.Errorf("the backup has\n%v and %v, want\n%v", names, ids, want)
	}
	want = []string{"cubby.db", disk, state + "note.json", state + "saved/image", "seal.key"}
	if names, _ := w.backUp(Images, Memory); !slices.Equal(names, want) {
		t.Errorf("without images and memory it has\n%v, want\n%v", names, want)
	}
	w.cfg.Dirs.Images = t.TempDir() // elsewhere
	if names, _ := w.backUp(); slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "images/") }) {
		t.Errorf("images that are elsewhere are in it: %v", names)
	}
}

// TestASandboxThatGoesAwayMeanwhile: the rows of a backup have no sandbox whose disk went
// away before it was copied.
func TestASandboxThatGoesAwayMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.box("stays")
	goes := w.box("goes")
	var comes sandbox.Sandbox
	w.cfg.Keep = func(ctx context.Context, uid sandbox.UID) (string, func(), error) {
		if comes.UID == "" {
			w.destroy(goes)
			comes = w.box("comes")
		}
		return w.keep(ctx, uid)
	}
	names, ids := w.backUp()
	slices.Sort(ids)
	if !slices.Equal(ids, []sandbox.ID{"comes", "stays"}) || !slices.Contains(names, "disks/"+string(comes.DiskUID)+"/disk.img") {
		t.Errorf("the backup has %v and %v", ids, names)
	}
}

// TestASandboxIsHeldForItsCopy, and for no longer.
func TestASandboxIsHeldForItsCopy(t *testing.T) {
	w := newWorld(t)
	b := w.box("a")
	held, holds := false, 0
	w.cfg.Hold = func(_ context.Context, id string) (sandbox.Sandbox, func(), error) {
		held, holds = true, holds+1
		return b, func() { held = false }, nil
	}
	w.cfg.Keep = func(ctx context.Context, uid sandbox.UID) (string, func(), error) {
		if !held {
			t.Error("nobody holds the sandbox whose disk is copied")
		}
		dir, _, err := w.keep(ctx, uid)
		return dir, func() {
			if held {
				t.Error("it is still held when its copy was written")
			}
		}, err
	}
	if w.backUp(); holds != 1 {
		t.Errorf("it was held %d times", holds)
	}
}

func TestBadBackups(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		server  bool
		without []string
		want    error
	}{
		{false, []string{"disks"}, errs.Invalid},
		{false, []string{Database}, errs.Invalid},
		{true, nil, errs.Unsupported},
	} {
		w.cfg.Server = tt.server
		taker, err := New(w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := taker.Backup(t.Context(), &out, tt.without); !errors.Is(err, tt.want) || out.Len() > 0 {
			t.Errorf("server %v without %v: %v and %d bytes, want %v", tt.server, tt.without, err, out.Len(), tt.want)
		}
	}
}
