package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/kernel/startup"
)

const (
	// kernelStart is how long a kernel may take until it answers.
	kernelStart = 60 * time.Second
	// kernelLeave is how long one that is asked to end may take.
	kernelLeave = 2 * time.Second
	// portTries: somebody can take a port between its choice and its use.
	portTries = 5
	// portGrace is how long a kernel that misses a port may take until it
	// answers all the same: some go on without the port of their heartbeat.
	portGrace = 2 * time.Second
)

// kernelProcess is a kernel's process, from its launch until nothing of its
// tree is left.
type kernelProcess struct {
	s      *Set
	tree   *proc.Process
	dir    string
	env    []string // of the process, as it began or was changed since
	ports  []int    // that the agent reaches it on
	engine engine
	asks   bool        // interrupts go by message
	asked  atomic.Bool // a question is on its way, also one that was given up
	// answers has the kinds of questions that it has answered. Only its kernel's loop
	// looks at it.
	answers map[askKind]bool
	print   kernelPrint

	ended chan struct{} // closed when the process ended; status and known are set then
	done  chan struct{} // closed when nothing is left

	status syscall.WaitStatus
	known  bool
}

// startKernel starts a kernel and returns when it answers. Its errors are
// classified, or [proc.StartError].
func (s *Set) startKernel(ctx context.Context, asked *guestv1.KernelSpec) (*kernelProcess, kernelKind, error) {
	ctx, cancel := s.cfg.Uptime.WithTimeout(ctx, kernelStart, errKernelSlow)
	defer cancel()
	for try := 1; ; try++ {
		p, kind, err := s.tryKernel(ctx, asked)
		if taken, ok := errors.AsType[portTaken](err); !ok {
			return p, kind, err
		} else if try == portTries {
			return p, kind, taken.error
		}
	}
}

// portTaken is an error that another try can have no more.
type portTaken struct{ error }

var (
	errKernelSlow  = fmt.Errorf("it did not answer within %s", kernelStart)
	errKernelEnded = errors.New("its process ended")
	errPortTaken   = errors.New("another process took its port")
)

func (s *Set) tryKernel(ctx context.Context, asked *guestv1.KernelSpec) (*kernelProcess, kernelKind, error) {
	a, err := s.procs.Account(asked.GetUser())
	if err != nil {
		return nil, kernelKind{}, err
	}
	start := &guestv1.ExecStart{Cwd: asked.GetCwd(), Env: asked.GetEnv(), User: asked.GetUser()}
	kind, err := findKind(s.kernelKinds(a, s.procs.Environment(start.GetEnv(), a)), asked.GetLanguage())
	if err != nil {
		return nil, kind, err
	}
	p := &kernelProcess{
		s: s, env: s.procs.Environment(start.GetEnv(), a), ended: make(chan struct{}), done: make(chan struct{}),
		answers: make(map[askKind]bool),
	}
	connect, err := p.launch(kind, start, a)
	if err != nil {
		p.abandon()
		return nil, kind, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.background.Go(func() {
		select {
		case <-p.ended:
			cancel(errKernelEnded)
		case <-p.print.inUse:
			// IRkernel goes on without its port, and threads of ipykernel keep a
			// process that has failed.
			over, grace := s.cfg.Uptime.After(portGrace)
			defer grace.Stop()
			select {
			case <-p.ended:
				cancel(errKernelEnded)
			case <-over:
				cancel(errPortTaken)
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
	})
	if p.engine, err = connect.open(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		p.kill()
		<-p.ended
		p.settle()
		return nil, kind, p.failed(kind, err)
	}
	// Beside the ports that it was given, ipykernel has one for its children's
	// output. No cell has run yet: what listens is the kernel's own.
	p.setPorts(append(p.ports, p.tree.Ports()...))
	s.background.Go(p.watch)
	return p, kind, nil
}

// failed words why a kernel did not come up. Its tree is gone.
func (p *kernelProcess) failed(kind kernelKind, err error) error {
	<-p.print.done
	last := p.print.text()
	why, ended, taken := err.Error(), errors.Is(err, errKernelEnded), errors.Is(err, errPortTaken)
	if ended {
		why = p.howEnded()
	}
	text := fmt.Sprintf("the kernel %s did not come up: %s", kind.spec, why)
	if last != "" {
		text += "; it printed last:\n" + last
	}
	err = errs.E(errs.Unavailable, "%s", text)
	if taken || ended && addressInUse(last) {
		return portTaken{err}
	}
	return err
}

// launch starts the process.
func (p *kernelProcess) launch(kind kernelKind, start *guestv1.ExecStart, a proc.Account) (connect connector, err error) {
	if err := p.makeDir(); err != nil {
		return connect, proc.Classify(err, "the kernel's files")
	}
	files := p.s.procs.Files()
	var ours [2]*os.File
	for i := range ours {
		if ours[i], err = files.Pipe(i+1, true); err != nil {
			break
		}
	}
	switch {
	case err != nil:
		err = proc.Classify(err, "the kernel's output")
	case kind.jupyter != nil:
		connect, err = p.prepareJupyter(*kind.jupyter, start, a)
	default:
		connect, err = p.prepareNode(files, start, a)
	}
	if err == nil {
		p.tree, err = p.s.procs.Start("kernel", start, files)
	}
	files.Close()
	if err != nil {
		for _, f := range ours {
			if f != nil {
				f.Close()
			}
		}
		if connect.abandon != nil {
			connect.abandon()
		}
		return connect, err
	}
	p.print.done, p.print.inUse = make(chan struct{}), make(chan struct{})
	p.print.shown = kind.jupyter != nil && canonicalLanguage(kind.language) != "r"
	p.s.background.Go(func() { p.print.follow(p.s.life, ours[0], ours[1]) })
	p.s.background.Go(func() {
		p.status, p.known = <-p.tree.Ended()
		close(p.ended)
	})
	return connect, nil
}

// watch ends the whole tree when the process or the connection to it has
// ended: children live as long as their kernel.
func (p *kernelProcess) watch() {
	select {
	case <-p.ended:
		// What it sent before its end is still read.
		enough, t := p.s.cfg.Uptime.After(kernelLeave)
		defer t.Stop()
		select {
		case <-p.engine.Gone():
		case <-enough:
		}
	case <-p.engine.Gone():
		enough, t := p.s.cfg.Uptime.After(kernelLeave / 4)
		defer t.Stop()
		select {
		case <-p.ended: // by itself, as the reason shall say
		case <-enough:
		}
	}
	p.kill()
	<-p.ended
	p.engine.Close()
	p.settle()
}

// settle tidies up after the end.
func (p *kernelProcess) settle() {
	p.kill()
	p.abandon()
	p.tree.Forget()
	close(p.done)
}

func (p *kernelProcess) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// hasEnded reports whether the process has ended, though what it left may not
// be gone yet.
func (p *kernelProcess) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// expire waits for the end of a process that ends by itself, and ends it when
// that takes too long.
func (p *kernelProcess) expire() {
	enough, t := p.s.cfg.Uptime.After(kernelLeave)
	defer t.Stop()
	select {
	case <-p.ended:
	case <-enough:
		p.kill()
	}
	<-p.done
}

// prepare runs what makes the kernel cubby's, quietly. A kernel where it fails
// is one all the same.
func (p *kernelProcess) prepare(ctx context.Context, kind kernelKind) {
	code := startup.Code(kind.language)
	if code == "" {
		return
	}
	ctx, cancel := p.s.cfg.Uptime.WithTimeout(ctx, kernelStart, errKernelSlow)
	defer cancel()
	if _, err := p.engine.Execute(ctx, kernel.Cell{Code: code, Silent: true}, func(kernel.Output) {}); err != nil {
		p.s.cfg.Log.Debug("the preparation of a kernel failed", "kernel", kind.spec, "err", err)
	}
}

// killTimeout bounds kills that nobody waits for.
const killTimeout = 30 * time.Second

// kill ends everything of the kernel and returns when it is gone.
func (p *kernelProcess) kill() {
	ctx, cancel := p.s.cfg.Uptime.WithTimeout(context.WithoutCancel(p.s.life), killTimeout, nil)
	defer cancel()
	if err := p.tree.Kill(ctx); err != nil {
		p.s.cfg.Log.Warn("processes outlive their kernel", "err", err)
	}
}

// errStorm is why a kernel ends that heeded an interrupt.
var errStorm = errors.New("its processes go on forking")

// What tells a fork storm from servers that cells started and that live on.
const (
	stormSize   = 16 // with fewer processes it is none
	stormGrowth = 250 * time.Millisecond
)

// storms reports whether the kernel's processes are a fork storm: they are more
// than half of what the sandbox may have, or become more and more.
func (p *kernelProcess) storms() bool {
	first := len(p.tree.Members())
	if most := p.s.cfg.PIDs; most > 0 && int64(first) > most/2 {
		return true
	}
	if first < stormSize {
		return false
	}
	grown, t := p.s.cfg.Uptime.After(stormGrowth)
	defer t.Stop()
	select {
	case <-grown:
	case <-p.ended:
	}
	return len(p.tree.Members()) > first+first/4
}

// leave lets an idle kernel end itself, for what it does at its exit, and ends
// it then.
func (p *kernelProcess) leave() {
	ctx, cancel := p.s.cfg.Uptime.WithTimeout(p.s.life, kernelLeave, nil)
	defer cancel()
	p.engine.Leave(ctx)
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
	p.kill()
	<-p.done
}

// interrupt asks the kernel to end its cell, and only the kernel itself, so
// that servers which cells started live on.
func (p *kernelProcess) interrupt(cell int64) {
	if client, ok := p.engine.(jupyterEngine); ok && p.asks {
		ctx, cancel := p.s.cfg.Uptime.WithTimeout(p.s.life, interruptGrace, nil)
		defer cancel()
		_ = client.Interrupt(ctx)
		return
	}
	p.signal(p.tree.PID())
	if client, ok := p.engine.(nodeEngine); ok {
		_ = client.Interrupt(cell)
	}
}

// interruptAll is for when that was not enough: the kernel may wait for a child
// and not listen meanwhile.
func (p *kernelProcess) interruptAll() { p.signal(-p.tree.PID()) }

func (p *kernelProcess) signal(pid int) {
	select {
	case <-p.ended: // the pid may be somebody else's
	default:
		_ = syscall.Kill(pid, syscall.SIGINT)
	}
}

// howEnded says how the process ended; it has.
func (p *kernelProcess) howEnded() string {
	if oom := p.tree.OOM(); oom != "" {
		return oom
	}
	switch {
	case !p.known:
		return "its process was killed inside the sandbox"
	case p.status.Signaled():
		return "its process was killed by " + proc.SignalName(p.status.Signal())
	}
	return fmt.Sprintf("its process ended with exit code %d", p.status.ExitStatus())
}

// makeDir makes a directory for what the kernel reads. It stays root's, so
// that nothing in it can be turned into something else.
func (p *kernelProcess) makeDir() (err error) {
	p.dir, err = os.MkdirTemp(p.s.cfg.MapPath("/tmp"), ".cubby-kernel-")
	if err == nil {
		err = os.Chmod(p.dir, 0o711)
	}
	return err
}

// abandon gives back what the process took beside its tree.
func (p *kernelProcess) abandon() {
	p.setPorts(nil)
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// file writes one for the account alone.
func (p *kernelProcess) file(name string, content []byte, a proc.Account) (string, error) {
	path := filepath.Join(p.dir, name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if !p.s.cfg.OneUser {
		if err := f.Chown(int(a.UID), int(a.GID)); err != nil {
			return "", err
		}
	}
	_, err = f.Write(content)
	return path, err
}
