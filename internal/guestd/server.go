package guestd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
)

const openNonblock = syscall.O_NONBLOCK | syscall.O_CLOEXEC

// maxMessage bounds a request of the service; bulk goes over raw paths.
const maxMessage = 16 << 20

// Config says what an agent is.
type Config struct {
	// Boot is what the host told the agent.
	Boot *guestv1.Boot
	// Version is reported by Hello.
	Version string
	Log     *slog.Logger
	Now     func() time.Time // default time.Now

	// Init: this process is PID 1 of the sandbox. It reaps orphans and may
	// change what belongs to the whole process and the whole sandbox
	// (limits, cgroups, threads). Only one such Server may run.
	Init bool
	// Supervisor is the argv of a program that calls [Supervise], normally
	// cubby-init itself. With it every command runs below a supervisor of its
	// own, so that no descendant can leave its tree; without it (and without
	// Boot.InSandboxCgroup) a descendant that left the session and cleared
	// its environment is not found any more, which is good enough only for a
	// Fake.
	Supervisor []string
	// OneUser: commands run as the agent's own user whatever user they ask
	// for, and files keep its ownership. For a Fake that is not root, or that
	// works in directories other users cannot enter.
	OneUser bool
	// MapPath turns a path of the sandbox into one of this process's
	// filesystem; nil is the identity. Only a Fake without a mount namespace
	// needs it.
	MapPath func(path string) string
}

// Server is one agent. It implements the guest service: files.go brings the
// file methods.
type Server struct {
	*fileService
	cfg     Config
	bootID  string
	started time.Time

	budget     *budget
	cellBytes  atomic.Int64 // what all cells hold of their output
	buffers    outletBuffers
	life       context.Context // ends when everything must
	endLife    context.CancelFunc
	launcher   launcher
	accounts   accounts
	ooms       oomCounter
	null       int            // /dev/null, for reading and writing
	running    sync.WaitGroup // execs until their exit
	background sync.WaitGroup // readers of what execs left behind
	stirred    chan struct{}  // a token when a command began
	quit       chan struct{}  // closed when the host asked for the end
	quitOnce   sync.Once

	mu      sync.Mutex
	execs   map[string]*exec
	left    map[tree]*exec         // trees whose command ended and that may still live, and those of kernels
	kernels map[string]*liveKernel // by name
	ending  bool
}

// New makes an agent; [Server.Serve] runs it.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MapPath == nil {
		cfg.MapPath = func(p string) string { return p }
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	life, end := context.WithCancel(context.Background())
	return &Server{
		fileService: newFileService(cfg),
		cfg:         cfg,
		bootID:      hex.EncodeToString(id[:]),
		started:     cfg.Now(),
		budget:      newBudget(outputTotal),
		life:        life,
		endLife:     end,
		stirred:     make(chan struct{}, 1),
		quit:        make(chan struct{}),
		execs:       make(map[string]*exec),
		left:        make(map[tree]*exec),
		kernels:     make(map[string]*liveKernel),
	}
}

// Serve dials the host and answers it until ctx ends or the host asked for a
// shutdown; it then ends all commands and returns nil. It may be called once.
func (s *Server) Serve(ctx context.Context) error {
	defer s.endLife()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	s.null = int(null.Fd())
	if s.cfg.Init {
		s.ooms = newOOMCounter()
	}
	procs, err := s.openLauncher()
	if err != nil {
		return err
	}
	up := newUplink(s.cfg.Boot.GetSocket(), s.cfg.Boot.GetSecret(), s.cfg.Log)
	out, err := listenEgress(s.cfg, up)
	if err != nil {
		return fmt.Errorf("ports of the way out: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	var requests activity
	web := &http.Server{
		Handler:   s.Handler(),
		ConnState: requests.note,
		ErrorLog:  slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	parts.Go(func() { _ = web.Serve(up) })
	parts.Go(func() { up.run(ctx) })
	parts.Go(func() { out.run(ctx) })
	if budget := s.cfg.Boot.GetMemoryBytes(); budget > 0 && s.cfg.Boot.GetInSandboxCgroup() {
		parts.Go(func() { s.watchMemory(ctx, budget) })
	}

	select {
	case <-ctx.Done():
	case <-s.quit:
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.endAll(context.WithoutCancel(ctx), 0)
	// Streams end with their exec's exit and the host reads the answer to
	// its Shutdown; whoever does not in this time is cut off.
	requests.rest(context.WithoutCancel(ctx), 300*time.Millisecond)
	cancel()
	s.endLife()
	_ = web.Close()
	s.running.Wait()
	s.background.Wait()
	s.launcher.close()
	parts.Wait()
	procs.close()
	return nil
}

// openLauncher chooses how commands are started and held together.
func (s *Server) openLauncher() (processes, error) {
	var procs processes = &direct{}
	if s.cfg.Init {
		procs = newReaper(notifySignals())
	}
	switch boot := s.cfg.Boot; {
	case boot.GetInSandboxCgroup():
		// The directory of the socket is a mount target that every sandbox has.
		files := boot.GetOpenFiles()
		if files == openFiles() {
			files = 0
		}
		groups, err := newCgroups(filepath.Dir(boot.GetSocket()), boot.GetPids(), files, procs)
		if err != nil {
			return nil, fmt.Errorf("cgroups inside the sandbox: %w", err)
		}
		s.launcher = groups
		if s.cfg.Init {
			if err := shieldCgroups(boot); err != nil {
				return nil, fmt.Errorf("shield the sandbox's cgroups: %w", err)
			}
		}
	case len(s.cfg.Supervisor) > 0:
		supervisors := newSupervisors(s.cfg, procs)
		s.launcher = supervisors
		s.background.Go(supervisors.warm)
	default:
		s.launcher = &plainLauncher{cfg: s.cfg, procs: procs}
	}
	return procs, nil
}

func openFiles() int64 {
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) != nil || lim.Cur != lim.Max {
		return -1
	}
	return int64(lim.Cur)
}

// Handler answers one connection's requests: the service and the raw paths.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	path, h := guestv1connect.NewGuestServiceHandler(s,
		connect.WithInterceptors(errorInterceptor{}),
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil))
	mux.Handle(path, h)
	mux.Handle(guestv1connect.GuestServiceExecProcedure, held(h))
	mux.HandleFunc("GET "+pathDial, s.dialPort)
	s.register(mux)
	return mux
}

// Hello implements the guest service.
func (s *Server) Hello(context.Context, *connect.Request[guestv1.HelloRequest]) (*connect.Response[guestv1.HelloResponse], error) {
	return connect.NewResponse(&guestv1.HelloResponse{
		Version:   s.cfg.Version,
		BootId:    s.bootID,
		StartedAt: timestamppb.New(s.started),
	}), nil
}

// keep remembers a tree whose command ended, while something lives in it.
func (s *Server) keep(t tree, e *exec) {
	alive := t.alive()
	s.mu.Lock()
	defer s.mu.Unlock()
	if alive {
		s.left[t] = e
	}
	// Looking at two others each time keeps the number bounded by what lives.
	looks := 2
	for other := range s.left {
		if looks--; looks < 0 {
			break
		}
		if other != t && !other.alive() {
			delete(s.left, other)
		}
	}
}

// trees are all trees that may live, with the execs that they belong to.
func (s *Server) trees() map[*exec]tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[*exec]tree, len(s.execs)+len(s.left))
	for _, e := range s.execs {
		e.mu.Lock()
		if e.tree != nil {
			all[e] = e.tree
		}
		e.mu.Unlock()
	}
	for t, e := range s.left {
		all[e] = t
	}
	return all
}

func (s *Server) anyAlive() bool {
	for _, t := range s.trees() {
		if t.alive() {
			return true
		}
	}
	return false
}

// ownerOf returns the exec in whose tree pid lives, or nil.
func (s *Server) ownerOf(pid int) *exec {
	for e, t := range s.trees() {
		for _, m := range t.members() {
			if m == pid {
				return e
			}
		}
	}
	return nil
}

func (s *Server) stir() {
	select {
	case s.stirred <- struct{}{}:
	default:
	}
}
