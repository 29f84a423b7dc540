package guestd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
)

// exec is one command of the host, from its start until it is released.
type exec struct {
	uid   string
	out   *output
	begun chan struct{} // closed when it runs, or is known not to
	cell  *cell         // nil: a command

	mu        sync.Mutex
	tree      tree   // nil: never ran
	io        *stdio // nil: never ran
	startedAt time.Time
	blame     blame
	oom       string // set by the memory watchdog: which process was killed
	exit      *guestv1.ExecExit
}

// blame is what the agent did to end a command, so that the exit can say it.
type blame struct {
	reason guestv1.ExitReason
	signal syscall.Signal
	text   string
}

func newExec(uid string, b *budget) *exec {
	return &exec{uid: uid, out: newOutput(b), begun: make(chan struct{})}
}

// run carries the command out, from fork to exit. It returns when the exit is
// recorded; children that the command left live on.
func (s *Server) run(e *exec, start *guestv1.ExecStart) {
	ooms := s.ooms.count()
	t, err := s.begin(e, start)
	close(e.begun)
	if err != nil {
		e.finish(s.notStarted(err))
		return
	}
	s.endLate(e, t)
	var timer *time.Timer
	if limit := start.GetTimeout(); limit != nil && limit.AsDuration() > 0 {
		timer = time.AfterFunc(limit.AsDuration(), func() { s.timeout(e, t, limit.AsDuration()) })
	}
	for _, o := range e.io.outs {
		go o.copy(s.life, e.out, &s.buffers, s.cfg.Now)
	}
	ws, known := <-t.ended()
	if timer != nil {
		timer.Stop()
	}
	if e.io.in != nil {
		e.io.in.close()
	}
	at := s.cfg.Now()
	for _, o := range e.io.outs {
		o.drain(s.life, e.out, s.cfg.Now)
	}
	exit := e.conclude(ws, known, func() bool { return s.ooms.count() > ooms })
	exit.At = timestamppb.New(at)
	if !known || exit.Reason == guestv1.ExitReason_EXIT_REASON_TIMEOUT {
		// "Killed" is said of all of it.
		ctx, cancel := context.WithTimeout(s.life, outliveAfter)
		exit.Outlived = !awaitGone(ctx, t) && s.life.Err() == nil
		cancel()
	}
	e.finish(exit)
	for _, o := range e.io.outs {
		s.background.Go(func() { o.discard(s.life) })
	}
	s.keep(t, e)
}

// begin forks. Its errors are notStarted or of the system.
func (s *Server) begin(e *exec, start *guestv1.ExecStart) (tree, error) {
	c, err := resolve(s.cfg, &s.accounts, start)
	if err != nil {
		return nil, err
	}
	io, err := openStdio(start, s.null)
	if err != nil {
		return nil, err
	}
	io.owner(c.account)
	t, err := s.launch(c, io, start.GetPty() != nil)
	io.closeChild()
	if err != nil {
		io.close()
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tree, e.io, e.startedAt = t, io, s.cfg.Now()
	s.stir()
	return t, nil
}

func (s *Server) launch(c command, io *stdio, tty bool) (tree, error) {
	t, err := s.launcher.launch(c, io.child, tty)
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without a #! line: shells run it themselves.
		if sh, lookErr := lookPath("sh", c); lookErr == nil {
			c.argv = append([]string{"sh", c.path}, c.argv[1:]...)
			c.path = sh
			t, err = s.launcher.launch(c, io.child, tty)
		}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return nil, startRefused(c, errno)
	}
	return t, err
}

// startRefused words why the kernel did not start c.
func startRefused(c command, errno syscall.Errno) error {
	name := c.argv[0]
	switch errno {
	case syscall.EAGAIN:
		return cannotStart(codeNotExecutable, "%s: the sandbox has no room for another process", name)
	case syscall.ENOENT, syscall.ENOTDIR:
		return cannotStart(codeNotFound, "%s: not found, or its interpreter is missing", name)
	case syscall.EACCES:
		return cannotStart(codeNotExecutable, "%s: permission denied for user %s", name, c.account.name)
	case syscall.EPERM:
		return cannotStart(codeNotExecutable, "%s: not permitted as user %s", name, c.account.name)
	case syscall.E2BIG:
		return cannotStart(codeNotExecutable, "%s: arguments and environment are too long", name)
	case syscall.ENOEXEC:
		return cannotStart(codeNotExecutable, "%s: not a program for this machine", name)
	}
	return cannotStart(codeNotExecutable, "%s: %s", name, errno.Error())
}

func (s *Server) notStarted(err error) *guestv1.ExecExit {
	exit := &guestv1.ExecExit{
		Code:    codeNotExecutable,
		Reason:  guestv1.ExitReason_EXIT_REASON_NOT_STARTED,
		Message: errnoText(err),
		At:      timestamppb.New(s.cfg.Now()),
	}
	var ns *notStarted
	if errors.As(err, &ns) {
		exit.Code, exit.Message = ns.code, ns.message
	}
	return exit
}

func (s *Server) timeout(e *exec, t tree, limit time.Duration) {
	e.setBlame(blame{
		reason: guestv1.ExitReason_EXIT_REASON_TIMEOUT,
		signal: syscall.SIGKILL,
		text:   fmt.Sprintf("killed after its time limit of %s", limit),
	})
	ctx, cancel := context.WithTimeout(s.life, treeKillTimeout)
	defer cancel()
	if err := t.kill(ctx); err != nil {
		s.cfg.Log.Warn("a command outlives its time limit", "err", err)
	}
}

// outliveAfter is how long the processes of a command that was killed may live
// on before the host is asked to end them.
const outliveAfter = 2 * time.Second

// treeKillTimeout bounds kills that nobody waits for.
const treeKillTimeout = 30 * time.Second

// setBlame notes what the agent is about to do; the first kill counts.
func (e *exec) setBlame(b blame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exit == nil && e.blame.signal != syscall.SIGKILL {
		e.blame = b
	}
}

// setOOM notes that the memory watchdog killed one of the command's processes.
func (e *exec) setOOM(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exit == nil && e.oom == "" {
		e.oom = text
	}
}

// conclude says how the command ended. Its words are only as strong as what
// was seen: a reason counts when the status is one that it explains.
func (e *exec) conclude(ws syscall.WaitStatus, known bool, kernelOOM func() bool) *guestv1.ExecExit {
	e.mu.Lock()
	defer e.mu.Unlock()
	exit := &guestv1.ExecExit{Reason: guestv1.ExitReason_EXIT_REASON_EXITED}
	if !known {
		exit.Code, exit.Signal = 128+int32(syscall.SIGKILL), "SIGKILL"
		exit.Reason = guestv1.ExitReason_EXIT_REASON_LOST
		exit.Message = "the process that watched over the command was killed inside the sandbox, and the command with it"
		if e.blame.signal == syscall.SIGKILL {
			exit.Reason, exit.Message = e.blame.reason, e.blame.text
		}
		return exit
	}
	exit.Code = int32(ws.ExitStatus())
	if ws.Signaled() {
		exit.Code = 128 + int32(ws.Signal())
		exit.Signal = signalName(ws.Signal())
	}
	killed := exit.Code == 128+int32(syscall.SIGKILL)
	switch b := e.blame; {
	case b.reason != 0 && (ws.Signaled() && ws.Signal() == b.signal || exit.Code == 128+int32(b.signal)):
		exit.Reason, exit.Message = b.reason, b.text
	case e.oom != "" && exit.Code != 0:
		exit.Reason, exit.Message = guestv1.ExitReason_EXIT_REASON_OOM, e.oom
	case e.oom != "":
		exit.Message = e.oom
	case killed && kernelOOM():
		exit.Reason = guestv1.ExitReason_EXIT_REASON_OOM
		exit.Message = "killed by the kernel: the sandbox ran out of memory"
	}
	return exit
}

func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", sig)
}

// finish records the exit; nothing follows it.
func (e *exec) finish(exit *guestv1.ExecExit) {
	_, exit.Offset = e.out.offsets()
	e.mu.Lock()
	e.exit = exit
	e.mu.Unlock()
	e.out.finish()
}

func (e *exec) finished() *guestv1.ExecExit {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exit
}

// process returns what runs, or ran, and since when; pid is 0 when nothing ever
// did. It has begun.
func (e *exec) process() (pid int, at time.Time) {
	if e.cell != nil {
		e.cell.mu.Lock()
		pid = e.cell.pid
		e.cell.mu.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tree != nil {
		pid = e.tree.pid()
	}
	return pid, e.startedAt
}

// running waits until the command began and returns its tree, which may have
// lost its main process; errs.WrongState when it never ran.
func (e *exec) running(ctx context.Context) (tree, *stdio, error) {
	select {
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	case <-e.begun:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tree == nil {
		return nil, nil, errs.E(errs.WrongState, "the command was not started")
	}
	return e.tree, e.io, nil
}
