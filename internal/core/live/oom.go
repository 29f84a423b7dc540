package live

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// lockKillWindow is how soon after a kill for file locks the end of the command
// is heard of.
const lockKillWindow = 5 * time.Second

// explainOOM lets an exit for want of memory say which process was killed on
// the host since a time. An agent that shares the host's kernel cannot know it.
// A kill for file locks looks to the agent like any other: such an exit becomes
// one for want of memory.
func (r *Run) explainOOM(exit sandbox.Exit, since time.Time) sandbox.Exit {
	reader, ok := driver.As[driver.OOMReader](r.s.cfg.Driver)
	killed := exit.Code != nil && *exit.Code == 128+int(syscall.SIGKILL) && (exit.Reason == sandbox.EndExited || exit.Reason == sandbox.EndKernel)
	if !ok || exit.Reason != sandbox.EndOOM && !killed {
		return exit
	}
	ctx, cancel := context.WithTimeout(r.ctx, verdictTime)
	defer cancel()
	kills, err := reader.OOMKills(ctx, r.Handle, since)
	if err != nil {
		r.s.cfg.Log.Debug("read who was killed for want of memory", telemetry.KeyUID, r.UID, telemetry.KeyErr, err)
	}
	if len(kills) == 0 {
		return exit
	}
	// The last one is what ended the command: those before it did not.
	last := kills[len(kills)-1]
	if killed && (last.Locks == 0 || r.s.cfg.Now().Sub(last.At) > lockKillWindow) {
		return exit // what the kernel kills the agent knows of
	}
	exit.Reason, exit.Message = sandbox.EndOOM, oomMessage(last, r.spec.Load().Limits.MemoryBytes)
	return exit
}

func oomMessage(k driver.OOMKill, limit int64) string {
	if k.Locks > 0 {
		return fmt.Sprintf("too many file locks: the sandbox held %d or more, which take memory of the host's kernel, so %s was killed", k.Locks, k.Process)
	}
	text := fmt.Sprintf("out of memory: the kernel killed %s, which used %d MiB; the sandbox's limit is %d MiB",
		k.Process, k.Bytes>>20, limit>>20)
	if k.Files > limit/4 {
		text += fmt.Sprintf(", and %d MiB of it belong to no process: they are files in memory, as in /dev/shm", k.Files>>20)
	}
	return text
}
