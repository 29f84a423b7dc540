package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

type answering struct {
	guestv1connect.UnimplementedGuestServiceHandler
	hostname string
	copied   bool
	warnings []string
	err      error
}

func (answering) Hello(context.Context, *connect.Request[guestv1.HelloRequest]) (*connect.Response[guestv1.HelloResponse], error) {
	return connect.NewResponse(&guestv1.HelloResponse{Capabilities: []string{string(sandbox.AgentIdentity), string(sandbox.AgentCopies)}}), nil
}

func (a answering) Identify(context.Context, *connect.Request[guestv1.IdentifyRequest]) (*connect.Response[guestv1.IdentifyResponse], error) {
	if a.err != nil {
		return nil, a.err
	}
	return connect.NewResponse(&guestv1.IdentifyResponse{Hostname: a.hostname, Copied: a.copied, Warnings: a.warnings}), nil
}

func TestIdentify(t *testing.T) {
	service := func(h guestv1connect.GuestServiceHandler) http.Handler {
		_, handler := guestv1connect.NewGuestServiceHandler(h)
		return handler
	}
	tests := []struct {
		name  string
		agent http.Handler
		want  error
	}{
		{"done", service(answering{hostname: "mine"}), nil},
		{"somebody else's", service(answering{err: connect.NewError(connect.CodeAlreadyExists, errors.New("taken"))}), errs.Conflict},
		{"an agent that does not know the call", service(guestv1connect.UnimplementedGuestServiceHandler{}), errs.Unsupported},
		{"an agent of before there was such a call", http.NotFoundHandler(), errs.Unsupported},
		{"an agent that is away", nil, errs.Unavailable},
	}
	for _, tt := range tests {
		dial := func(context.Context) (net.Conn, error) { return nil, errs.E(errs.Unavailable, "away") }
		if tt.agent != nil {
			server := httptest.NewServer(tt.agent)
			defer server.Close()
			dial = func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
			}
		}
		name, err := New(dial, new(capability.Known)).Identify(t.Context(), "", driver.Identity{ID: "mine"})
		if !errors.Is(err, tt.want) || err == nil && name != "mine" {
			t.Errorf("%s: Identify = %q, %v; want %v", tt.name, name, err, tt.want)
		}
	}
}

func TestIdentifyCopy(t *testing.T) {
	for _, tt := range []struct {
		name  string
		agent answering
		want  []string
		err   error
	}{
		{"done", answering{copied: true, warnings: []string{"one", "two"}}, []string{"one", "two"}, nil},
		{"an agent that knows no copies", answering{hostname: "mine"}, nil, errs.Unsupported},
		{"names that programs chose", answering{copied: true, warnings: []string{"\x1b[2J\n", strings.Repeat("é", 2000)}},
			[]string{"\ufffd[2J\ufffd", strings.Repeat("é", 500)}, nil},
		{"too many", answering{copied: true, warnings: make([]string, 200)}, make([]string, 100), nil},
	} {
		_, handler := guestv1connect.NewGuestServiceHandler(tt.agent)
		server := httptest.NewServer(handler)
		defer server.Close()
		dial := func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		}
		_, warnings, err := New(dial, new(capability.Known)).IdentifyCopy(t.Context(), "", driver.Identity{ID: "mine"}, "secret")
		if !errors.Is(err, tt.err) || !slices.Equal(warnings, tt.want) {
			t.Errorf("%s: %q, %v; want %q, %v", tt.name, warnings, err, tt.want, tt.err)
		}
	}
}
