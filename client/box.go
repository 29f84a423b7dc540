package client

import (
	"context"

	"github.com/cubbyhq/cubby/client/internal/deadline"
)

// Box is a sandbox with the client that it was made by, for programs that need
// one sandbox: see [Create].
type Box struct {
	Sandbox
	Client *Client
}

// Create makes a sandbox on the daemon of the environment; see [FromEnv]. Close
// it at the end.
//
//	box, err := client.Create(ctx, client.CreateOptions{})
//	…
//	defer box.Close(ctx)
//	res, err := box.Exec(ctx, client.Shell("echo hello"))
func Create(ctx context.Context, o CreateOptions) (*Box, error) {
	c := FromEnv()
	made, err := c.Create(ctx, o)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Box{Sandbox: made, Client: c}, nil
}

// Exec is [Client.Exec].
func (b *Box) Exec(ctx context.Context, o ExecOptions) (Exec, error) {
	return b.Client.Exec(ctx, b.ID, o)
}

// RunCode is [Client.RunCode].
func (b *Box) RunCode(ctx context.Context, r CodeRequest) (Execution, error) {
	return b.Client.RunCode(ctx, b.ID, r)
}

// Files is [Client.Files].
func (b *Box) Files() *Files { return b.Client.Files(b.ID) }

// Close destroys the sandbox, also when ctx has ended, and gives up the
// connections.
func (b *Box) Close(ctx context.Context) error {
	defer b.Client.Close()
	closing, cancel := deadline.Outlive(ctx, killWait)
	defer cancel()
	return b.Client.Destroy(closing, b.ID)
}
