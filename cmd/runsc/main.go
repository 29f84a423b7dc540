// Command runsc is gVisor's runtime as cubby carries it: the upstream commands
// that a sandbox's life needs and nothing else. The stock main links helpers
// for remote checkpoints that are larger than all the rest.
//
// It differs from upstream in five things. Cubby puts the runtime into control
// groups itself and passes --ignore-cgroups, upon which upstream shows the
// host's memory and processors to the sandbox; here the sandbox sees the
// limits of its own specification (linux.resources). Its processes collect no garbage
// while they begin. It shields the first process of a sandbox from the others where the
// specification asks for that. Its clock is ready in milliseconds. And it has four
// commands of its own: suspend, proceed and wake, with which cubby keeps the memory of
// sandboxes, and ready, with which it makes the next one's kernel before it is needed.
// What takes a change of upstream's own code is in patches.
package main

import (
	"time"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/cubbyhq/cubby/internal/collector"
)

// While a sandbox begins, collecting took a fifth of the time until it answered.
const (
	beginTime = 2 * time.Second
	// beginHeap bounds what a process takes meanwhile: a state of many megabytes is
	// read with the collector at work.
	beginHeap = 128 << 20
)

func main() {
	collector.Later(beginTime, beginHeap, 0)
	cli.Run(nil, map[util.SubCommand]string{
		new(cmd.Run):          "",
		new(cmd.State):        "",
		new(cmd.Kill):         "",
		new(cmd.Delete):       "",
		new(cmd.List):         "",
		new(cmd.Exec):         "",
		new(cmd.Wait):         "",
		new(cmd.Pause):        "",
		new(cmd.Resume):       "",
		new(cmd.Events):       "",
		new(cmd.Checkpoint):   "",
		new(cmd.Restore):      "",
		new(cmd.FSCheckpoint): "",
		new(cmd.Debug):        "",
		new(suspend):          "",
		new(proceed):          "",
		new(wake):             "",
		new(ready):            "",

		new(boot):             "internal",
		new(goferCommand):     "internal",
		new(sentrycmd.Umount): "internal",
	}, []subcommands.Command{new(cmd.Platforms)})
}
