package core

import (
	"cmp"
	"context"
	"errors"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Kernels belong to a running sandbox: its agent knows them, and they end with
// its stop. All calls are WrongState when it does not run.

// CreateKernel makes a kernel and returns when it answers. Without a name it
// has its language's, and without a language that of the sandbox's runtime.
// Conflict when the name is taken, NotFound when the image has no such kernel.
func (s *Service) CreateKernel(ctx context.Context, id string, k sandbox.KernelSpec) (sandbox.Kernel, error) {
	b, r, done, err := s.useKernels(ctx, id)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	defer done()
	if k.Language = cell.CanonicalLanguage(k.Language); k.Language == "" {
		k.Language = cell.DefaultLanguage(b.Spec)
	}
	k.Name = cmp.Or(k.Name, k.Language)
	k.User = cmp.Or(k.User, b.Spec.User)
	if err := k.Validate(); err != nil {
		return sandbox.Kernel{}, err
	}
	if k.Cwd, err = sandbox.ResolvePath(cmp.Or(k.Cwd, sandbox.WorkspaceDir)); err != nil {
		return sandbox.Kernel{}, err
	}
	made, err := r.guest.CreateKernel(ctx, k)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	s.recorder.Note(ctx, event.New(b.UID, scope.Actor(ctx), event.KernelCreate{Kernel: made.Name, Language: made.Language}))
	return made, nil
}

// useKernels finds a sandbox that runs, which is in use until done.
func (s *Service) useKernels(ctx context.Context, id string) (b sandbox.Sandbox, r *run, done func(), err error) {
	leave, err := s.gate.Enter(ctx)
	if err != nil {
		return b, nil, nil, err
	}
	defer leave()
	if b, r, err = s.findRunning(ctx, id); err != nil {
		return b, nil, nil, err
	}
	return b, r, r.open(ctx), nil
}

// Kernels lists the kernels of a sandbox by name, and those that its image
// brings. It is no activity.
func (s *Service) Kernels(ctx context.Context, id string) ([]sandbox.Kernel, []sandbox.KernelKind, error) {
	_, r, err := s.findRunning(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	kernels, kinds, err := r.guest.Kernels(ctx)
	for i := range kernels {
		kernels[i] = r.withQueue(kernels[i])
	}
	return kernels, kinds, err
}

// withQueue adds the cells that the agent has not heard of yet.
func (r *run) withQueue(k sandbox.Kernel) sandbox.Kernel {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.queues[kernelQueue(k.Name)]; q != nil {
		k.Waiting += int64(q.waiting)
	}
	return k
}

// Kernel returns a kernel. It is no activity.
func (s *Service) Kernel(ctx context.Context, id, name string) (sandbox.Kernel, error) {
	_, r, err := s.findRunning(ctx, id)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	return r.kernel(ctx, name)
}

func (r *run) kernel(ctx context.Context, name string) (sandbox.Kernel, error) {
	if err := sandbox.ValidateName("kernel", name); err != nil {
		return sandbox.Kernel{}, err
	}
	kernels, _, err := r.guest.Kernels(ctx)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	for _, k := range kernels {
		if k.Name == name {
			return r.withQueue(k), nil
		}
	}
	return sandbox.Kernel{}, errNoKernel
}

// InterruptKernel ends the cell that runs, if one does; the kernel's state
// stays and the cells behind it go on.
func (s *Service) InterruptKernel(ctx context.Context, id, name string) (sandbox.Kernel, error) {
	return s.actOnKernel(ctx, id, name, (*guest.Client).InterruptKernel, nil)
}

// RestartKernel ends the kernel's process, and the cell that runs with it, and
// returns when a new one answers. The cells behind it run there.
func (s *Service) RestartKernel(ctx context.Context, id, name string) (sandbox.Kernel, error) {
	return s.actOnKernel(ctx, id, name, (*guest.Client).RestartKernel, func(k sandbox.Kernel) event.Payload {
		return event.KernelRestart{Kernel: k.Name, Language: k.Language}
	})
}

// actOnKernel has the agent do something to a kernel, and notes it when told
// is not nil.
func (s *Service) actOnKernel(
	ctx context.Context, id, name string,
	act func(c *guest.Client, ctx context.Context, name string) (sandbox.Kernel, error), told func(sandbox.Kernel) event.Payload,
) (sandbox.Kernel, error) {
	if err := sandbox.ValidateName("kernel", name); err != nil {
		return sandbox.Kernel{}, err
	}
	b, r, done, err := s.useKernels(ctx, id)
	if err != nil {
		return sandbox.Kernel{}, err
	}
	defer done()
	// An interrupt returns before the agent gives up on the cell.
	r.helpCells(name)
	var k sandbox.Kernel
	if err := r.withHelp(ctx, func() (err error) {
		k, err = act(r.guest, ctx, name)
		return err
	}); err != nil {
		return sandbox.Kernel{}, err
	}
	if told != nil {
		s.recorder.Note(ctx, event.New(b.UID, scope.Actor(ctx), told(k)))
	}
	return r.withQueue(k), nil
}

// DeleteKernel ends a kernel with its cells: the one that runs, and those that
// wait without having begun.
func (s *Service) DeleteKernel(ctx context.Context, id, name string) error {
	if err := sandbox.ValidateName("kernel", name); err != nil {
		return err
	}
	b, r, done, err := s.useKernels(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	// Nobody puts a cell behind those that are ended here.
	unlock, err := r.sessions.Lock(ctx, kernelQueue(name))
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.emptyQueue(ctx, kernelQueue(name), "the kernel was deleted before its turn came"); err != nil {
		return err
	}
	err = r.withHelp(ctx, func() error { return r.guest.DeleteKernel(ctx, name) })
	r.mu.Lock()
	delete(r.languages, name)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	s.recorder.Note(ctx, event.New(b.UID, scope.Actor(ctx), event.KernelDelete{Kernel: name}))
	return nil
}

// emptyQueue ends the commands of a queue that wait.
func (r *run) emptyQueue(ctx context.Context, name, why string) error {
	r.mu.Lock()
	var seqs []int64
	if q := r.queues[name]; q != nil {
		seqs = append(seqs, q.seqs...)
	}
	r.mu.Unlock()
	var all error
	for _, seq := range seqs {
		_, err := r.endQueued(ctx, seq, why)
		all = errors.Join(all, err)
	}
	return all
}
