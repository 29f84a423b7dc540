package proc

import (
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/uptime"
)

// Config says how a [Runner] starts commands and what bounds them.
type Config struct {
	// Env is the sandbox's environment: every command has it below its own. It is
	// what the first ones get: see [Runner.SetEnv].
	Env []string
	// PIDs bounds the processes of all commands, OpenFiles the descriptors of
	// each; 0 is no bound.
	PIDs, OpenFiles int64
	// CgroupMount is a directory of the sandbox over which the cgroup
	// filesystem is mounted for a moment, where the kernel is the sandbox's
	// own; "" where it is not.
	CgroupMount string

	// Init: this process is PID 1 of the sandbox. The Runner reaps orphans and
	// may change what belongs to the whole process (limits, cgroups, threads).
	Init bool
	// Supervisor is the argv of a program that calls [Supervise]. Without it
	// and without CgroupMount a descendant that left the session and cleared
	// its environment is not found any more.
	Supervisor []string
	// OneUser: commands run as the agent's own user.
	OneUser bool
	// MapPath turns a path of the sandbox into one of this process's
	// filesystem.
	MapPath func(path string) string

	Log *slog.Logger
	Now func() time.Time
	// Uptime is the clock of limits and patience; nil is one of the Runner's own.
	Uptime *uptime.Clock
}
