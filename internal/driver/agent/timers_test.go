package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/errs"
)

type timing struct {
	guestv1connect.UnimplementedGuestServiceHandler
	err error
}

func (a timing) PauseTimers(context.Context, *connect.Request[guestv1.PauseTimersRequest]) (*connect.Response[guestv1.PauseTimersResponse], error) {
	return connect.NewResponse(&guestv1.PauseTimersResponse{}), a.err
}

func (a timing) ResumeTimers(context.Context, *connect.Request[guestv1.ResumeTimersRequest]) (*connect.Response[guestv1.ResumeTimersResponse], error) {
	return connect.NewResponse(&guestv1.ResumeTimersResponse{}), a.err
}

func TestTimers(t *testing.T) {
	service := func(h guestv1connect.GuestServiceHandler) http.Handler {
		_, handler := guestv1connect.NewGuestServiceHandler(h)
		return handler
	}
	for _, tt := range []struct {
		name  string
		agent http.Handler
		want  error
	}{
		{"done", service(timing{}), nil},
		{"an agent that does not know the calls", service(guestv1connect.UnimplementedGuestServiceHandler{}), nil},
		{"an agent of before there were such calls", http.NotFoundHandler(), nil},
		{"an agent that fails", service(timing{err: errors.New("no")}), errs.Unavailable},
		{"an agent that is away", nil, errs.Unavailable},
	} {
		dial := func(context.Context) (net.Conn, error) { return nil, errs.E(errs.Unavailable, "away") }
		if tt.agent != nil {
			server := httptest.NewServer(tt.agent)
			defer server.Close()
			dial = func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
			}
		}
		if err := New(dial, new(capability.Known)).PauseTimers(t.Context()); !errors.Is(err, tt.want) {
			t.Errorf("%s: PauseTimers = %v, want %v", tt.name, err, tt.want)
		}
		if err := New(dial, new(capability.Known)).ResumeTimers(t.Context()); !errors.Is(err, tt.want) {
			t.Errorf("%s: ResumeTimers = %v, want %v", tt.name, err, tt.want)
		}
	}
}
