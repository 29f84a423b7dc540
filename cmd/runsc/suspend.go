package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/sandbox"
)

// suspend is upstream's pause, fscheckpoint and checkpoint in one process, which
// begins when a byte comes on standard input: each of them by itself takes longer
// to start than to do its work. It writes no note of the pause, which could be
// lost between the two: whether a sandbox is paused is asked of its kernel, see
// proceed.
type suspend struct {
	loader
	imagePath string
	rootPath  string
	hold      bool
}

// Name implements subcommands.Command.
func (*suspend) Name() string { return "suspend" }

// Synopsis implements subcommands.Command.
func (*suspend) Synopsis() string { return "pause a container and save its filesystem and its state" }

// Usage implements subcommands.Command.
func (*suspend) Usage() string {
	return "suspend --image-path=DIR --root-path=DIR [--hold] <container id> - save both of one instant.\n"
}

// SetFlags implements subcommands.Command.
func (s *suspend) SetFlags(f *flag.FlagSet) {
	f.StringVar(&s.imagePath, "image-path", "", "directory for the state, which exists")
	f.StringVar(&s.rootPath, "root-path", "", "directory for the root filesystem, which exists")
	f.BoolVar(&s.hold, "hold", false, "after \"saved\" was said, stay until another byte comes on standard input, or its end, then resume; without it the container stays paused")
}

// Execute implements subcommands.Command.
func (s *suspend) Execute(_ context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	if f.NArg() != 1 || s.imagePath == "" || s.rootPath == "" {
		f.Usage()
		return subcommands.ExitUsageError
	}
	conf := args[0].(*config.Config)
	c, err := load(conf, f)
	if err != nil {
		util.Fatalf("loading container: %v", err)
	}
	if n, _ := os.Stdin.Read(make([]byte, 1)); n != 1 {
		util.Fatalf("nobody wants it any more")
	}
	// Whoever waits for the word may be gone, which must not end this in the pause.
	signal.Ignore(unix.SIGPIPE)
	if err := pause(c); err != nil {
		util.Fatalf("%v", err)
	}
	err = s.save(conf, c)
	if err == nil {
		_, err = fmt.Println("saved")
	}
	if s.hold {
		if err == nil {
			if _, err = os.Stdin.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
				err = nil
			}
		}
		if resumeErr := c.Sandbox.Resume(c.ID); resumeErr != nil {
			util.Fatalf("%v", resumeErr)
		}
	}
	if err != nil {
		util.Fatalf("%v", err)
	}
	return subcommands.ExitSuccess
}

// pausePatience is how long the tasks of a kernel may take to stop.
const pausePatience = 10 * time.Second

// pause pauses a container, and resumes it when a task does not stop.
func pause(c *container.Container) error {
	paused := make(chan error, 1)
	go func() { paused <- c.Sandbox.Pause(c.ID) }()
	select {
	case err := <-paused:
		return err
	case <-time.After(pausePatience):
	}
	if err := c.Sandbox.Resume(c.ID); err != nil {
		return err
	}
	return fmt.Errorf("a process does not stand still within %v", pausePatience)
}

func (s *suspend) save(conf *config.Config, c *container.Container) error {
	if err := c.FSSave(conf, s.rootPath, sandbox.FSSaveOpts{Paths: []checkpoint.ResourceID{{Path: "/"}}}); err != nil {
		return err
	}
	return c.Checkpoint(conf, s.imagePath, sandbox.CheckpointOpts{Compression: statefile.CompressionLevelDefault, Resume: true})
}

// loader finds the container that a command is about.
type loader struct{}

func load(conf *config.Config, f *flag.FlagSet) (*container.Container, error) {
	return container.Load(conf.RootDir, container.FullID{ContainerID: f.Arg(0)}, container.LoadOpts{})
}

// FetchSpec implements util.SubCommand.
func (loader) FetchSpec(conf *config.Config, f *flag.FlagSet) (string, *specs.Spec, error) {
	c, err := load(conf, f)
	if err != nil {
		return "", nil, fmt.Errorf("loading container: %w", err)
	}
	return c.ID, c.Spec, nil
}
