package guestd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/relay"
)

const (
	pathDial        = "/v1/dial"
	upgradeProtocol = "cubby-tcp"
	portDialTimeout = 5 * time.Second
)

// dialPort joins a connection of the host with a port on the sandbox's
// loopback: GET /v1/dial?port=N with an Upgrade to cubby-tcp.
func (s *Server) dialPort(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 {
		writeError(w, errs.E(errs.Invalid, "malformed port"))
		return
	}
	if r.Header.Get("Upgrade") != upgradeProtocol {
		writeError(w, errs.E(errs.Invalid, "a port is dialled with an upgrade to %s", upgradeProtocol))
		return
	}
	if s.ownPort(uint16(port)) {
		writeError(w, errs.E(errs.Unavailable, "nothing listens on port %d in the sandbox", port))
		return
	}
	target, err := dialLoopback(r.Context(), strconv.FormatUint(port, 10))
	if err != nil {
		writeError(w, err)
		return
	}
	defer func() { _ = target.Close() }()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, err)
		return
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+upgradeProtocol+"\r\n\r\n")
	if err != nil {
		return
	}
	if n := buffered.Reader.Buffered(); n > 0 {
		early, _ := buffered.Peek(n)
		if _, err := target.Write(early); err != nil {
			return
		}
	}
	stop := context.AfterFunc(s.life, func() { conn.Close(); _ = target.Close() })
	defer stop()
	relay.Join(conn, target)
}

// ListPorts implements the guest service.
func (s *Server) ListPorts(ctx context.Context, _ *connect.Request[guestv1.ListPortsRequest]) (*connect.Response[guestv1.ListPortsResponse], error) {
	listeners, err := proc.Listeners(ctx, func(port uint16) bool { return s.ownPort(port) || s.kernels.OwnPort(int(port)) })
	if err != nil {
		return nil, err
	}
	out := new(guestv1.ListPortsResponse)
	for _, l := range listeners {
		out.Ports = append(out.Ports, &guestv1.ListPortsResponse_Item{Port: uint32(l.Port), Program: l.Program, Pid: int64(l.PID)})
	}
	return connect.NewResponse(out), nil
}

// ownPort reports whether a port of loopback is the agent's, which is nothing
// that runs in the sandbox.
func (s *Server) ownPort(port uint16) bool {
	boot := s.cfg.Boot
	for _, address := range []string{boot.GetEgressListen(), boot.GetResolverListen(), boot.GetRedirectListen()} {
		if a, err := netip.ParseAddrPort(address); err == nil && a.Port() == port {
			return true
		}
	}
	return false
}

// dialLoopback tries both families: a server may listen on either.
func dialLoopback(ctx context.Context, port string) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, portDialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		var err6 error
		if conn, err6 = d.DialContext(ctx, "tcp", net.JoinHostPort("::1", port)); err6 != nil {
			if errors.Is(err, syscall.ECONNREFUSED) {
				return nil, errs.E(errs.Unavailable, "nothing listens on port %s in the sandbox", port).Because(err)
			}
			return nil, errs.E(errs.Unavailable, "port %s does not answer in the sandbox", port).Because(err)
		}
	}
	return conn.(*net.TCPConn), nil
}
