package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"
)

// ready makes a container before anybody needs it, with directories of nobody in
// the place of a sandbox's, says so, and waits for [orders]. By these it gives the
// container the directories of a sandbox and starts or restores it. To make a
// container takes half the time of either.
//
// When there is an end in the place of orders, the container goes. One whose orders could
// not be carried out ends too, and what is left of it is for whoever gave them to remove.
type ready struct {
	bundleDir string
	orders    int
	said      int
}

// Name implements subcommands.Command.
func (*ready) Name() string { return "ready" }

// Synopsis implements subcommands.Command.
func (*ready) Synopsis() string { return "make a container that becomes a sandbox's when it is told" }

// Usage implements subcommands.Command.
func (*ready) Usage() string {
	return "ready --bundle=DIR --orders=FD --said=FD <container id> - make a container, and start or restore it by orders.\n"
}

// SetFlags implements subcommands.Command.
func (r *ready) SetFlags(f *flag.FlagSet) {
	f.StringVar(&r.bundleDir, "bundle", "", "directory of the specification")
	f.IntVar(&r.orders, "orders", -1, "descriptor that orders are read from: an object in JSON, and true once the container may begin")
	f.IntVar(&r.said, "said", -1, "descriptor that a byte is written to when the container stands")
}

// FetchSpec implements util.SubCommand.
func (r *ready) FetchSpec(conf *config.Config, f *flag.FlagSet) (string, *specs.Spec, error) {
	spec, err := specutils.ReadSpec(r.bundleDir, conf)
	return f.Arg(0), spec, err
}

// orders say what a container that was made before becomes.
type orders struct {
	// Root is where the runtime's notes of the container were moved to.
	Root string `json:"root"`
	// Bundle has the specification of the sandbox. It differs from that of the
	// container in the sources of its bind mounts alone, as far as it is looked at.
	Bundle string `json:"bundle"`
	// PIDFile gets the process id of the sandbox before anything of it begins, and when
	// it may.
	PIDFile string `json:"pid_file"`
	// Stores are the directories for the files in which gVisor keeps changes to
	// filesystems, in the order in which the specification has those.
	Stores []string `json:"stores"`
	// Image is the directory of the state to restore; "": the container is started.
	Image string `json:"image,omitempty"`
}

// Execute implements subcommands.Command.
func (r *ready) Execute(_ context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	if f.NArg() != 1 || r.bundleDir == "" || r.orders < 0 || r.said < 0 {
		f.Usage()
		return subcommands.ExitUsageError
	}
	if err := r.serve(args[0].(*config.Config), f.Arg(0)); err != nil {
		return util.Errorf("%v", err)
	}
	return subcommands.ExitSuccess
}

func (r *ready) serve(conf *config.Config, id string) error {
	in := json.NewDecoder(os.NewFile(uintptr(r.orders), "orders"))
	said := os.NewFile(uintptr(r.said), "said")
	spec, err := specutils.ReadSpec(r.bundleDir, conf)
	if err != nil {
		return fmt.Errorf("reading spec: %w", err)
	}
	line, err := openLine(r.bundleDir)
	if err != nil {
		return err
	}
	defer line.close()
	c, err := container.New(conf, container.Args{ID: id, Spec: spec, BundleDir: r.bundleDir})
	if err != nil {
		return fmt.Errorf("creating container: %w", err)
	}
	undo := cleanup.Make(func() { _ = c.Destroy() })
	defer undo.Clean()
	if err := line.meet(); err != nil {
		return err
	}
	if err := line.made(); err != nil {
		return err
	}
	if _, err := said.Write([]byte{1}); err != nil {
		return err
	}
	_ = said.Close()
	var o orders
	if err := in.Decode(&o); err != nil {
		return fmt.Errorf("nobody needs it any more: %w", err)
	}
	undo.Release()
	err = o.carryOut(c, conf, line, func() (begin bool, err error) {
		err = in.Decode(&begin)
		return begin, err
	})
	if err != nil {
		// Whoever gave the orders may be gone, and removes the rest another time.
		for _, pid := range []int{c.SandboxPid(), c.GoferPid.Load()} {
			if pid > 0 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	return err
}

// carryOut makes a container that of a sandbox. It begins when may says so.
func (o orders) carryOut(was *container.Container, conf *config.Config, line *sentryLine, may func() (bool, error)) error {
	c, err := o.moved(was)
	if err != nil {
		return err
	}
	if err := o.furnish(c, conf, line); err != nil {
		return err
	}
	if begin, err := may(); err != nil || !begin {
		return errors.Join(errors.New("it is not to begin"), err)
	}
	if err := os.WriteFile(o.PIDFile, []byte(strconv.Itoa(c.SandboxPid())), 0o644); err != nil {
		return fmt.Errorf("writing PID file: %w", err)
	}
	if o.Image == "" {
		err = c.Start(conf)
	} else {
		err = c.Restore(conf, o.Image, false, false, nil)
	}
	if err != nil {
		return fmt.Errorf("starting container: %w", err)
	}
	return nil
}

// moved is a container whose notes were moved. What upstream holds of one knows where
// they were.
func (o orders) moved(was *container.Container) (*container.Container, error) {
	id := container.FullID{SandboxID: was.ID, ContainerID: was.ID}
	c, err := container.Load(o.Root, id, container.LoadOpts{Exact: true, SkipCheck: true})
	if err != nil {
		return nil, fmt.Errorf("loading container: %w", err)
	}
	c.Saver.RootDir, c.BundleDir = o.Root, o.Bundle
	// Where a path is too long for a socket, upstream has it elsewhere.
	if socket := c.Sandbox.ControlSocketPath; filepath.Dir(socket) == was.Saver.RootDir {
		c.Sandbox.ControlSocketPath = filepath.Join(o.Root, filepath.Base(socket))
	}
	return c, nil
}
