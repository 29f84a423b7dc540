// Command cubby-init is the agent inside a sandbox, PID 1 there. It reads what
// it must know from its standard input, then serves the host: see
// internal/guestd. Called as "cubby-init supervise" it is the supervisor of
// one command, which the agent starts by itself. As "cubby-init task" it
// supervises a coding agent: see internal/guestd/tasks.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/collector"
	"github.com/cubbyhq/cubby/internal/guestd"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/guestd/tasks"
	"github.com/cubbyhq/cubby/internal/task"
)

// version is set by the build.
var version = "devel"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "supervise" {
		proc.Supervise()
	}
	if len(os.Args) >= 2 {
		switch os.Args[1] {
		case task.Verb:
			os.Exit(tasks.Supervise())
		case task.RestoreVerb:
			os.Exit(tasks.Restore(os.Args[2:]))
		}
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cubby-init:", err)
		os.Exit(1)
	}
}

func run() error {
	// Small, and never in the way of the sandbox's own memory.
	collector.Later(2*time.Second, 32<<20, 128<<20)
	boot, err := guestd.ReadBoot(os.Stdin)
	if err != nil {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open "+os.DevNull, err)
	}
	if err := unix.Dup3(null, 0, 0); err != nil {
		return os.NewSyscallError("dup", err)
	}
	_ = unix.Close(null)

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	isInit := os.Getpid() == 1
	if isInit {
		if err := guestd.Prepare(boot, log); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return guestd.New(guestd.Config{
		Boot:       boot,
		Version:    version,
		Log:        log,
		Init:       isInit,
		Supervisor: []string{self, "supervise"},
	}).Serve(context.Background())
}
