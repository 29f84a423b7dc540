package guestd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
)

const openNonblock = syscall.O_NONBLOCK | syscall.O_CLOEXEC

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
	// (limits, cgroups).
	Init bool
	// Supervisor is the argv of a program that calls [Supervise], normally
	// cubby-init itself. With it every command runs below a supervisor of its
	// own, so that no descendant can leave its tree; without it (and without
	// Boot.InSandboxCgroup) a descendant that left the session and cleared
	// its environment is not found any more, which is good enough only for a
	// Fake.
	Supervisor []string
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
	return &Server{
		fileService: newFileService(cfg),
		cfg:         cfg,
		bootID:      hex.EncodeToString(id[:]),
		started:     cfg.Now(),
	}
}

// Serve dials the host and answers it until ctx ends or the host asked for a
// shutdown; it then ends all commands and returns nil.
func (s *Server) Serve(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Handler answers one connection's requests: the service and the raw paths.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	path, h := guestv1connect.NewGuestServiceHandler(s, connect.WithInterceptors(errorInterceptor{}))
	mux.Handle(path, h)
	s.fileService.register(mux)
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
