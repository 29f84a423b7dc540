package rest

import (
	"context"
	"net/http"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// KernelNameInput is exported because huma sets it inside of other inputs.
type KernelNameInput struct {
	IDInput
	Kernel string `path:"kernel" doc:"Its name."`
}

type kernelOutput struct{ Body Kernel }

func (d *door) kernelRoutes() {
	const path = "/v1/sandboxes/{id}/kernels"
	register(d, operation{
		id: "create-kernel", method: http.MethodPost, path: path, tag: "code", status: http.StatusCreated,
		summary:     "Start a kernel",
		description: "Answers when it takes cells. A cell makes the kernel that it names by itself; this gives it a directory, an environment and a user. 409 when the name is taken.",
	}, func(ctx context.Context, in *struct {
		IDInput
		Body KernelInput
	}) (*kernelOutput, error) {
		b := in.Body
		return kernelAnswer(d.Core.Kernels().Create(ctx, in.ID, sandbox.KernelSpec{
			Name: b.Name, Language: b.Language, Cwd: b.Cwd, Env: b.Env, User: b.User,
		}))
	})
	register(d, operation{
		id: "list-kernels", method: http.MethodGet, path: path, tag: "code", summary: "List kernels, and those that the image brings",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body KernelList }, error) {
		kernels, kinds, err := d.Core.Kernels().List(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := KernelList{Kernels: make([]Kernel, len(kernels)), Available: make([]KernelKind, len(kinds))}
		for i, k := range kernels {
			out.Kernels[i] = kernelJSON(k)
		}
		for i, k := range kinds {
			out.Available[i] = KernelKind(k)
		}
		return &struct{ Body KernelList }{out}, nil
	})
	register(d, operation{
		id: "get-kernel", method: http.MethodGet, path: path + "/{kernel}", tag: "code", summary: "Get a kernel",
	}, func(ctx context.Context, in *KernelNameInput) (*kernelOutput, error) {
		return kernelAnswer(d.Core.Kernels().Get(ctx, in.ID, in.Kernel))
	})
	register(d, operation{
		id: "interrupt-kernel", method: http.MethodPost, path: path + "/{kernel}/interrupt", tag: "code", summary: "Interrupt the cell that runs",
		description: "The kernel keeps its state. A cell that does not end within 5 seconds takes the kernel with it.",
	}, func(ctx context.Context, in *KernelNameInput) (*kernelOutput, error) {
		return kernelAnswer(d.Core.Kernels().Interrupt(ctx, in.ID, in.Kernel))
	})
	register(d, operation{
		id: "restart-kernel", method: http.MethodPost, path: path + "/{kernel}/restart", tag: "code", summary: "Start a kernel anew, without its state",
		description: "The cell that runs ends with the process; those that wait run in the new one.",
	}, func(ctx context.Context, in *KernelNameInput) (*kernelOutput, error) {
		return kernelAnswer(d.Core.Kernels().Restart(ctx, in.ID, in.Kernel))
	})
	register(d, operation{
		id: "delete-kernel", method: http.MethodDelete, path: path + "/{kernel}", tag: "code", status: http.StatusNoContent,
		summary: "End a kernel and forget it",
	}, func(ctx context.Context, in *KernelNameInput) (*struct{}, error) {
		return nil, d.Core.Kernels().Delete(ctx, in.ID, in.Kernel)
	})
}

func kernelAnswer(k sandbox.Kernel, err error) (*kernelOutput, error) {
	if err != nil {
		return nil, err
	}
	return &kernelOutput{kernelJSON(k)}, nil
}
