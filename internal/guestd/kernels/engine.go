package kernels

import (
	"context"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/kernel/jupyter"
	"github.com/cubbyhq/cubby/internal/kernel/node"
	"github.com/cubbyhq/cubby/internal/kernel/startup"
)

// engine is the agent's end of a kernel, whatever it speaks.
type engine interface {
	Execute(ctx context.Context, cell kernel.Cell, show func(kernel.Output)) (kernel.Reply, error)
	// Complete, Inspect and Check ask about code that is not run.
	Complete(ctx context.Context, code string, cursor int) (kernel.Completion, error)
	Inspect(ctx context.Context, code string, cursor, detail int) (kernel.Inspection, error)
	Check(ctx context.Context, code string) (kernel.Completeness, error)
	// Answer answers what the cell asked.
	Answer(value string) error
	// Leave asks the kernel to end itself.
	Leave(ctx context.Context)
	// Gone is closed when the connection has ended.
	Gone() <-chan struct{}
	// Close ends the connection and waits for what reads from it.
	Close()
}

type jupyterEngine struct{ *jupyter.Client }

func (e jupyterEngine) Leave(ctx context.Context) { _ = e.Shutdown(ctx) }

type nodeEngine struct{ *node.Client }

// Answer implements engine: the kernel for Node never asks.
func (nodeEngine) Answer(string) error { return nil }

// Leave implements engine: the kernel ends with its input.
func (e nodeEngine) Leave(context.Context) { e.Client.Close() }

// Close implements engine.
func (e nodeEngine) Close() {
	e.Client.Close()
	<-e.Gone()
}

// connector connects to a kernel that was launched; one of both is called.
type connector struct {
	open    func(context.Context) (engine, error)
	abandon func()
}

func (p *kernelProcess) prepareJupyter(spec jupyter.Kernelspec, start *guestv1.ExecStart, a proc.Account) (c connector, err error) {
	to, err := jupyter.NewConnection(spec.Name)
	if err != nil {
		return c, err
	}
	path, err := p.file("connection.json", to.File(), a)
	if err != nil {
		return c, proc.Classify(err, "the kernel's connection file")
	}
	p.setPorts(to.Ports())
	start.Argv = startup.Command(spec.Command(path))
	var env []string
	for k, v := range spec.Env {
		env = append(env, k+"="+v)
	}
	start.Env = append(env, start.GetEnv()...)
	p.asks = spec.InterruptByMessage()
	c.abandon = func() {}
	c.open = func(ctx context.Context) (engine, error) {
		client, err := jupyter.Dial(ctx, to, p.s.cfg.Uptime)
		if err != nil {
			return nil, err
		}
		return jupyterEngine{client}, nil
	}
	return c, nil
}

func (p *kernelProcess) prepareNode(files *proc.Files, start *guestv1.ExecStart, a proc.Account) (c connector, err error) {
	script, err := p.file("kernel.cjs", node.Script, a)
	if err != nil {
		return c, proc.Classify(err, "the kernel's script")
	}
	start.Argv = []string{nodeKernel, script}
	in, err := files.Pipe(3, false)
	if err != nil {
		return c, proc.Classify(err, "the kernel's pipes")
	}
	out, err := files.Pipe(4, true)
	if err != nil {
		in.Close()
		return c, proc.Classify(err, "the kernel's pipes")
	}
	stop, err := files.Pipe(5, false)
	if err != nil {
		in.Close()
		out.Close()
		return c, proc.Classify(err, "the kernel's pipes")
	}
	c.abandon = func() {
		in.Close()
		stop.Close()
		out.Close()
	}
	c.open = func(ctx context.Context) (engine, error) {
		client, err := node.Open(ctx, in, stop, out)
		if err != nil {
			return nil, err
		}
		return nodeEngine{client}, nil
	}
	return c, nil
}
