package guestd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/guestd/kernels"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/redirect"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/uptime"
)

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
	// Supervisor is the argv of a program that calls [proc.Supervise], normally
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
	bootID  atomic.Pointer[string]
	started time.Time

	procs    *proc.Runner
	kernels  *kernels.Set
	life     context.Context // ends when everything must
	endLife  context.CancelFunc
	quit     chan struct{} // closed when the host asked for the end
	quitOnce sync.Once
	up       *uplink
	requests activity
	identity identity
	uptime   *uptime.Clock // of what the host pauses while it keeps the memory

	mu     sync.Mutex
	execs  map[string]exec // by uid, until they are released
	ending bool
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
	life, end := context.WithCancel(context.Background())
	clock := uptime.New()
	processes := cfg.processes()
	processes.Uptime = clock
	procs := proc.New(life, processes)
	s := &Server{
		fileService: newFileService(cfg),
		cfg:         cfg,
		started:     cfg.Now(),
		procs:       procs,
		kernels: kernels.New(life, procs, kernels.Config{
			PIDs: cfg.Boot.GetPids(), OneUser: cfg.OneUser, MapPath: cfg.MapPath, Log: cfg.Log, Now: cfg.Now, Uptime: clock,
		}),
		life:    life,
		endLife: end,
		quit:    make(chan struct{}),
		execs:   make(map[string]exec),
		uptime:  clock,
		up:      newUplink(cfg.Boot.GetSocket(), cfg.Boot.GetSecret(), cfg.Log),

		identity: identity{id: cfg.Boot.GetHostname(), env: cfg.Boot.GetEnv()},
	}
	s.drawBootID()
	return s
}

// drawBootID gives the agent an id that no other has: not one of another boot, and
// not the copies of its memory.
func (s *Server) drawBootID() {
	var id [16]byte
	_, _ = rand.Read(id[:])
	text := hex.EncodeToString(id[:])
	s.bootID.Store(&text)
}

// processes is how the agent's commands run.
func (cfg Config) processes() proc.Config {
	boot := cfg.Boot
	c := proc.Config{
		Env: boot.GetEnv(), PIDs: boot.GetPids(), OpenFiles: boot.GetOpenFiles(),
		Init: cfg.Init, Supervisor: cfg.Supervisor, OneUser: cfg.OneUser, MapPath: cfg.MapPath,
		Log: cfg.Log, Now: cfg.Now,
	}
	if boot.GetInSandboxCgroup() {
		// The directory of the socket is a mount target that every sandbox has.
		c.CgroupMount = filepath.Dir(boot.GetSocket())
	}
	return c
}

// Serve dials the host and answers it until ctx ends or the host asked for a
// shutdown; it then ends all commands and returns nil. It may be called once.
func (s *Server) Serve(ctx context.Context) error {
	defer s.endLife()
	if err := s.procs.Open(); err != nil {
		return err
	}
	up := s.up
	if s.cfg.Boot.GetSetRedirect() {
		// While the host was away this memory may have been kept, and woken.
		up.returned = func() {
			if err := redirect.Restore(); err != nil {
				s.cfg.Log.Error("connections are not redirected", "err", err)
			}
		}
	}
	out, err := listenEgress(s.cfg, up)
	if err != nil {
		return fmt.Errorf("ports of the way out: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	web := &http.Server{
		Handler:     s.Handler(),
		ConnContext: withConn,
		ConnState:   s.requests.note,
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	parts.Go(func() { _ = web.Serve(up) })
	parts.Go(func() { up.run(ctx) })
	parts.Go(func() { out.run(ctx) })
	if budget := s.cfg.Boot.GetMemoryBytes(); budget > 0 && s.cfg.Boot.GetInSandboxCgroup() {
		parts.Go(func() { s.procs.WatchMemory(ctx, budget) })
	}

	select {
	case <-ctx.Done():
	case <-s.quit:
	}
	s.endAll(context.WithoutCancel(ctx), 0)
	// Whoever does not read the answer to another request in this time is cut off.
	s.requests.rest(context.WithoutCancel(ctx), 300*time.Millisecond)
	cancel()
	s.endLife()
	_ = web.Close()
	s.kernels.Wait()
	s.procs.Close()
	parts.Wait()
	up.ends.end()
	return nil
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
	res := &guestv1.HelloResponse{
		Version:   s.cfg.Version,
		BootId:    *s.bootID.Load(),
		StartedAt: timestamppb.New(s.started),
	}
	for _, c := range sandbox.AgentCapabilities() {
		res.Capabilities = append(res.Capabilities, string(c))
	}
	return connect.NewResponse(res), nil
}
