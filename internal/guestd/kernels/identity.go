package kernels

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/kernel/startup"
)

// refreshLimit is how long a kernel may take to change its environment and its
// seeds.
const refreshLimit = 10 * time.Second

// Refresh makes kernels that run take the sandbox's environment of now before
// their next cell. It does not wait.
func (s *Set) Refresh() {
	for _, k := range s.all() {
		k.mu.Lock()
		k.stale = true
		k.mu.Unlock()
		k.stir()
	}
}

// Disown ends every cell that waits, and drops what others print from now on.
func (s *Set) Disown(cells []*Cell) {
	for _, c := range cells {
		c.exec.Output().Discard()
		if c.kernel != nil && c.kernel.withdraw(c) {
			c.refuse(&proc.Cause{Text: "the sandbox is a copy"})
		} else if c.in != nil {
			c.in.end() // nobody answers any more
		}
	}
}

// Reseed gives the kernels random generators whose state no copy of the sandbox
// has, which some have only in a new process. It waits for those that run no cell
// and says what is not done.
func (s *Set) Reseed(ctx context.Context) (warnings []string) {
	// A kernel may have been asked something as it was copied.
	ctx, cancel := s.cfg.Uptime.WithTimeout(ctx, firstAskLimit+refreshLimit, nil)
	defer cancel()
	all := s.all()
	slices.SortFunc(all, func(a, b *liveKernel) int { return strings.Compare(a.label(), b.label()) })
	answers := make([]chan string, len(all))
	for i, k := range all {
		answer := make(chan string, 1)
		k.mu.Lock()
		k.copies = append(k.copies, answer)
		if k.current == nil {
			answers[i] = answer
		}
		k.mu.Unlock()
		k.stir()
	}
	for i, k := range all {
		warning := fmt.Sprintf("the kernel %q runs a cell, with the random numbers of the sandbox that it was copied from; it gets its own when the cell ends", k.label())
		if answers[i] != nil {
			select {
			case warning = <-answers[i]:
			case <-ctx.Done():
				warning = fmt.Sprintf("the kernel %q did not take a fresh seed in time: %s", k.label(), sharedSeed)
			}
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	return warnings
}

// sharedSeed is what it means that a generator was not seeded.
const sharedSeed = "its random numbers are also those of the sandbox that it was copied from"

// PIDs are the kernels' own processes.
func (s *Set) PIDs() []int {
	var pids []int
	for _, k := range s.all() {
		k.mu.Lock()
		if k.process != nil {
			pids = append(pids, k.process.tree.PID())
		}
		k.mu.Unlock()
	}
	return pids
}

// refresh brings the process up to date, between two cells, and tells those who
// wait for fresh seeds how that went.
func (k *liveKernel) refresh(process *kernelProcess, waiting []chan string) {
	warning := ""
	if process != nil {
		warning = k.renew(process, len(waiting) > 0)
	}
	for _, w := range waiting {
		w <- warning
	}
}

// renew changes the environment of a process to that of now, and seeds its
// generators. Where that cannot be done in the process, it gives way to another,
// at once when nobody has used it. It returns a warning.
func (k *liveKernel) renew(process *kernelProcess, reseed bool) (warning string) {
	k.mu.Lock()
	kind, used, asked := k.kind, k.used, k.asked
	k.mu.Unlock()
	env, changes := process.changes(asked)
	if len(changes) == 0 && !reseed {
		return ""
	}
	can := kind.jupyter == nil && !reseed || kind.jupyter != nil && startup.Identity(kind.language, nil, false) != ""
	switch {
	case !used && (!can || readAtStart(changes)):
		k.replace(process)
		return ""
	case kind.jupyter == nil && reseed:
		warning = fmt.Sprintf("the kernel %q was ended, and its variables are lost: the random numbers of %s cannot be given a fresh seed", k.label(), kind.display)
		k.stop(process, "the sandbox was copied, and the kernel's random numbers could not be given a fresh seed")
		return warning
	case !can && reseed:
		return fmt.Sprintf("the kernel %q cannot be given a fresh seed: %s", k.label(), sharedSeed)
	case !can:
		return ""
	}
	err := k.tell(process, kind, changes, reseed)
	if err == nil {
		process.env = env
		return ""
	}
	k.s.cfg.Log.Debug("a kernel was not brought up to date", "kernel", kind.spec, "err", err)
	if reseed {
		return fmt.Sprintf("the kernel %q was not given a fresh seed (%.200s): %s", k.label(), err, sharedSeed)
	}
	return ""
}

// replace starts a process in the place of one that nobody has used. Meanwhile the
// kernel is one that starts, and not one that has ended: whoever asks for it waits.
func (k *liveKernel) replace(process *kernelProcess) {
	k.mu.Lock()
	k.process, k.came = nil, false
	modules := k.modules
	k.mu.Unlock()
	process.kill()
	<-process.done
	k.answer(nil, k.begin(modules))
}

// tell changes the process.
func (k *liveKernel) tell(process *kernelProcess, kind kernelKind, changes map[string]kernel.Variable, reseed bool) error {
	ctx, cancel := k.s.cfg.Uptime.WithTimeout(k.s.life, refreshLimit, errRefreshSlow)
	defer cancel()
	k.mu.Lock()
	if k.ending != nil || len(k.restart) > 0 {
		k.mu.Unlock()
		return errNoMore
	}
	k.abort = cancel
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.abort = nil
		k.mu.Unlock()
	}()
	if client, ok := process.engine.(nodeEngine); ok {
		return client.Environ(ctx, changes)
	}
	var failed error
	reply, err := process.engine.Execute(ctx, kernel.Cell{
		Code: startup.Identity(kind.language, changes, reseed), Silent: true,
	}, func(o kernel.Output) {
		if o.Error != nil {
			failed = fmt.Errorf("%s: %s", o.Error.Name, o.Error.Value)
		}
	})
	switch {
	case err != nil:
		return err
	case failed == nil && reply.Status != "ok":
		return fmt.Errorf("%s: %s", reply.Name, reply.Value)
	}
	return failed
}

var errRefreshSlow = fmt.Errorf("it did not answer within %s", refreshLimit)

// changes are what tells the environment of a process from the one that it would
// have if it began now.
func (p *kernelProcess) changes(asked *guestv1.KernelSpec) (now []string, changes map[string]kernel.Variable) {
	a, err := p.s.procs.Account(asked.GetUser())
	if err != nil {
		return p.env, nil
	}
	now = p.s.procs.Environment(asked.GetEnv(), a)
	return now, difference(p.env, now)
}

// difference is what has to change in an environment to make it another.
func difference(from, to []string) map[string]kernel.Variable {
	changes := map[string]kernel.Variable{}
	for _, kv := range from {
		name, value, _ := strings.Cut(kv, "=")
		changes[name] = kernel.Variable{Old: &value}
	}
	for _, kv := range to {
		name, value, _ := strings.Cut(kv, "=")
		c := changes[name]
		if c.New = &value; c.Old != nil && *c.Old == value {
			delete(changes, name)
			continue
		}
		changes[name] = c
	}
	return changes
}

// readAtStart reports whether an interpreter, or a library that it loads, may
// read one of the variables once, when it starts: a change would come too late.
func readAtStart(changes map[string]kernel.Variable) bool {
	for name := range changes {
		if slices.Contains(startNames, name) || slices.ContainsFunc(startPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			return true
		}
	}
	return false
}

var (
	startNames    = []string{"PATH", "HOME", "USER", "TZ", "TMPDIR", "DISPLAY", "VIRTUAL_ENV", "CUBBY_CRAN_MIRROR"}
	startPrefixes = []string{
		"PYTHON", "IPYTHON", "JUPYTER", "NODE_", "NPM_", "npm_", "R_", "LANG", "LC_", "LD_", "MPL", "XDG_",
		"OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "NUMEXPR_", "NUMBA_", "MALLOC_", "GLIBC_",
	}
)
