package oci

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Identify implements driver.Driver. The agent takes the identity and writes the
// files of /etc, as the sandbox's root; in gVisor it sets the host name too. A
// container's is set from here, in its UTS namespace: that takes CAP_SYS_ADMIN
// over the container's user namespace, which nothing inside gets.
func (d *Driver) Identify(ctx context.Context, h driver.Handle, is driver.Identity) (driver.Handle, error) {
	n, err := parseHandle(h)
	if err != nil {
		return nil, err
	}
	if err := is.Validate(); err != nil {
		return nil, err
	}
	if is.ID == "" {
		return nil, errs.E(errs.Invalid, "an identity has an id")
	}
	r, err := d.held(h)
	if err != nil {
		return nil, err
	}
	name, err := agent.Identify(ctx, agent.New(r.line().Dial), n.Hostname, is)
	if err != nil {
		return nil, err
	}
	if n.Isolation == sandbox.Container {
		if err := r.process.setHostname(is.ID); err != nil {
			return nil, err
		}
	} else if name != is.ID {
		return nil, errs.E(errs.Internal, "the sandbox could not be named").Because(fmt.Errorf("its kernel has the name %.80q", name))
	}
	n.Hostname, n.Env = is.ID, is.Env
	return n.handle()
}

// setHostname names the UTS namespace of a process.
func (p *process) setHostname(name string) error {
	t := newThread()
	defer t.end()
	return t.do(func() error {
		// By the pidfd: it is the process that is held, or none.
		if err := p.enter(unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("enter the container's UTS namespace: %w", err)
		}
		return os.NewSyscallError("sethostname", unix.Sethostname([]byte(name)))
	})
}

// enter moves the calling thread into namespaces of the process.
func (p *process) enter(namespaces int) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = unix.Setns(int(fd), namespaces) })
	if err != nil {
		return err
	}
	return controlErr
}
