package client

import (
	"context"
	"net/http"
	"time"
)

// KernelOptions is a kernel to make.
type KernelOptions struct {
	Name string `json:"name,omitempty"` // default the language's
	// Language is "python", "node", "r", "bash" or a kernelspec of the image;
	// default the sandbox's runtime, or python.
	Language string            `json:"language,omitempty"`
	Cwd      string            `json:"cwd,omitempty"`  // default /workspace
	Env      map[string]string `json:"env,omitempty"`  // on top of the sandbox's
	User     string            `json:"user,omitempty"` // default the sandbox's
}

// Kernel is a long-lived interpreter in a running sandbox. It ends with the
// sandbox's stop.
type Kernel struct {
	Name        string `json:"name"`
	Language    string `json:"language"`
	Spec        string `json:"spec"`
	DisplayName string `json:"display_name"`
	// Status is "starting", "idle", "busy" or "dead"; Reason says why it is
	// dead. The next cell starts a dead one anew.
	Status         string `json:"status"`
	Reason         string `json:"reason,omitempty"`
	ExecutionCount int64  `json:"execution_count"` // cells that ran in the present process
	PID            int64  `json:"pid"`             // inside the sandbox; 0: no process
	Restarts       int64  `json:"restarts"`
	Waiting        int64  `json:"waiting"` // cells behind the running one

	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at,omitempty"` // of the present process
}

// KernelKind is a kernel that the sandbox's image brings.
type KernelKind struct {
	Spec        string `json:"spec"`
	Language    string `json:"language"`
	DisplayName string `json:"display_name"`
}

// CreateKernel starts a kernel and returns when it takes cells. A name that is
// taken is a [Conflict].
func (c *Client) CreateKernel(ctx context.Context, id string, o KernelOptions) (Kernel, error) {
	var k Kernel
	return k, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "kernels"), json: o}, &k)
}

// Kernels lists the kernels of a sandbox, and those that its image brings.
func (c *Client) Kernels(ctx context.Context, id string) ([]Kernel, []KernelKind, error) {
	var answer struct {
		Kernels   []Kernel     `json:"kernels"`
		Available []KernelKind `json:"available"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "kernels")}, &answer)
	return answer.Kernels, answer.Available, err
}

// Kernel returns one kernel.
func (c *Client) Kernel(ctx context.Context, id, name string) (Kernel, error) {
	var k Kernel
	return k, c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "kernels", name)}, &k)
}

// InterruptKernel interrupts the cell that runs; the state stays.
func (c *Client) InterruptKernel(ctx context.Context, id, name string) (Kernel, error) {
	var k Kernel
	return k, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "kernels", name, "interrupt")}, &k)
}

// RestartKernel ends the kernel's process with everything in it and starts it
// anew.
func (c *Client) RestartKernel(ctx context.Context, id, name string) (Kernel, error) {
	var k Kernel
	return k, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "kernels", name, "restart")}, &k)
}

// DeleteKernel ends a kernel and forgets it.
func (c *Client) DeleteKernel(ctx context.Context, id, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sandboxPath(id, "kernels", name)}, nil)
}
