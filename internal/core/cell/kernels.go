package cell

import (
	"cmp"
	"context"

	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Kernels is the kernels of running sandboxes: an agent knows those of its
// sandbox, and they end with its stop. All calls are WrongState when it does not
// run.
type Kernels struct {
	live     *live.Sandboxes
	recorder *history.Recorder
}

// NewKernels returns the kernels of what runs. What is done to them is recorded.
func NewKernels(running *live.Sandboxes, recorder *history.Recorder) *Kernels {
	return &Kernels{live: running, recorder: recorder}
}

// Create makes a kernel and returns when it answers. Without a name it
// has its language's, and without a language that of the sandbox's runtime.
// Conflict when the name is taken, NotFound when the image has no such kernel.
func (ks *Kernels) Create(ctx context.Context, id string, k sandbox.KernelSpec) (sandbox.Kernel, error) {
	b, r, done, err := ks.live.Use(ctx, id)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	defer done()
	if k.Language = canonicalLanguage(k.Language); k.Language == "" {
		k.Language = defaultLanguage(b.Spec)
	}
	k.Name = cmp.Or(k.Name, k.Language)
	k.User = cmp.Or(k.User, b.Spec.User)
	if err := k.Validate(); err != nil {
		return sandbox.Kernel{}, err
	}
	if k.Cwd, err = sandbox.ResolvePath(cmp.Or(k.Cwd, sandbox.WorkspaceDir)); err != nil {
		return sandbox.Kernel{}, err
	}
	made, err := r.Guest.CreateKernel(ctx, k)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	ks.recorder.Note(ctx, event.New(b.UID, scope.Actor(ctx), event.KernelCreate{Kernel: made.Name, Language: made.Language}))
	return made, nil
}

// List lists the kernels of a sandbox by name, and those that its image
// brings. It is no activity.
func (ks *Kernels) List(ctx context.Context, id string) ([]sandbox.Kernel, []sandbox.KernelKind, error) {
	_, r, err := ks.live.Find(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	kernels, kinds, err := r.Guest.Kernels(ctx)
	for i := range kernels {
		kernels[i] = withQueue(r, kernels[i])
	}
	return kernels, kinds, err
}

// withQueue adds the cells that the agent has not heard of yet.
func withQueue(r *live.Run, k sandbox.Kernel) sandbox.Kernel {
	k.Waiting += int64(r.Queue(live.KernelQueue(k.Name)).Waiting)
	return k
}

// Get returns a kernel. It is no activity.
func (ks *Kernels) Get(ctx context.Context, id, name string) (sandbox.Kernel, error) {
	_, r, err := ks.live.Find(ctx, id)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	return kernelOf(ctx, r, name)
}

func kernelOf(ctx context.Context, r *live.Run, name string) (sandbox.Kernel, error) {
	if err := sandbox.ValidateName("kernel", name); err != nil {
		return sandbox.Kernel{}, err
	}
	kernels, _, err := r.Guest.Kernels(ctx)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	for _, k := range kernels {
		if k.Name == name {
			return withQueue(r, k), nil
		}
	}
	return sandbox.Kernel{}, errNoKernel
}

// Interrupt ends the cell that runs, if one does; the kernel's state
// stays and the cells behind it go on.
func (ks *Kernels) Interrupt(ctx context.Context, id, name string) (sandbox.Kernel, error) {
	return ks.act(ctx, id, name, (*guest.Client).InterruptKernel, nil)
}

// Restart ends the kernel's process, and the cell that runs with it, and
// returns when a new one answers. The cells behind it run there.
func (ks *Kernels) Restart(ctx context.Context, id, name string) (sandbox.Kernel, error) {
	return ks.act(ctx, id, name, (*guest.Client).RestartKernel, func(k sandbox.Kernel) event.Payload {
		return event.KernelRestart{Kernel: k.Name, Language: k.Language}
	})
}

// act has the agent do something to a kernel, and notes it when told
// is not nil.
func (ks *Kernels) act(
	ctx context.Context, id, name string,
	do func(c *guest.Client, ctx context.Context, name string) (sandbox.Kernel, error), told func(sandbox.Kernel) event.Payload,
) (sandbox.Kernel, error) {
	if err := sandbox.ValidateName("kernel", name); err != nil {
		return sandbox.Kernel{}, err
	}
	b, r, done, err := ks.live.Use(ctx, id)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	defer done()
	// An interrupt returns before the agent gives up on the cell.
	r.HelpCells(name)
	var k sandbox.Kernel
	if err := r.WithHelp(ctx, func() (err error) {
		k, err = do(r.Guest, ctx, name)
		return err
	}); err != nil {
		return sandbox.Kernel{}, err
	}
	if told != nil {
		ks.recorder.Note(ctx, event.New(b.UID, scope.Actor(ctx), told(k)))
	}
	return withQueue(r, k), nil
}

// Delete ends a kernel with its cells: the one that runs, and those that
// wait without having begun.
func (ks *Kernels) Delete(ctx context.Context, id, name string) error {
	if err := sandbox.ValidateName("kernel", name); err != nil {
		return err
	}
	b, r, done, err := ks.live.Use(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	// Nobody puts a cell behind those that are ended here.
	unlock, err := r.LockQueue(ctx, live.KernelQueue(name))
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.EmptyQueue(ctx, live.KernelQueue(name), "the kernel was deleted before its turn came"); err != nil {
		return err
	}
	err = r.WithHelp(ctx, func() error { return r.Guest.DeleteKernel(ctx, name) })
	r.SetLanguage(name, "")
	if err != nil {
		return err
	}
	ks.recorder.Note(ctx, event.New(b.UID, scope.Actor(ctx), event.KernelDelete{Kernel: name}))
	return nil
}

// languageOf returns the language of a kernel that somebody has made.
func (ks *Kernels) languageOf(ctx context.Context, r *live.Run, kernel string) (string, error) {
	if language := r.Language(kernel); language != "" {
		return language, nil
	}
	k, err := kernelOf(ctx, r, kernel)
	if err != nil {
		return "", err
	}
	r.SetLanguage(kernel, k.Language)
	return k.Language, nil
}
