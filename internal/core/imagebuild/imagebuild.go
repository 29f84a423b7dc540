// Package imagebuild makes images. What a build takes from npm and pip, and the
// commands that it runs, never touch the host: they run in a sandbox that is
// begun from the image so far and reaches no host that they do not need. Its
// root filesystem becomes the new image.
//
// A build goes on when its caller leaves, and there is one of a name at a time.
// It decides nothing about what an image is: that is package image's.
package imagebuild

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/packages"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Images is what is needed of the image store. *image.Store is one.
type Images interface {
	Prepare(ctx context.Context, r image.BuildRequest, p image.Progress) (image.Prepared, error)
	ImportSystem(ctx context.Context, r io.Reader, b image.Prepared, p image.Progress) (image.Image, error)
	Pull(ctx context.Context, reference, name string, p image.Progress) (image.Image, error)
	Remove(ctx context.Context, name string, inUse func(digest string) bool) error
	Sweep(ctx context.Context, inUse func(digest string) bool) (freed int64, err error)
}

// Config is what builds are made with. All fields are required unless they say
// otherwise.
type Config struct {
	Images   Images
	Journals *journal.Journals
	Create   func(ctx context.Context, r lifecycle.CreateRequest) (sandbox.Sandbox, error)
	// InUse are the digests of the images that sandboxes were made from.
	InUse func(ctx context.Context) (map[string]bool, error)
	// PolicyChanged says that another policy holds for a sandbox from now on.
	PolicyChanged func(box sandbox.UID)
	Isolations    func() []driver.IsolationSupport
	Gate          *gate.Gate
	Log           *slog.Logger
	Indexes       packages.Indexes // where npm and pip get packages
	HostMemory    int64            // of the host, in bytes; 0: not known
	Limits        Limits
}

// Limits bound a build. Zero fields take the default.
type Limits struct {
	Time        time.Duration // of all steps together
	DiskBytes   int64
	MemoryBytes int64
}

// Default limits.
const (
	DefaultTime      = 30 * time.Minute
	DefaultDiskBytes = 10 << 30
	// DefaultMemoryBytes is what npm needs to unpack a few large packages; half of
	// a host that has less than twice as much.
	DefaultMemoryBytes = 4 << 30
)

// Output is what a build tells: how far it is, or what a step prints.
type Output struct {
	Progress *image.Step
	Printed  *sandbox.Output
}

// Builds makes images.
type Builds struct {
	cfg Config

	mu      sync.Mutex
	running map[string]bool // by the name that is being made; guarded by mu
}

// New returns Builds. It starts nothing.
func New(cfg Config) *Builds {
	if cfg.Limits.Time == 0 {
		cfg.Limits.Time = DefaultTime
	}
	if cfg.Limits.DiskBytes == 0 {
		cfg.Limits.DiskBytes = DefaultDiskBytes
	}
	if cfg.Limits.MemoryBytes == 0 {
		cfg.Limits.MemoryBytes = DefaultMemoryBytes
		if cfg.HostMemory > 0 {
			cfg.Limits.MemoryBytes = min(DefaultMemoryBytes, cfg.HostMemory/2)
		}
	}
	return &Builds{cfg: cfg, running: map[string]bool{}}
}

// Build makes an image and tells what it does, one call of tell at a time, until
// it is made or ctx ends: the build itself goes on. Kinds: Forbidden for callers
// with a tenant, Conflict while an image of the name is being made, and those of
// [image.Store.Prepare]; Unsupported when a step failed.
func (b *Builds) Build(ctx context.Context, r image.BuildRequest, tell func(Output)) (image.Image, error) {
	return b.make(ctx, context.WithoutCancel(ctx), r.Name, tell, func(ctx context.Context, tell func(Output)) (image.Image, error) {
		return b.build(ctx, r, tell)
	})
}

// Pull fetches an image from a registry, as Build makes one, but ends with ctx: a
// registry may take as long as it likes. The name "" is the last element of the
// reference.
func (b *Builds) Pull(ctx context.Context, reference, name string, tell func(Output)) (image.Image, error) {
	key := name
	if key == "" {
		key = reference
	}
	return b.make(ctx, ctx, key, tell, func(ctx context.Context, tell func(Output)) (image.Image, error) {
		return b.cfg.Images.Pull(ctx, reference, name, progress(tell))
	})
}

// make runs one making of an image in a goroutine of its own, until going ends.
func (b *Builds) make(ctx, going context.Context, name string, tell func(Output), work func(context.Context, func(Output)) (image.Image, error)) (image.Image, error) {
	if err := operatorOnly(ctx); err != nil {
		return image.Image{}, err
	}
	leave, err := b.cfg.Gate.Enter(ctx)
	if err != nil {
		return image.Image{}, err
	}
	defer leave()
	if !b.begin(name) {
		return image.Image{}, errs.E(errs.Conflict, "an image %.100q is being made already", name).
			Hint("wait for it: GET /v1/images lists it when it is there")
	}
	type made struct {
		img image.Image
		err error
	}
	said, done := make(chan Output), make(chan made, 1)
	spawned := b.cfg.Gate.Spawn(func(ended context.Context) {
		within, cancel := context.WithCancel(going)
		defer cancel()
		defer context.AfterFunc(ended, cancel)()
		img, err := work(within, func(o Output) {
			select {
			case said <- o:
			case <-ctx.Done(): // nobody listens any more
			case <-within.Done():
			}
		})
		if err != nil && ended.Err() != nil {
			err = gate.ErrShuttingDown()
		}
		if err != nil && ctx.Err() != nil {
			b.cfg.Log.Warn("an image was not made, and its caller has left", "name", name, telemetry.KeyErr, err)
		}
		b.end(name) // before it is told: the caller may make the next one at once
		done <- made{img, err}
	})
	if !spawned {
		b.end(name)
		return image.Image{}, gate.ErrShuttingDown()
	}
	for {
		select {
		case o := <-said:
			if tell != nil {
				tell(o)
			}
		case m := <-done:
			return m.img, m.err
		case <-ctx.Done():
			return image.Image{}, ctx.Err()
		}
	}
}

// Remove takes an image's name away, and deletes it when no other name leads to
// it. WrongState while a sandbox uses it.
func (b *Builds) Remove(ctx context.Context, name string) error {
	if err := operatorOnly(ctx); err != nil {
		return err
	}
	leave, err := b.cfg.Gate.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	used, err := b.cfg.InUse(ctx)
	if err != nil {
		return err
	}
	return b.cfg.Images.Remove(ctx, name, func(digest string) bool { return used[digest] })
}

// Sweep deletes images that lost their name and that no sandbox was made from.
// Sandboxes pin theirs; their rows are asked as well, and when these cannot be
// read nothing is deleted.
func (b *Builds) Sweep(ctx context.Context) {
	used, err := b.cfg.InUse(ctx)
	if err == nil {
		var freed int64
		freed, err = b.cfg.Images.Sweep(ctx, func(digest string) bool { return used[digest] })
		if freed > 0 {
			b.cfg.Log.Info("deleted images without a name", "freed", freed)
		}
	}
	if err != nil && ctx.Err() == nil {
		b.cfg.Log.Error("sweep images", telemetry.KeyErr, err)
	}
}

func (b *Builds) begin(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[name] {
		return false
	}
	b.running[name] = true
	return true
}

func (b *Builds) end(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, name)
}

// operatorOnly refuses a tenant: images are everybody's.
func operatorOnly(ctx context.Context) error {
	if auth.From(ctx).Tenant != "" {
		return errs.E(errs.Forbidden, "images are the operator's to make and remove").Hint("use a token without a tenant")
	}
	return nil
}

// progressEvery is how often a stage tells how far it is.
const progressEvery = 200 * time.Millisecond

// progress passes on what an image store reports, and leaves out what comes too
// fast for a reader.
func progress(tell func(Output)) image.Progress {
	var stage string
	var told time.Time
	return func(s image.Step) {
		now := time.Now()
		if s.Stage == stage && s.Done != s.Total && now.Sub(told) < progressEvery {
			return
		}
		stage, told = s.Stage, now
		tell(Output{Progress: &s})
	}
}

func (b *Builds) build(ctx context.Context, r image.BuildRequest, tell func(Output)) (image.Image, error) {
	prepared, err := b.cfg.Images.Prepare(ctx, r, progress(tell))
	if err != nil || len(prepared.Steps) == 0 {
		return prepared.Image, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.Limits.Time, errs.E(errs.Timeout, "the steps of the image took longer than %s", b.cfg.Limits.Time))
	defer cancel()
	var made image.Image
	request := b.request(r, prepared)
	request.Work = func(ctx context.Context, run *live.Run, box sandbox.Sandbox) error {
		w := worker{Builds: b, run: run, box: box, tell: tell}
		if err := w.steps(ctx, prepared); err != nil {
			return err
		}
		var err error
		made, err = w.export(ctx, prepared)
		return err
	}
	if _, err := b.cfg.Create(ctx, request); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return image.Image{}, fmt.Errorf("build %s: %w", r.Name, err)
	}
	return made, nil
}

// request is the sandbox in which the steps run.
func (b *Builds) request(r image.BuildRequest, p image.Prepared) lifecycle.CreateRequest {
	env := make(map[string]string, len(p.Env))
	for _, kv := range p.Env {
		name, value := splitEnv(kv)
		env[name] = value
	}
	no := time.Duration(0)
	return lifecycle.CreateRequest{
		Spec: sandbox.Spec{
			Image: p.Image.Digest, Isolation: b.isolation(), User: "root", Env: env,
			Limits:  sandbox.Limits{DiskBytes: b.cfg.Limits.DiskBytes, MemoryBytes: b.cfg.Limits.MemoryBytes},
			Network: sandbox.Policy{Mode: sandbox.NetworkNone},
			Labels:  map[string]string{"cubby.image": labelValue(r.Name)},
		},
		IdleTimeout: &no, MaxLifetime: &no,
	}
}

// isolation is gVisor where the host has it, else a container.
func (b *Builds) isolation() sandbox.Isolation {
	for _, s := range b.cfg.Isolations() {
		if s.Isolation == sandbox.GVisor && s.Err == nil {
			return sandbox.GVisor
		}
	}
	return sandbox.Container
}
