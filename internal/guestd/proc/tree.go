package proc

import (
	"context"
	"os"
	"syscall"
	"time"
)

// launcher starts commands so that everything that descends from one can be
// found again, wherever it went.
type launcher interface {
	// launch starts c with files as its descriptors from 0 on, three to
	// maxFiles of them; with tty the first is its controlling terminal. It is a
	// syscall.Errno when the kernel refused, and nothing runs then.
	launch(c command, files []int, tty bool) (tree, error)
	close()
}

// maxFiles bounds what a command is given.
const maxFiles = 6

// tree is a command that was started, with all that descends from it.
type tree interface {
	// pid is the command's own, which is also its process group and session.
	pid() int
	// ended gets the command's wait status, or is closed without one when
	// nobody can know it any more.
	ended() <-chan syscall.WaitStatus
	// members are the processes that live in it now.
	members() []int
	// alive reports whether there are any.
	alive() bool
	// kill ends all of them and returns when none is left or ctx ends.
	kill(ctx context.Context) error
}

// killUntil calls strike, then waits until alive is false, again and again:
// a process can fork between being seen and being hit.
func killUntil(ctx context.Context, alive func() bool, strike func()) error {
	const first, longest = 250 * time.Microsecond, 20 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := first; alive(); wait = min(2*wait, longest) {
		strike()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	return nil
}

// stopAndKill hits a tree that is found through /proc: first everything is
// stopped, so that nothing can fork away while it is being killed. What was
// forked between being seen and being hit is stopped in the next round; the
// stopped ones keep their places meanwhile, so a fork storm runs out of them.
// When ctx ends it stops looking: a look takes a starved agent seconds.
func stopAndKill(ctx context.Context, members func() []int) {
	const rounds = 8
	stopped := make(map[int]bool)
	var all []int
	for range rounds {
		before := len(stopped)
		all = members()
		for _, pid := range all {
			if !stopped[pid] {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
				stopped[pid] = true
			}
		}
		if len(stopped) == before || ctx.Err() != nil {
			break
		}
	}
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// awaitGone waits until nothing lives in a tree that was killed, or ctx ends.
func awaitGone(ctx context.Context, t tree) bool {
	return killUntil(ctx, t.alive, func() {}) == nil
}

// attributes of every command: a session of its own, its user, nothing
// inherited but files.
func (c command) attributes(files []int, tty, oneUser bool) *syscall.ProcAttr {
	attr := &syscall.ProcAttr{
		Dir: c.dir,
		Env: c.env,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: tty},
	}
	for _, fd := range files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if !oneUser {
		attr.Sys.Credential = &syscall.Credential{Uid: c.account.UID, Gid: c.account.GID, Groups: c.account.groups}
	}
	return attr
}

// plainLauncher starts children of this process and finds their descendants
// by parent, session and a mark in the environment. A hostile program can
// leave such a tree, so it serves a [Config] without isolation only.
type plainLauncher struct {
	cfg   Config
	procs processes
}

func (l *plainLauncher) launch(c command, files []int, tty bool) (tree, error) {
	mark := "CUBBY_TREE=" + newMark()
	c.env = append(c.env[:len(c.env):len(c.env)], mark)
	attr := c.attributes(files, tty, l.cfg.OneUser)
	before, _ := readProcess(os.Getpid())
	pid, ended, err := l.procs.start(c.path, c.argv, attr)
	if err != nil {
		return nil, err
	}
	t := &plainTree{main: pid, status: ended, mark: mark, since: before.since}
	// It may have ended already; then anything younger than the agent counts.
	if p, ok := readProcess(pid); ok {
		t.since = p.since
	}
	return t, nil
}

func (l *plainLauncher) close() {}

type plainTree struct {
	main   int
	status <-chan syscall.WaitStatus
	mark   string
	since  int64 // nothing older can be in the tree
}

func (t *plainTree) pid() int                         { return t.main }
func (t *plainTree) ended() <-chan syscall.WaitStatus { return t.status }
func (t *plainTree) members() []int                   { pids, _ := t.find(); return pids }

// alive takes who cannot be seen to live.
func (t *plainTree) alive() bool {
	pids, err := t.find()
	return err != nil || len(pids) > 0
}

func (t *plainTree) find() ([]int, error) {
	all, err := processTable()
	in := descendants(all, t.main)
	for pid, p := range all {
		if !in[pid] && !p.zombie && p.since >= t.since && (p.session == t.main || hasEnviron(pid, t.mark)) {
			in[pid] = true
		}
	}
	if p, ok := all[t.main]; ok && !p.zombie && p.session == t.main {
		in[t.main] = true
	}
	return keys(in), err
}

func (t *plainTree) kill(ctx context.Context) error {
	return killUntil(ctx, t.alive, func() { stopAndKill(ctx, t.members) })
}
