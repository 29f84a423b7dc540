package guest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Bounds of what an agent says about kernels; the real one keeps to them.
const (
	maxKernels    = 256
	maxKinds      = 256
	maxKernelText = 200
)

// CreateKernel makes a kernel and returns when it answers: errs.Conflict when
// the name is taken, errs.NotFound when the image has no kernel for the
// language, errs.Unavailable when it did not come up, with the end of what it
// printed.
func (c *Client) CreateKernel(ctx context.Context, spec sandbox.KernelSpec) (sandbox.Kernel, error) {
	m := &guestv1.KernelSpec{Name: spec.Name, Language: spec.Language, Cwd: spec.Cwd, User: spec.User}
	for _, k := range slices.Sorted(maps.Keys(spec.Env)) {
		m.Env = append(m.Env, k+"="+spec.Env[k])
	}
	res, err := c.rpc.CreateKernel(ctx, connect.NewRequest(&guestv1.CreateKernelRequest{Kernel: m}))
	if err != nil {
		return sandbox.Kernel{}, fromWire(ctx, err)
	}
	return kernelOf(res.Msg.GetKernel())
}

// PrepareKernel starts a kernel for the first who asks for one of this language,
// user and directory, with modules imported in it, and returns when it answers.
// Kinds as for CreateKernel; Invalid when a module is not found.
func (c *Client) PrepareKernel(ctx context.Context, spec sandbox.KernelSpec, modules []string) error {
	_, err := c.rpc.PrepareKernel(ctx, connect.NewRequest(&guestv1.PrepareKernelRequest{
		Kernel: &guestv1.KernelSpec{Language: spec.Language, Cwd: spec.Cwd, User: spec.User}, Modules: modules,
	}))
	return fromWire(ctx, err)
}

// Kernels returns the kernels by name, and those that the image brings.
func (c *Client) Kernels(ctx context.Context) ([]sandbox.Kernel, []sandbox.KernelKind, error) {
	res, err := c.rpc.ListKernels(ctx, connect.NewRequest(&guestv1.ListKernelsRequest{}))
	if err != nil {
		return nil, nil, fromWire(ctx, err)
	}
	var kernels []sandbox.Kernel
	for _, m := range res.Msg.GetKernels()[:min(len(res.Msg.GetKernels()), maxKernels)] {
		if k, err := kernelOf(m); err == nil {
			kernels = append(kernels, k)
		}
	}
	var kinds []sandbox.KernelKind
	for _, m := range res.Msg.GetKinds()[:min(len(res.Msg.GetKinds()), maxKinds)] {
		kinds = append(kinds, sandbox.KernelKind{
			Spec: label(m.GetSpec()), Language: label(m.GetLanguage()), DisplayName: label(m.GetDisplayName()),
		})
	}
	return kernels, kinds, nil
}

// InterruptKernel ends the cell that runs; without one it does nothing.
func (c *Client) InterruptKernel(ctx context.Context, name string) (sandbox.Kernel, error) {
	res, err := c.rpc.InterruptKernel(ctx, connect.NewRequest(&guestv1.InterruptKernelRequest{Name: name}))
	if err != nil {
		return sandbox.Kernel{}, fromWire(ctx, err)
	}
	return kernelOf(res.Msg.GetKernel())
}

// RestartKernel ends the kernel's process, with the cell that runs, and returns
// when a new one answers.
func (c *Client) RestartKernel(ctx context.Context, name string) (sandbox.Kernel, error) {
	res, err := c.rpc.RestartKernel(ctx, connect.NewRequest(&guestv1.RestartKernelRequest{Name: name}))
	if err != nil {
		return sandbox.Kernel{}, fromWire(ctx, err)
	}
	return kernelOf(res.Msg.GetKernel())
}

// DeleteKernel ends a kernel and every cell of it, and returns when nothing of
// it is left.
func (c *Client) DeleteKernel(ctx context.Context, name string) error {
	_, err := c.rpc.DeleteKernel(ctx, connect.NewRequest(&guestv1.DeleteKernelRequest{Name: name}))
	return fromWire(ctx, err)
}

var kernelStatuses = map[guestv1.KernelStatus]sandbox.KernelStatus{
	guestv1.KernelStatus_KERNEL_STATUS_STARTING: sandbox.KernelStarting,
	guestv1.KernelStatus_KERNEL_STATUS_IDLE:     sandbox.KernelIdle,
	guestv1.KernelStatus_KERNEL_STATUS_BUSY:     sandbox.KernelBusy,
	guestv1.KernelStatus_KERNEL_STATUS_DEAD:     sandbox.KernelDead,
}

func kernelOf(m *guestv1.Kernel) (sandbox.Kernel, error) {
	status, known := kernelStatuses[m.GetStatus()]
	if name := m.GetName(); !known || name == "" || name != label(name) {
		return sandbox.Kernel{}, errs.E(errs.Unavailable, "the sandbox's agent sent nonsense about a kernel")
	}
	return sandbox.Kernel{
		Name:        m.GetName(),
		Language:    label(m.GetLanguage()),
		Spec:        label(m.GetSpec()),
		DisplayName: label(m.GetDisplayName()),
		Status:      status,
		Reason:      clean(m.GetReason()),
		Count:       max(m.GetExecutionCount(), 0),
		PID:         max(m.GetPid(), 0),
		Restarts:    max(m.GetRestarts(), 0),
		Waiting:     max(m.GetWaiting(), 0),
		CreatedAt:   timeOf(m.GetCreatedAt()),
		StartedAt:   timeOf(m.GetStartedAt()),
	}, nil
}

// label is a name out of the guest, short and on one line.
func label(s string) string {
	if len(s) > maxKernelText {
		s = s[:maxKernelText]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
