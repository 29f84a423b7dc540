// Package runtimes knows what acts on a run need of its runtime. A run keeps the program
// that it was started with, which may be older than the daemon and lack a command, or a
// flag of one: it is asked what it has, and never for what it lacks.
package runtimes

import (
	"cmp"
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/embedded"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Act is something that a runtime of an older version may lack something for. What is no
// Act every runtime can: to begin with its own programs, to end, and to save the root
// filesystem.
type Act string

// The acts.
const (
	Keep Act = "to keep its memory" // for a sleep or a snapshot
	Wake Act = "to wake it"
)

// need is a command of a runtime, with flags.
type need struct {
	command string
	flags   []string
}

// needs has an entry for each act.
var needs = map[Act]need{
	Keep: {"suspend", []string{"hold", "image-path", "root-path"}},
	Wake: {"wake", []string{"bundle", "gate", "image-path", "pid-file"}},
}

// Program is the runtime of a run.
type Program struct {
	Path   string // of the program that runs, or that wrote the memory
	Digest string // "": it is none that cubby carries
	Origin string // where it was when the run began
}

// Known is what is known of runtimes. Its zero value asks each once.
type Known struct {
	mu   sync.Mutex
	help map[string]string // of a command, by program; guarded by mu
}

// helpTime bounds a question to a runtime.
const helpTime = 10 * time.Second

// Require is Unsupported, because of [driver.ErrOutdated], when a runtime lacks what an
// act needs. The one that this build carries lacks nothing.
func (k *Known) Require(ctx context.Context, of Program, act Act) error {
	if carried, err := embedded.Open(embedded.Runsc); err == nil && of.Digest == carried.Digest {
		return nil
	}
	help, err := k.helpOf(ctx, of, needs[act].command)
	if err != nil {
		return err
	}
	if !needs[act].met(help) {
		return errs.E(errs.Unsupported, "the sandbox's runtime is of an older version, which is not able %s", act).
			Hint("stop the sandbox and start it: it begins with the current runtime, and its files stay").Because(driver.ErrOutdated)
	}
	return nil
}

// Readable is NotFound when the runtime that wrote a memory, and that alone reads it,
// cannot do so as it is asked to.
func (k *Known) Readable(ctx context.Context, of Program) error {
	err := k.Require(ctx, of, Wake)
	if errors.Is(err, errs.Unsupported) {
		return errs.E(errs.NotFound, "the memory was kept by a runtime of an older version, which this daemon cannot have wake it").Because(err)
	}
	return err
}

// met reports whether a command whose help this is has the flags; "" is no command.
func (n need) met(help string) bool {
	for _, flag := range n.flags {
		if !strings.Contains(help, "\n  -"+flag) {
			return false
		}
	}
	return help != ""
}

// helpOf is what a runtime says of one of its commands; "" when it has none of the name.
func (k *Known) helpOf(ctx context.Context, of Program, command string) (string, error) {
	key := cmp.Or(of.Digest, of.Origin) + " " + command
	k.mu.Lock()
	help, known := k.help[key]
	k.mu.Unlock()
	if known {
		return help, nil
	}
	ctx, cancel := context.WithTimeout(ctx, helpTime)
	defer cancel()
	ask := exec.CommandContext(ctx, of.Path, "help", command)
	ask.WaitDelay = time.Second
	out, err := ask.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); ctx.Err() != nil || err != nil && !exited {
		return "", errs.E(errs.Unavailable, "the sandbox's runtime cannot be asked what it can do").Because(errors.Join(err, ctx.Err()))
	}
	if err == nil {
		help = "\n" + string(out)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.help == nil {
		k.help = map[string]string{}
	}
	k.help[key] = help
	return help, nil
}
