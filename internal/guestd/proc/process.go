package proc

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// processes starts child processes and learns how they end. There are two
// kinds: as PID 1 every orphan of the sandbox becomes a child too and must be
// reaped, so one loop waits for all (reaper); as a library only own children
// may be waited for (direct).
type processes interface {
	// start forks and executes. The channel gets the wait status once.
	start(path string, argv []string, attr *syscall.ProcAttr) (pid int, ended <-chan syscall.WaitStatus, err error)
	close()
}

// direct waits for each child by its pid.
type direct struct{ wg sync.WaitGroup }

func (d *direct) start(path string, argv []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	d.wg.Go(func() {
		var ws syscall.WaitStatus
		for {
			if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR && (err != nil || over(ws)) {
				break
			}
		}
		ended <- ws
	})
	return pid, ended, nil
}

// over reports whether a wait status is an end. A child that asked to be traced
// (PTRACE_TRACEME) reports its stops to whoever waits for it, too.
func over(ws syscall.WaitStatus) bool { return ws.Exited() || ws.Signaled() }

func (d *direct) close() { d.wg.Wait() }

// reaper waits for every child of PID 1.
type reaper struct {
	signals chan os.Signal
	stop    chan struct{}
	stopped chan struct{}

	mu       sync.Mutex
	starting int                               // forks whose pid is not known yet
	early    map[int]syscall.WaitStatus        // ended while starting > 0
	waiting  map[int]chan<- syscall.WaitStatus // by pid
}

// newReaper reaps until close. sigchld must deliver SIGCHLD.
func newReaper(sigchld chan os.Signal) *reaper {
	r := &reaper{
		signals: sigchld,
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
		early:   make(map[int]syscall.WaitStatus),
		waiting: make(map[int]chan<- syscall.WaitStatus),
	}
	go r.run()
	return r
}

func (r *reaper) run() {
	defer close(r.stopped)
	for {
		select {
		case <-r.signals:
			r.reap()
		case <-r.stop:
			r.reap()
			return
		}
	}
}

func (r *reaper) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|unix.WALL, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil || pid <= 0:
			return
		case !over(ws):
			continue
		}
		r.mu.Lock()
		r.settle(pid, ws)
		r.mu.Unlock()
	}
}

// settle notes that pid ended. r.mu is held.
func (r *reaper) settle(pid int, ws syscall.WaitStatus) {
	if ended, ok := r.waiting[pid]; ok {
		delete(r.waiting, pid)
		ended <- ws
	} else if r.starting > 0 {
		// It may be a child whose fork has not returned to us yet.
		r.early[pid] = ws
	}
}

// expect notes who wants to know how pid ends. r.mu is held.
func (r *reaper) expect(pid int, ended chan<- syscall.WaitStatus) {
	if ws, ok := r.early[pid]; ok {
		delete(r.early, pid)
		ended <- ws
		return
	}
	r.waiting[pid] = ended
}

func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	r.starting++
	r.mu.Unlock()

	pid, err := syscall.ForkExec(path, argv, attr)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting--
	ended := make(chan syscall.WaitStatus, 1)
	if err == nil {
		r.expect(pid, ended)
	}
	if r.starting == 0 {
		clear(r.early)
	}
	return pid, ended, err
}

func (r *reaper) close() {
	close(r.stop)
	<-r.stopped
}

// notifySignals takes every signal, so that none that root inside sends can
// end the agent, and commands start with the defaults. It returns the channel
// of SIGCHLD.
func notifySignals() chan os.Signal {
	signal.Notify(make(chan os.Signal, 1))
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	return children
}
