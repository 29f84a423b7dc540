package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
)

// proceed resumes a container if its kernel is paused. Upstream's resume believes
// a note of the pause, which is missing when whoever paused was killed before it
// wrote that; and a resume of a kernel that is not paused ends it.
type proceed struct{ loader }

// Name implements subcommands.Command.
func (*proceed) Name() string { return "proceed" }

// Synopsis implements subcommands.Command.
func (*proceed) Synopsis() string { return "resume a container if it is paused" }

// Usage implements subcommands.Command.
func (*proceed) Usage() string { return "proceed <container id> - resume it if it is paused.\n" }

// SetFlags implements subcommands.Command.
func (*proceed) SetFlags(*flag.FlagSet) {}

// Execute implements subcommands.Command.
func (*proceed) Execute(_ context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	if f.NArg() != 1 {
		f.Usage()
		return subcommands.ExitUsageError
	}
	c, err := load(args[0].(*config.Config), f)
	if err != nil {
		util.Fatalf("loading container: %v", err)
	}
	paused, err := pausedNow(c)
	if err == nil && paused {
		err = c.Sandbox.Resume(c.ID)
	}
	if err != nil {
		util.Fatalf("%v", err)
	}
	return subcommands.ExitSuccess
}

// pausedNow asks the container's kernel, once nothing is under way that pauses it
// or resumes it by itself.
func pausedNow(c *container.Container) (bool, error) {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		stacks, err := c.Sandbox.Stacks()
		if err != nil {
			return false, err
		}
		k := readStacks(stacks)
		// A pause that waits for a task that does not stop has begun all the same.
		if !k.saves && (!k.pauses || time.Since(begun) > pausePatience) {
			return k.stopped, nil
		}
	}
}

// kernelState is what the stacks of a kernel's goroutines, which are of one
// instant, tell of it.
type kernelState struct {
	pauses  bool // a call from outside is under way that pauses it
	saves   bool // one that pauses it and resumes it by itself
	stopped bool // its first task waits for a resume
}

// readStacks judges by the first task, which is the agent's: signals do not stop
// it, and its debugger would have to be root inside. A task that a resume has
// reached is about to run, and does not wait any more.
func readStacks(stacks string) (k kernelState) {
	has := func(s string, parts ...string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(s, part) })
	}
	for goroutine := range strings.SplitSeq(stacks, "\n\n") {
		head, _, _ := strings.Cut(goroutine, "\n")
		k.pauses = k.pauses || has(goroutine, "boot.(*containerManager).Pause(")
		k.saves = k.saves || has(goroutine, "boot.(*containerManager).Checkpoint(") || has(goroutine, "boot.(*containerManager).FSSave(")
		if firstTask.MatchString(goroutine) {
			k.stopped = has(goroutine, "kernel.(*Task).doStop(") && has(head, "[sync.Cond.Wait")
		}
	}
	return k
}

// firstTask is in the stack of the first task: gVisor shows the number of a task
// there.
var firstTask = regexp.MustCompile(`kernel\.\(\*Task\)\.run\(0x[0-9a-f]+, 0x1\)`)
