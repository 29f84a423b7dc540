package guest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// announcing is an agent with these capabilities that takes every file.
type announcing struct {
	guestv1connect.UnimplementedGuestServiceHandler

	capabilities []string
}

func (a announcing) Hello(context.Context, *connect.Request[guestv1.HelloRequest]) (*connect.Response[guestv1.HelloResponse], error) {
	return connect.NewResponse(&guestv1.HelloResponse{Capabilities: a.capabilities}), nil
}

func (a announcing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		_, _ = io.Copy(io.Discard, r.Body)
		return
	}
	_, h := guestv1connect.NewGuestServiceHandler(a)
	h.ServeHTTP(w, r)
}

// TestTheHostIsAskedWhereAnFsyncIsNotHonest: an agent on a kernel that hides errors
// acknowledges what is lost. So a file that was put is answered with success when the host
// has it on the disk, and of other agents nobody asks the host.
func TestTheHostIsAskedWhereAnFsyncIsNotHonest(t *testing.T) {
	for name, tt := range map[string]struct {
		capabilities []string
		lost         error
		asked        bool
	}{
		"an agent of today":               {[]string{string(sandbox.AgentHonestSyncs)}, nil, false},
		"an agent of before":              {[]string{string(sandbox.AgentKernels)}, nil, true},
		"one of before, and a lost write": {nil, errs.E(errs.Unavailable, "lost"), true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(announcing{capabilities: tt.capabilities})
			defer server.Close()
			asked := 0
			c := guest.NewOnDisk(func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
			}, guest.Disk{Sync: func(context.Context) error { asked++; return tt.lost }})
			defer c.Close()
			_, err := c.Write(t.Context(), "f", strings.NewReader("content"), sandbox.FileWrite{})
			if !errors.Is(err, tt.lost) {
				t.Errorf("Write = %v, want %v", err, tt.lost)
			}
			if err := c.Extract(t.Context(), "/workspace", strings.NewReader("content"), ""); !errors.Is(err, tt.lost) {
				t.Errorf("Extract = %v, want %v", err, tt.lost)
			}
			if want := map[bool]int{true: 2}[tt.asked]; asked != want {
				t.Errorf("the host was asked %d times, want %d", asked, want)
			}
		})
	}
}
