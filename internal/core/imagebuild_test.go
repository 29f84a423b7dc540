package core_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/imagebuild"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// makings is what the images of a world say to the making of one.
type makings struct {
	steps    []image.Steps
	prepare  error
	imported atomic.Int64 // images that were made of a sandbox
	err      error        // of such an import
	pulling  chan error   // not nil: a pull says that it has begun, waits for its context and says how that ended
}

func (i *images) Prepare(context.Context, image.BuildRequest, image.Progress) (image.Prepared, error) {
	return image.Prepared{Image: image.Image{Name: "base", Digest: digest, Dir: i.dir}, Steps: i.makings.steps, Env: []string{"FROM=image"}}, i.makings.prepare
}

// ImportSystem takes the first bytes: the root of these sandboxes is the host's.
func (i *images) ImportSystem(_ context.Context, r io.Reader, _ image.Prepared, _ image.Progress) (image.Image, error) {
	if _, err := io.ReadFull(r, make([]byte, 512)); err != nil {
		return image.Image{}, err
	}
	if i.makings.err == nil {
		i.makings.imported.Add(1)
	}
	return image.Image{Name: "made", Digest: digest}, i.makings.err
}

func (i *images) Pull(ctx context.Context, reference, name string, _ image.Progress) (image.Image, error) {
	if pulling := i.makings.pulling; pulling != nil {
		pulling <- nil
		<-ctx.Done()
		pulling <- ctx.Err()
		return image.Image{}, ctx.Err()
	}
	return image.Image{Name: name, Digest: digest, Source: "pull " + reference}, nil
}

func (i *images) Remove(context.Context, string, func(string) bool) error { return nil }

// running makes the steps of builds one command.
func running(w *world, command string) image.BuildRequest {
	w.images.makings.steps = []image.Steps{{Run: []string{command}}}
	return image.BuildRequest{Name: "made", From: "base"}
}

// noSandbox fails unless no sandbox is there that is not destroyed.
func (w *world) noSandbox() {
	w.t.Helper()
	page, err := w.Sandboxes().List(w.ctx, lifecycle.Query{})
	if err != nil || len(page.Sandboxes) != 0 {
		w.t.Errorf("there are sandboxes: %+v, %v", page.Sandboxes, err)
	}
	w.nothingLeft()
}

func TestStepsRunInASandboxThatGoesWithThem(t *testing.T) {
	w := newWorld(t)
	var printed, stages strings.Builder
	img, err := w.Builds().Build(w.ctx, running(w, `echo "$FROM"; echo err >&2`), func(o imagebuild.Output) {
		if o.Progress != nil {
			stages.WriteString(o.Progress.Stage + "\n")
			return
		}
		printed.Write(o.Printed.Data)
		page, err := w.Sandboxes().List(w.ctx, lifecycle.Query{})
		if err != nil || len(page.Sandboxes) != 1 {
			t.Errorf("meanwhile the sandboxes are %+v, %v", page.Sandboxes, err)
			return
		}
		b := page.Sandboxes[0]
		if b.State != sandbox.Creating || b.Spec.User != "root" || b.Spec.Network.Mode != sandbox.NetworkNone || b.Spec.Limits.DiskBytes != imagebuild.DefaultDiskBytes {
			t.Errorf("the sandbox is %s: %+v", b.State, b.Spec)
		}
	})
	if err != nil || img.Name != "made" || w.images.makings.imported.Load() != 1 {
		t.Fatalf("Build = %+v, %v", img, err)
	}
	if !strings.Contains(printed.String(), "image\n") || !strings.Contains(printed.String(), "err\n") || !strings.Contains(stages.String(), "run echo") {
		t.Errorf("heard %q and %q", printed.String(), stages.String())
	}
	w.noSandbox()
}

// Whatever fails, no image is made and nothing of the sandbox is left.
func TestBuildIsUndone(t *testing.T) {
	down := errs.E(errs.Unavailable, "down")
	for name, tt := range map[string]struct {
		command string
		edit    func(w *world)
		want    errs.Kind
	}{
		"Prepare": {"true", func(w *world) { w.images.makings.prepare = down }, errs.Unavailable},
		"Create":  {"true", func(w *world) { w.faults.SetFail("Create", down) }, errs.Unavailable},
		"Start":   {"true", func(w *world) { w.faults.SetFail("Start", down) }, errs.Unavailable},
		"step":    {"echo reason; exit 3", func(*world) {}, errs.Unsupported},
		"import":  {"true", func(w *world) { w.images.makings.err = down }, errs.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := running(w, tt.command)
			tt.edit(w)
			_, err := w.Builds().Build(w.ctx, r, nil)
			if !errors.Is(err, tt.want) {
				t.Errorf("Build = %v, want %v", err, tt.want)
			}
			if name == "step" && !strings.Contains(errs.Public(err).Hint, "reason") {
				t.Errorf("the hint is %q", errs.Public(err).Hint)
			}
			if n := w.images.makings.imported.Load(); n != 0 {
				t.Errorf("%d images were made", n)
			}
			w.nothingLeft()
		})
	}
}

// A build goes on when its caller leaves; one of the same name is refused until
// it has ended.
func TestBuildOutlivesItsCaller(t *testing.T) {
	w := newWorld(t)
	gate := filepath.Join(t.TempDir(), "gate")
	r := running(w, "mkfifo "+gate+"; echo waiting; read line < "+gate)
	ctx, leave := context.WithCancel(w.ctx)
	_, err := w.Builds().Build(ctx, r, func(o imagebuild.Output) {
		if o.Printed != nil {
			leave()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Build = %v, want canceled", err)
	}
	if _, err := w.Builds().Build(w.ctx, r, nil); !errors.Is(err, errs.Conflict) {
		t.Errorf("a second build = %v, want conflict", err)
	}
	w.images.makings.steps = nil
	if _, err := w.Builds().Build(w.ctx, image.BuildRequest{Name: "other"}, nil); err != nil {
		t.Errorf("a build of another name = %v", err)
	}
	openGate(t, gate)
	r = running(w, "true")
	for { // until the first one has ended
		if _, err = w.Builds().Build(w.ctx, r, nil); !errors.Is(err, errs.Conflict) {
			break
		}
	}
	if n := w.images.makings.imported.Load(); err != nil || n != 2 {
		t.Errorf("the next build = %v; %d images were made, want 2", err, n)
	}
	w.noSandbox()
}

// A pull from a registry that never came to an end went on without its caller.
func TestPullEndsWithItsCaller(t *testing.T) {
	w := newWorld(t)
	pulling := make(chan error)
	w.images.makings.pulling = pulling
	ctx, leave := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Builds().Pull(ctx, "registry.example/endless", "", nil)
		ended <- err
	}()
	<-pulling
	leave()
	if err := <-pulling; !errors.Is(err, context.Canceled) {
		t.Errorf("the pull's context = %v, want canceled", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Pull = %v, want canceled", err)
	}
}

// A daemon that stops ends its builds, and leaves nothing of them.
func TestBuildEndsWithTheDaemon(t *testing.T) {
	w := newWorld(t)
	r := running(w, "echo waiting; sleep 1000")
	waiting, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := w.Builds().Build(w.ctx, r, func(o imagebuild.Output) {
			if o.Printed != nil {
				close(waiting)
			}
		})
		ended <- err
	}()
	<-waiting
	w.restart()
	if err := <-ended; !errors.Is(err, errs.Unavailable) {
		t.Errorf("Build = %v, want unavailable", err)
	}
	w.noSandbox()
}

func TestImagesAreTheOperators(t *testing.T) {
	w := newWorld(t)
	tenant := as(w.ctx, "alice", "acme")
	r := running(w, "true")
	_, buildErr := w.Builds().Build(tenant, r, nil)
	_, pullErr := w.Builds().Pull(tenant, "docker.io/library/alpine", "", nil)
	for what, err := range map[string]error{"Build": buildErr, "Pull": pullErr, "Remove": w.Builds().Remove(tenant, "base")} {
		if !errors.Is(err, errs.Forbidden) {
			t.Errorf("%s as a tenant = %v, want forbidden", what, err)
		}
	}
	if err := w.Builds().Remove(w.ctx, "base"); err != nil {
		t.Errorf("Remove = %v", err)
	}
	if img, err := w.Builds().Pull(w.ctx, "docker.io/library/alpine", "alpine", nil); err != nil || img.Name != "alpine" {
		t.Errorf("Pull = %+v, %v", img, err)
	}
	w.nothingLeft()
}

// openGate lets a command go on that reads a FIFO.
func openGate(t *testing.T, gate string) {
	t.Helper()
	f, err := os.OpenFile(gate, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("go\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}
