package guest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// olderAgent is one of the first version of the protocol: it skips the fields that it does
// not know, and says that all went well.
type olderAgent struct {
	guestv1connect.UnimplementedGuestServiceHandler

	mu    sync.Mutex
	calls []string // guarded by mu
}

func (*olderAgent) Hello(context.Context, *connect.Request[guestv1.HelloRequest]) (*connect.Response[guestv1.HelloResponse], error) {
	return connect.NewResponse(&guestv1.HelloResponse{Version: "devel"}), nil
}

func (*olderAgent) Exec(_ context.Context, r *connect.Request[guestv1.ExecRequest], s *connect.ServerStream[guestv1.ExecResponse]) error {
	return s.Send(&guestv1.ExecResponse{Event: &guestv1.ExecResponse_Exit{Exit: &guestv1.ExecExit{Reason: guestv1.ExitReason_EXIT_REASON_EXITED}}})
}

func (a *olderAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.calls = append(a.calls, r.URL.Path)
	a.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		_, _ = io.Copy(io.Discard, r.Body)
		return // whatever the parameters are
	}
	_, h := guestv1connect.NewGuestServiceHandler(a)
	h.ServeHTTP(w, r)
}

// made are the calls that the agent got, but those that ask what it can do.
func (a *olderAgent) made() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, call := range a.calls {
		switch call[strings.LastIndex(call, "/")+1:] {
		case "Hello", "ListKernels", "Unkilled", "ListPorts":
		default:
			all = append(all, call)
		}
	}
	return all
}

// TestOlderAgentGivesNoFalseSuccess: what an older agent would pass over is not asked of
// it. A cell was answered as a success without being run.
func TestOlderAgentGivesNoFalseSuccess(t *testing.T) {
	agent := &olderAgent{}
	server := httptest.NewServer(agent)
	defer server.Close()
	c := guest.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
	defer c.Close()
	run := func(spec sandbox.ExecSpec) error {
		s, err := c.Exec(t.Context(), sandbox.NewUID(), &guest.Start{ExecSpec: spec}, 0)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Next()
		return err
	}
	body := &closing{Reader: strings.NewReader("content")}
	for name, call := range map[string]func() error{
		"a cell":                  func() error { return run(sandbox.ExecSpec{Cell: &sandbox.Cell{Kernel: "python", Code: "1"}}) },
		"a run of a service":      func() error { return run(sandbox.ExecSpec{Shell: "x", Service: &sandbox.ServiceRun{Name: "s"}}) },
		"a read within a dir":     func() error { _, _, err := c.ReadWithin(t.Context(), "/workspace", "/etc/shadow", 0, -1); return err },
		"an archive within a dir": func() error { _, err := c.ArchiveWithin(t.Context(), "/workspace", "/etc"); return err },
		"the system's archive":    func() error { _, err := c.ArchiveSystem(t.Context()); return err },
		"a write that replaces": func() error {
			_, err := c.Write(t.Context(), "f", body, sandbox.FileWrite{Replaces: []byte("x")})
			return err
		},
		"whether it takes a cell":  func() error { return c.Takes(t.Context(), sandbox.ExecSpec{Cell: &sandbox.Cell{Kernel: "python"}}) },
		"whether it takes a task":  func() error { return c.Takes(t.Context(), sandbox.ExecSpec{Program: sandbox.AgentTasks}) },
		"kernels":                  func() error { _, _, err := c.Kernels(t.Context()); return err },
		"ports":                    func() error { _, err := c.Ports(t.Context()); return err },
		"a kernel to be restarted": func() error { _, err := c.RestartKernel(t.Context(), "python"); return err },
	} {
		err := call()
		if !errors.Is(err, errs.Unsupported) || !strings.Contains(errs.Public(err).Hint, "stop the sandbox and start it") {
			t.Errorf("%s: %v, want unsupported and what to do", name, err)
		}
		if made := agent.made(); len(made) > 0 {
			t.Errorf("%s: the agent was asked %v", name, made)
			agent.mu.Lock()
			agent.calls = nil
			agent.mu.Unlock()
		}
	}
	// It keeps running what it can.
	if err := run(sandbox.ExecSpec{Shell: "true"}); err != nil {
		t.Errorf("a command: %v", err)
	}
	if err := c.Takes(t.Context(), sandbox.ExecSpec{Shell: "true"}); err != nil {
		t.Errorf("whether it takes a command: %v", err)
	}
}

type closing struct{ io.Reader }

func (closing) Close() error { return nil }
