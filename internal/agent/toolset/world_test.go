package toolset_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/agent/toolset"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/storage/local"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a host with everything real but what isolates sandboxes.
type world struct {
	*core.Service
	*toolset.Toolset
	t    *testing.T
	ctx  context.Context
	fake *drivertest.Fake // nil: it is a real one
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// newWorld starts core on a fake driver and an image with Python and Node by name.
func newWorld(t *testing.T, edit ...func(*core.Config)) *world {
	t.Helper()
	images, err := image.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tiny := tiny(t)
	if _, err := images.Import(t.Context(), bytes.NewReader(tiny), int64(len(tiny)), "test", "base", nil); err != nil {
		t.Fatal(err)
	}
	fake := drivertest.NewFake(t)
	w := startWorld(t, fake, images, edit...)
	w.fake = fake
	return w
}

// tiny is the archive of an image.
func tiny(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"usr/bin/python3", "usr/bin/node"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Uid: os.Getuid(), Gid: os.Getgid()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func startWorld(t *testing.T, d driver.Driver, images core.Images, edit ...func(*core.Config)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	dir := t.TempDir()
	key, err := seal.OpenKey(filepath.Join(dir, "seal.key"))
	if err != nil {
		t.Fatal(err)
	}
	storetest.Migrate(t, filepath.Join(dir, "cubby.db"))
	st, err := store.Open(ctx, store.Config{Path: filepath.Join(dir, "cubby.db"), Seal: key})
	if err != nil {
		t.Fatal(err)
	}
	disks, err := local.New(local.Config{Dir: filepath.Join(dir, "disks"), Plain: true, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	journals, err := journal.Open(filepath.Join(dir, "journals"), journal.Limits{PerExec: 32 << 20, PerSandbox: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg := core.Config{
		Store: st, Driver: d, Disks: disks, Images: images, Journals: journals, Log: log,
		Sandboxes: lifecycle.Settings{
			MemAvailable: func() (int64, error) { return 64 << 30, nil },
			Host:         admission.Host{CPUs: 4, MemoryBytes: 64 << 30, OpenFiles: 100_000, PIDs: 32768, Files: 8 << 20},
			Caps:         admission.Caps{PerThread: 3},
			Defaults:     sandbox.DefaultSpec(),
		},
		URLs: core.URLs{
			Download: func(b sandbox.Sandbox, path string) string { return "http://api.test/" + string(b.ID) + path },
			Preview:  func(id string, port int) string { return "http://preview.test/" + id },
		},
	}
	for _, e := range edit {
		e(&cfg)
	}
	svc, err := core.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	life, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := svc.Run(life); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(func() {
		if _, _, err := svc.Sandboxes().DestroyAll(ctx); err != nil {
			t.Error(err)
		}
		stop()
		running.Wait()
		if err := errors.Join(journals.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return &world{Service: svc, Toolset: toolset.New(svc, toolset.Config{Log: log, Life: life, Work: life, Base: func() string { return "http://api.test" }}), t: t, ctx: ctx}
}

type object map[string]any

// caller is the tools of one thread.
type caller struct {
	loop.Tools
	*testing.T
	ctx context.Context
}

func (w *world) thread(name string, o ...toolset.Options) caller {
	options := toolset.Options{}
	if len(o) > 0 {
		options = o[0]
	}
	return caller{w.Thread(auth.Principal{Name: "me", Tenant: "mine"}, name, options), w.t, w.ctx}
}

// call calls a tool, and returns what the model reads.
func (c caller) call(name string, args object) (object, loop.Result) {
	c.Helper()
	return c.do(c.ctx, name, args, nil)
}

func (c caller) do(ctx context.Context, name string, args object, output func(session, stream, text string)) (object, loop.Result) {
	c.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		c.Fatal(err)
	}
	r := c.Call(ctx, loop.Call{ID: "1", Name: name, Arguments: raw, Output: output})
	out := object{}
	if err := json.Unmarshal([]byte(r.Content), &out); err != nil {
		c.Errorf("%s: the content is no object: %v\n%.500s", name, err, r.Content)
	}
	if len(r.Content) > 128<<10 {
		c.Errorf("%s: the content has %d bytes", name, len(r.Content))
	}
	return out, r
}

// good is a call that works.
func (c caller) good(name string, args object) object {
	c.Helper()
	out, r := c.call(name, args)
	if r.Failed {
		c.Fatalf("%s %v failed: %s", name, args, r.Content)
	}
	return out
}

// bad is a call that fails, with text in its error and hint.
func (c caller) bad(name string, args object, text string) object {
	c.Helper()
	out, r := c.call(name, args)
	if !r.Failed || out["success"] != false {
		c.Fatalf("%s %v did not fail: %s", name, args, r.Content)
	}
	if !strings.Contains(r.Content, text) {
		c.Errorf("%s %v = %s, want %q in it", name, args, r.Content, text)
	}
	return out
}

// artifact is what clients are shown.
type artifact struct {
	SessionID string `json:"session_id"`
	Exec      int64  `json:"exec"`
	Displays  []struct {
		Type, URL, Data string
	} `json:"display_outputs"`
	Files []struct {
		Path        string
		DownloadURL string `json:"download_url"`
	}
}

func artifactOf(t *testing.T, r loop.Result) (a artifact) {
	t.Helper()
	if err := json.Unmarshal(r.Artifact, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// sessions are the ids of a thread's sandboxes.
func (w *world) sessions(thread string) []string {
	w.t.Helper()
	boxes, err := w.Threads().Sandboxes(auth.WithPrincipal(w.ctx, auth.Principal{Name: "me", Tenant: "mine"}), thread)
	if err != nil {
		w.t.Fatal(err)
	}
	var ids []string
	for _, b := range boxes {
		ids = append(ids, string(b.ID))
	}
	return ids
}

func loopCall(name, arguments string) loop.Call {
	return loop.Call{ID: "1", Name: name, Arguments: json.RawMessage(arguments)}
}
