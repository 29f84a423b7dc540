package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/cleanup"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"
)

// wake is upstream's restore, detached, with a gate: the container is made, and
// its state is read only when somebody has said that the state is sound. To make
// it takes most of the time, in which that is found out.
type wake struct {
	bundleDir string
	pidFile   string
	imagePath string
	gate      int
}

// Name implements subcommands.Command.
func (*wake) Name() string { return "wake" }

// Synopsis implements subcommands.Command.
func (*wake) Synopsis() string { return "restore a container from a state that is being verified" }

// Usage implements subcommands.Command.
func (*wake) Usage() string {
	return "wake --bundle=DIR --pid-file=FILE --image-path=DIR --gate=FD <container id> - restore it once a byte can be read from FD.\n"
}

// SetFlags implements subcommands.Command.
func (w *wake) SetFlags(f *flag.FlagSet) {
	f.StringVar(&w.bundleDir, "bundle", "", "directory of the specification")
	f.StringVar(&w.pidFile, "pid-file", "", "file for the process id of the sandbox")
	f.StringVar(&w.imagePath, "image-path", "", "directory of the state")
	f.IntVar(&w.gate, "gate", -1, "descriptor from which a byte comes when the state is sound; its end when it is not")
}

// FetchSpec implements util.SubCommand.
func (w *wake) FetchSpec(conf *config.Config, f *flag.FlagSet) (string, *specs.Spec, error) {
	spec, err := specutils.ReadSpec(w.bundleDir, conf)
	return f.Arg(0), spec, err
}

// Execute implements subcommands.Command.
func (w *wake) Execute(_ context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	if f.NArg() != 1 || w.bundleDir == "" || w.imagePath == "" || w.gate < 0 {
		f.Usage()
		return subcommands.ExitUsageError
	}
	if err := w.restore(args[0].(*config.Config), f.Arg(0)); err != nil {
		return util.Errorf("%v", err)
	}
	return subcommands.ExitSuccess
}

func (w *wake) restore(conf *config.Config, id string) error {
	gate := os.NewFile(uintptr(w.gate), "gate")
	defer gate.Close()
	spec, err := specutils.ReadSpec(w.bundleDir, conf)
	if err != nil {
		return fmt.Errorf("reading spec: %w", err)
	}
	c, err := container.New(conf, container.Args{ID: id, Spec: spec, BundleDir: w.bundleDir, PIDFile: w.pidFile})
	if err != nil {
		return fmt.Errorf("creating container: %w", err)
	}
	undo := cleanup.Make(func() { _ = c.Destroy() })
	defer undo.Clean()
	if n, _ := gate.Read(make([]byte, 1)); n != 1 {
		return errors.New("the state is not sound")
	}
	if err := c.Restore(conf, w.imagePath, false, false, nil); err != nil {
		return fmt.Errorf("starting container: %w", err)
	}
	undo.Release()
	return nil
}
