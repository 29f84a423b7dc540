package kernels

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/uptime"
)

// Bounds of what a sandbox may hold.
const (
	maxKernels    = 64
	maxKernelName = 64
)

// Config says what a [Set] knows of the sandbox.
type Config struct {
	// PIDs bounds the processes of the sandbox; 0 is no bound.
	PIDs int64
	// OneUser: everything runs as the agent's own user.
	OneUser bool
	// MapPath turns a path of the sandbox into one of this process's
	// filesystem.
	MapPath func(path string) string

	Log *slog.Logger
	Now func() time.Time
	// Uptime is the clock of limits and patience; nil is one of the Set's own.
	Uptime *uptime.Clock
}

// Set is the kernels of a sandbox.
type Set struct {
	procs      *proc.Runner
	cfg        Config
	life       context.Context // ends when everything must
	cellBytes  atomic.Int64    // what all cells hold of their output
	running    sync.WaitGroup  // kernels, and the output of cells
	background sync.WaitGroup  // what looks after their processes

	mu      sync.Mutex
	kernels map[string]*liveKernel // by name
	spare   *liveKernel            // runs and is nobody's; nil: none is
	ports   map[int]bool           // that kernels themselves listen on
	ending  bool
}

// New makes a Set without kernels, whose processes procs starts. Whatever it
// does ends with life.
func New(life context.Context, procs *proc.Runner, cfg Config) *Set {
	if cfg.Uptime == nil {
		cfg.Uptime = uptime.New()
	}
	return &Set{procs: procs, cfg: cfg, life: life, kernels: make(map[string]*liveKernel), ports: make(map[int]bool)}
}

// addKernel makes a kernel that begins when it has something to do. s.mu is
// held.
func (s *Set) addKernel(name string, asked *guestv1.KernelSpec) (*liveKernel, error) {
	switch {
	case name == "" || len(name) > maxKernelName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return nil, errs.E(errs.Invalid, "malformed name of a kernel: %.64q", name)
	case asked.GetLanguage() == "":
		return nil, errs.E(errs.NotFound, "there is no kernel %q", name)
	case s.ending:
		return nil, errs.E(errs.WrongState, "the sandbox is shutting down")
	case s.kernels[name] != nil:
		return nil, errs.E(errs.Conflict, "there is a kernel %q already", name)
	case len(s.kernels) >= maxKernels:
		return nil, errs.E(errs.Exhausted, "the sandbox has %d kernels already", maxKernels)
	}
	if k := s.takeSpare(name, asked); k != nil {
		s.kernels[name] = k
		return k, nil
	}
	k := newLiveKernel(s, name, asked)
	s.kernels[name] = k
	s.running.Go(k.run)
	return k, nil
}

// setPorts notes which ports the kernel itself listens on.
func (p *kernelProcess) setPorts(ports []int) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for _, port := range p.ports {
		delete(p.s.ports, port)
	}
	p.ports = ports
	for _, port := range ports {
		p.s.ports[port] = true
	}
}

// OwnPort reports whether a kernel itself listens on a port, and not the code
// that it ran.
func (s *Set) OwnPort(port int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports[port]
}

func (s *Set) kernel(name string) (*liveKernel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kernels[name]; k != nil {
		return k, nil
	}
	return nil, errs.E(errs.NotFound, "there is no kernel %.64q", name)
}

// all returns the kernels and the spare one.
func (s *Set) all() []*liveKernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.kernels))
	if s.spare != nil {
		all = append(all, s.spare)
	}
	return all
}

// End refuses new kernels and orders the end of all: running and queued cells
// end with this cause.
func (s *Set) End(c proc.Cause) {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	for _, k := range s.all() {
		k.end(c)
	}
}

// Wait waits for everything that the Set does, after [Set.End] and the end of
// its life.
func (s *Set) Wait() {
	s.running.Wait()
	s.background.Wait()
}

// Create makes a kernel and returns when it answers. Without a name it gets that
// of its language.
func (s *Set) Create(ctx context.Context, asked *guestv1.KernelSpec) (*guestv1.Kernel, error) {
	if asked.GetLanguage() == "" {
		return nil, errs.E(errs.Invalid, "a kernel needs a language")
	}
	name := asked.GetName()
	if name == "" {
		kind, err := s.kindFor(asked)
		if err != nil {
			return nil, err
		}
		name = canonicalLanguage(kind.language)
	}
	s.mu.Lock()
	k, err := s.addKernel(name, asked)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if k.isReady() {
		return k.message(), nil
	}
	if err := k.again(ctx); err != nil {
		return nil, startError(err)
	}
	return k.message(), nil
}

// kindFor finds what a request names.
func (s *Set) kindFor(asked *guestv1.KernelSpec) (kernelKind, error) {
	a, err := s.procs.Account(asked.GetUser())
	if err != nil {
		return kernelKind{}, err
	}
	env := s.procs.Environment(asked.GetEnv(), a)
	return findKind(s.kernelKinds(a, env), asked.GetLanguage())
}

// List returns the kernels by name, and the kinds that the sandbox's default
// user can start.
func (s *Set) List() ([]*guestv1.Kernel, []*guestv1.KernelKind, error) {
	s.mu.Lock()
	var live []*guestv1.Kernel
	for _, name := range slices.Sorted(maps.Keys(s.kernels)) {
		live = append(live, s.kernels[name].message())
	}
	s.mu.Unlock()
	a, err := s.procs.Account("")
	if err != nil {
		return nil, nil, err
	}
	var kinds []*guestv1.KernelKind
	for _, kind := range s.kernelKinds(a, s.procs.Environment(nil, a)) {
		kinds = append(kinds, kind.message())
	}
	return live, kinds, nil
}

// Interrupt ends the cell that a kernel runs.
func (s *Set) Interrupt(name string) (*guestv1.Kernel, error) {
	k, err := s.kernel(name)
	if err != nil {
		return nil, err
	}
	k.interrupt()
	return k.message(), nil
}

// Restart starts a kernel anew and returns when it answers. Its state is lost.
func (s *Set) Restart(ctx context.Context, name string) (*guestv1.Kernel, error) {
	k, err := s.kernel(name)
	if err != nil {
		return nil, err
	}
	if err := k.again(ctx); err != nil {
		return nil, startError(err)
	}
	return k.message(), nil
}

// Delete ends a kernel and returns when nothing is left of it.
func (s *Set) Delete(ctx context.Context, name string) error {
	k, err := s.kernel(name)
	if err != nil {
		return err
	}
	k.end(proc.Cause{Reason: guestv1.ExitReason_EXIT_REASON_KILLED, Text: "the kernel was deleted"})
	select {
	case <-k.gone:
		return nil
	case <-ctx.Done():
		return errs.E(errs.Timeout, "the kernel is not gone yet").Because(context.Cause(ctx))
	}
}

// startError classifies why a kernel was not started.
func startError(err error) error {
	var ns *proc.StartError
	if errors.As(err, &ns) {
		return errs.E(errs.Unavailable, "%s", ns.Message)
	}
	return err
}
