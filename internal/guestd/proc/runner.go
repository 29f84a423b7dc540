package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/uptime"
)

const openNonblock = syscall.O_NONBLOCK | syscall.O_CLOEXEC

// Runner starts commands and knows every process tree that may still live.
type Runner struct {
	cfg       Config
	env       atomic.Pointer[[]string] // the sandbox's environment now
	life      context.Context          // ends when everything must
	budget    *budget
	buffers   outletBuffers
	launcher  launcher
	processes processes
	accounts  accounts
	ooms      oomCounter
	null      *os.File       // /dev/null, for reading and writing
	running   sync.WaitGroup // execs until their exit
	behind    sync.WaitGroup // readers of what execs left behind
	stirred   chan struct{}  // a token when a command began

	mu     sync.Mutex
	live   map[*Exec]tree // trees whose command has not ended
	left   map[*Exec]tree // trees whose command ended and that may still live
	ending bool
}

// New makes a Runner; after [Runner.Open] it can start commands. Whatever it
// does ends with life.
func New(life context.Context, cfg Config) *Runner {
	if cfg.Uptime == nil {
		cfg.Uptime = uptime.New()
	}
	r := &Runner{
		cfg:     cfg,
		life:    life,
		budget:  newBudget(outputTotal),
		stirred: make(chan struct{}, 1),
		live:    make(map[*Exec]tree),
		left:    make(map[*Exec]tree),
	}
	r.SetEnv(cfg.Env)
	return r
}

// SetEnv replaces the sandbox's environment for what is started from now on; the
// Runner keeps env.
func (r *Runner) SetEnv(env []string) { r.env.Store(&env) }

// resolve is [resolve] with the sandbox's environment of now.
func (r *Runner) resolve(start *guestv1.ExecStart) (command, error) {
	cfg := r.cfg
	cfg.Env = *r.env.Load()
	return resolve(cfg, &r.accounts, start)
}

// Open chooses how commands are started and held together.
func (r *Runner) Open() (err error) {
	if r.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	r.processes = &direct{}
	if r.cfg.Init {
		r.ooms = newOOMCounter()
		r.processes = newReaper(notifySignals())
		if err := ownFaults(); err != nil {
			return err
		}
	}
	switch {
	case r.cfg.CgroupMount != "":
		files := r.cfg.OpenFiles
		if files == openFiles() {
			files = 0
		}
		groups, err := newCgroups(r.cfg.CgroupMount, r.cfg.PIDs, files, r.processes)
		if err != nil {
			return fmt.Errorf("cgroups inside the sandbox: %w", err)
		}
		r.launcher = groups
		if r.cfg.Init {
			r.behind.Go(func() { quiet(unused()...) })
		}
	case len(r.cfg.Supervisor) > 0:
		supervisors := newSupervisors(r.cfg, r.processes)
		r.launcher = supervisors
		r.behind.Go(supervisors.warm)
	default:
		r.launcher = &plainLauncher{cfg: r.cfg, procs: r.processes}
	}
	return nil
}

func openFiles() int64 {
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) != nil || lim.Cur != lim.Max {
		return -1
	}
	return int64(lim.Cur)
}

// Close waits for everything that the Runner does. All trees were ended with
// [Runner.End] and life is over.
func (r *Runner) Close() {
	r.running.Wait()
	r.behind.Wait()
	r.launcher.close()
	r.processes.close()
	r.null.Close()
}

// Account resolves a user as [LookupAccount] does, and remembers the answer
// while the files that it comes from stay the same.
func (r *Runner) Account(user string) (Account, error) { return r.accounts.lookup(user) }

// Environment is what a command of an account sees that brings variables of its
// own: what its user implies, the sandbox's environment, its own; later ones
// win.
func (r *Runner) Environment(own []string, a Account) []string {
	return environment(*r.env.Load(), &guestv1.ExecStart{Env: own}, a)
}

// OOMKills counts the kernel's out-of-memory kills in the sandbox as far as the
// agent sees them.
func (r *Runner) OOMKills() int64 { return r.ooms.count() }

// enter notes a tree whose command runs.
func (r *Runner) enter(e *Exec, t tree) {
	r.mu.Lock()
	r.live[e] = t
	r.mu.Unlock()
	select {
	case r.stirred <- struct{}{}:
	default:
	}
}

// leave notes that the command of a tree ended; while something lives in the
// tree it is remembered.
func (r *Runner) leave(e *Exec, t tree) {
	alive := t.alive()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, e)
	if alive {
		r.left[e] = t
	}
	// Looking at two others each time keeps the number bounded by what lives.
	looks := 2
	for other, of := range r.left {
		if looks--; looks < 0 {
			break
		}
		if other != e && !of.alive() {
			delete(r.left, other)
		}
	}
}

// forget drops a tree of which nothing is left.
func (r *Runner) forget(e *Exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, e)
}

// Left returns an exec whose command ended while what it had started lives on,
// nil when there is none.
func (r *Runner) Left(uid string) *Exec {
	if uid == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.left {
		if e.uid == uid {
			return e
		}
	}
	// The exit of a command is known a moment before its tree leaves.
	for e := range r.live {
		if e.uid == uid && e.Exit() != nil {
			return e
		}
	}
	return nil
}

// Disown makes [Runner.Left] forget every Exec of now. What they run goes on.
func (r *Runner) Disown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.live {
		e.uid = ""
	}
	for e := range r.left {
		e.uid = ""
	}
}

// Rename gives an Exec that runs another uid, after [Runner.Disown], and has its
// output count from 0. It reports false, and does nothing, when it has ended.
func (r *Runner) Rename(e *Exec, uid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exit != nil {
		return false
	}
	e.uid = uid
	e.out.restart()
	return true
}

// trees are all trees that may live, with the execs that they belong to.
func (r *Runner) trees() map[*Exec]tree {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[*Exec]tree, len(r.live)+len(r.left))
	for e, t := range r.live {
		all[e] = t
	}
	for e, t := range r.left {
		all[e] = t
	}
	return all
}

func (r *Runner) anyAlive() bool {
	for _, t := range r.trees() {
		if t.alive() {
			return true
		}
	}
	return false
}

// ownerOf returns the exec in whose tree pid lives, or nil.
func (r *Runner) ownerOf(pid int) *Exec {
	for e, t := range r.trees() {
		for _, m := range t.members() {
			if m == pid {
				return e
			}
		}
	}
	return nil
}

// shutdown is the cause of an end with the sandbox.
func shutdown(sig syscall.Signal) Cause {
	return Cause{Reason: guestv1.ExitReason_EXIT_REASON_SHUTDOWN, Signal: sig, Text: ShutdownText}
}

// ShutdownText is what ends with the sandbox says.
const ShutdownText = "the sandbox was stopped"

// Refuse makes the Runner end whatever is started from now on. Call it before
// [Runner.End].
func (r *Runner) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = true
}

// End ends every process: SIGTERM, then SIGKILL for what is left after grace.
func (r *Runner) End(ctx context.Context, grace time.Duration) {
	trees := r.trees()
	for e, t := range trees {
		e.setCause(shutdown(syscall.SIGTERM))
		if grace > 0 {
			for _, pid := range t.members() {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
	}
	if grace > 0 {
		ctx, cancel := r.cfg.Uptime.WithTimeout(ctx, grace, nil)
		_ = killUntil(ctx, r.anyAlive, func() {})
		cancel()
	}
	ctx, cancel := r.cfg.Uptime.WithTimeout(ctx, treeKillTimeout, nil)
	defer cancel()
	for e, t := range trees {
		e.setCause(shutdown(syscall.SIGKILL))
		if err := t.kill(ctx); err != nil && !errors.Is(err, context.Canceled) {
			r.cfg.Log.Warn("processes outlive the shutdown", "err", err)
		}
	}
}

// endLate ends a command that was being started while all others were ended.
func (r *Runner) endLate(e *Exec, t tree) {
	r.mu.Lock()
	ending := r.ending
	r.mu.Unlock()
	if !ending {
		return // End will see it
	}
	ctx, cancel := r.cfg.Uptime.WithTimeout(r.life, treeKillTimeout, nil)
	defer cancel()
	e.setCause(shutdown(syscall.SIGKILL))
	if err := t.kill(ctx); err != nil && !errors.Is(err, context.Canceled) {
		r.cfg.Log.Warn("a process outlives the shutdown", "err", err)
	}
}
