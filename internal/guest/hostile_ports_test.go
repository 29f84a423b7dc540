package guest_test

import (
	"context"
	"net"
	"net/http/httptest"
	"slices"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// portsAgent tells of ports what it likes.
type portsAgent struct {
	guestv1connect.UnimplementedGuestServiceHandler
	ports []*guestv1.ListPortsResponse_Item
}

func (portsAgent) Hello(context.Context, *connect.Request[guestv1.HelloRequest]) (*connect.Response[guestv1.HelloResponse], error) {
	return connect.NewResponse(&guestv1.HelloResponse{Capabilities: []string{string(sandbox.AgentPorts)}}), nil
}

func (a portsAgent) ListPorts(context.Context, *connect.Request[guestv1.ListPortsRequest]) (*connect.Response[guestv1.ListPortsResponse], error) {
	return connect.NewResponse(&guestv1.ListPortsResponse{Ports: a.ports}), nil
}

func TestPortsOfAHostileAgent(t *testing.T) {
	_, handler := guestv1connect.NewGuestServiceHandler(portsAgent{ports: []*guestv1.ListPortsResponse_Item{
		{Port: 8000, Program: "python3\x1b[2J", Pid: -1}, {Port: 0}, {Port: 1 << 16}, {Port: 1<<32 - 1}, {Port: 80, Pid: 7}, {Port: 8000, Program: "again"},
	}})
	agent := httptest.NewServer(handler)
	defer agent.Close()
	c := guest.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", agent.Listener.Addr().String())
	})
	defer c.Close()
	got, err := c.Ports(t.Context())
	want := []sandbox.Port{{Port: 80, Listening: true, PID: 7}, {Port: 8000, Listening: true, Program: "python3\uFFFD[2J"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Ports = %+v, %v, want %+v", got, err, want)
	}
}
