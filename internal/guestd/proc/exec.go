package proc

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
	"github.com/cubbyhq/cubby/internal/uptime"
)

// Exec is one command of the host, from its start until it is released: its
// output, and how it ended. A part of the agent that runs something else for
// the host, as the cells of a kernel, carries its Execs out itself, with
// [Exec.Begin] and [Exec.Finish].
type Exec struct {
	uid   string // guarded by the Runner's mu once it was entered; "": disowned
	out   *Output
	begun chan struct{} // closed when it runs, or is known not to

	mu        sync.Mutex
	tree      tree   // nil: never ran
	io        *stdio // nil: never ran
	startedAt time.Time
	causes    map[syscall.Signal]noted // by what the command would end of
	oom       string                   // set by the memory watchdog: which process was killed
	exit      *guestv1.ExecExit
}

// Cause is what the agent did to end a command, so that the exit can say it.
type Cause struct {
	Reason guestv1.ExitReason
	Signal syscall.Signal
	Text   string
}

// noted is a cause since when it may be one.
type noted struct {
	Cause
	at time.Time
}

// NewExec makes an Exec that has not begun.
func (r *Runner) NewExec(uid string) *Exec {
	return &Exec{uid: uid, out: newOutput(r.budget), begun: make(chan struct{})}
}

// Output is what the Exec printed and the host has not acknowledged.
func (e *Exec) Output() *Output { return e.out }

// Begun is closed when the Exec runs, or is known never to.
func (e *Exec) Begun() <-chan struct{} { return e.begun }

// Begin says that it runs since a time; the zero time: it never will. It is
// called once.
func (e *Exec) Begin(at time.Time) {
	e.mu.Lock()
	e.startedAt = at
	e.mu.Unlock()
	close(e.begun)
}

// Run carries a command out, from fork to exit, and returns at once. Children
// that the command leaves live on.
func (r *Runner) Run(e *Exec, start *guestv1.ExecStart) {
	r.running.Go(func() { r.run(e, start) })
}

// run returns when the exit is recorded.
func (r *Runner) run(e *Exec, start *guestv1.ExecStart) {
	ooms := r.ooms.count()
	t, err := r.begin(e, start)
	close(e.begun)
	if err != nil {
		e.Finish(NotStarted(err, r.cfg.Now()))
		return
	}
	r.endLate(e, t)
	var timer *uptime.Timer
	if limit := start.GetTimeout().AsDuration(); limit > 0 {
		timer = r.cfg.Uptime.AfterFunc(limit, func() { r.timeout(e, t, limit) })
	}
	for _, o := range e.io.outs {
		go o.copy(r.life, e.out, &r.buffers, r.cfg.Now)
	}
	ws, known := <-t.ended()
	if timer != nil {
		timer.Stop()
	}
	if e.io.in != nil {
		e.io.in.close()
	}
	at := r.cfg.Now()
	for _, o := range e.io.outs {
		o.drain(r.life, e.out, r.cfg)
	}
	exit := e.conclude(ws, known, func() bool { return r.ooms.count() > ooms })
	exit.At = timestamppb.New(at)
	if !known || exit.Reason == guestv1.ExitReason_EXIT_REASON_TIMEOUT {
		// "Killed" is said of all of it.
		ctx, cancel := r.cfg.Uptime.WithTimeout(r.life, outliveAfter, nil)
		exit.Outlived = !awaitGone(ctx, t) && r.life.Err() == nil
		cancel()
	}
	e.Finish(exit)
	for _, o := range e.io.outs {
		r.behind.Go(func() { o.discard(r.life) })
	}
	r.leave(e, t)
}

// begin forks. Its errors are StartError or of the system.
func (r *Runner) begin(e *Exec, start *guestv1.ExecStart) (tree, error) {
	c, err := r.resolve(start)
	if err != nil {
		return nil, err
	}
	io, err := openStdio(start, r.Files())
	if err != nil {
		return nil, err
	}
	io.owner(c.account)
	t, err := r.launch(c, io.fds, start.GetPty() != nil)
	io.Close()
	if err != nil {
		io.close()
		return nil, err
	}
	e.mu.Lock()
	e.tree, e.io, e.startedAt = t, io, r.cfg.Now()
	e.mu.Unlock()
	r.enter(e, t)
	return t, nil
}

func (r *Runner) launch(c command, files []int, tty bool) (tree, error) {
	t, err := r.launcher.launch(c, files, tty)
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without a #! line: shells run it themselves.
		if sh, lookErr := lookPath("sh", c); lookErr == nil {
			c.argv = append([]string{"sh", c.path}, c.argv[1:]...)
			c.path = sh
			t, err = r.launcher.launch(c, files, tty)
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
		return cannotStart(CodeNotExecutable, "%s: the sandbox has no room for another process", name)
	case syscall.ENOENT, syscall.ENOTDIR:
		return cannotStart(CodeNotFound, "%s: not found, or its interpreter is missing", name)
	case syscall.EACCES:
		return cannotStart(CodeNotExecutable, "%s: permission denied for user %s", name, c.account.name)
	case syscall.EPERM:
		return cannotStart(CodeNotExecutable, "%s: not permitted as user %s", name, c.account.name)
	case syscall.E2BIG:
		return cannotStart(CodeNotExecutable, "%s: arguments and environment are too long", name)
	case syscall.ENOEXEC:
		return cannotStart(CodeNotExecutable, "%s: not a program for this machine", name)
	}
	return cannotStart(CodeNotExecutable, "%s: %s", name, errno.Error())
}

// NotStarted is the exit of a command that never ran.
func NotStarted(err error, at time.Time) *guestv1.ExecExit {
	exit := &guestv1.ExecExit{
		Code:    CodeNotExecutable,
		Reason:  guestv1.ExitReason_EXIT_REASON_NOT_STARTED,
		Message: errnoText(err),
		At:      timestamppb.New(at),
	}
	var ns *StartError
	if errors.As(err, &ns) {
		exit.Code, exit.Message = ns.Code, ns.Message
	}
	return exit
}

func (r *Runner) timeout(e *Exec, t tree, limit time.Duration) {
	e.setCause(Cause{
		Reason: guestv1.ExitReason_EXIT_REASON_TIMEOUT,
		Signal: syscall.SIGKILL,
		Text:   fmt.Sprintf("killed after its time limit of %s", limit),
	})
	ctx, cancel := r.cfg.Uptime.WithTimeout(r.life, treeKillTimeout, nil)
	defer cancel()
	if err := t.kill(ctx); err != nil {
		r.cfg.Log.Warn("a command outlives its time limit", "err", err)
	}
}

// outliveAfter is how long the processes of a command that was killed may live
// on before the host is asked to end them.
const outliveAfter = 2 * time.Second

// treeKillTimeout bounds kills that nobody waits for.
const treeKillTimeout = 30 * time.Second

// dyingTime is how long a command may take to end of a signal. One that runs for longer
// has survived it.
const dyingTime = 10 * time.Second

// setCause notes what the agent is about to do. Of several kills the first counts, for
// nothing outlives one; of the same other signal the first that the command may be
// ending of yet.
func (e *Exec) setCause(c Cause) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first, known := e.causes[c.Signal]
	if e.exit != nil || known && (c.Signal == syscall.SIGKILL || time.Since(first.at) < dyingTime) {
		return
	}
	if e.causes == nil {
		e.causes = make(map[syscall.Signal]noted, 1)
	}
	e.causes[c.Signal] = noted{c, time.Now()}
}

// setOOM notes that the memory watchdog killed one of the command's processes.
func (e *Exec) setOOM(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exit == nil && e.oom == "" {
		e.oom = text
	}
}

// conclude says how the command ended. Its words are only as strong as what
// was seen: a reason counts when the status is one that it explains.
func (e *Exec) conclude(ws syscall.WaitStatus, known bool, kernelOOM func() bool) *guestv1.ExecExit {
	e.mu.Lock()
	defer e.mu.Unlock()
	exit := &guestv1.ExecExit{Reason: guestv1.ExitReason_EXIT_REASON_EXITED}
	if !known {
		exit.Code, exit.Signal = 128+int32(syscall.SIGKILL), "SIGKILL"
		exit.Reason = guestv1.ExitReason_EXIT_REASON_LOST
		exit.Message = "the process that watched over the command was killed inside the sandbox, and the command with it"
		if c, ok := e.causes[syscall.SIGKILL]; ok {
			exit.Reason, exit.Message = c.Reason, c.Text
		}
		return exit
	}
	exit.Code = int32(ws.ExitStatus())
	if ws.Signaled() {
		exit.Code = 128 + int32(ws.Signal())
		exit.Signal = SignalName(ws.Signal())
	}
	killed := exit.Code == 128+int32(syscall.SIGKILL)
	// Shells say 128 and the signal that ended what they ran.
	c, caused := e.causes[syscall.Signal(exit.Code-128)]
	switch {
	case caused:
		exit.Reason, exit.Message = c.Reason, c.Text
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

// SignalName is what people call a signal.
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", sig)
}

// Finish records the exit; nothing follows it.
func (e *Exec) Finish(exit *guestv1.ExecExit) {
	e.mu.Lock()
	_, exit.Offset = e.out.Offsets()
	e.exit = exit
	e.mu.Unlock()
	e.out.finish()
}

// Exit is how it ended; nil: it has not.
func (e *Exec) Exit() *guestv1.ExecExit {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exit
}

// Started returns the command's pid, 0 when none ever ran, and since when the
// Exec runs. It has begun.
func (e *Exec) Started() (pid int, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tree != nil {
		pid = e.tree.pid()
	}
	return pid, e.startedAt
}

// started waits until the command began and returns its tree, which may have
// lost its main process; errs.WrongState when it never ran.
func (e *Exec) started(ctx context.Context) (tree, *stdio, error) {
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
