package guestd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/redirect"
	"github.com/cubbyhq/cubby/internal/relay"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// transparent carries a connection that a program made by itself, to the address
// of a name or to one of the world outside.
func (e *egress) transparent(ctx context.Context, conn net.Conn) {
	guest := conn.(*net.TCPConn)
	defer func() { _ = guest.Close() }()
	target, leave, err := e.target(guest)
	if err != nil {
		reset(guest)
		return
	}
	defer leave()
	out, err := e.up.dial(ctx, kindConnect)
	if err == nil {
		defer func() { _ = e.up.hangUp(out) }()
		_, err = io.WriteString(out, target+"\n")
	}
	if err != nil {
		reset(guest)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = guest.Close(); _ = out.Close() })
	defer stop()
	carry(guest, out)
}

var errNobody = errors.New("nobody has this address")

// target is where a connection was to go, as host:port. Until leave is called
// its name keeps its address.
func (e *egress) target(guest *net.TCPConn) (target string, leave func(), err error) {
	to, err := redirect.Original(guest)
	if err != nil {
		return "", nil, err
	}
	if redirect.Names().Contains(to.Addr()) {
		name, leave, ok := e.names.Connect(to.Addr())
		if !ok {
			return "", nil, errNobody
		}
		return fmt.Sprintf("%s:%d", name, to.Port()), leave, nil
	}
	if redirect.Loopback().Contains(to.Addr()) { // to this port itself
		return "", nil, errNobody
	}
	return to.String(), func() {}, nil
}

// reset ends a connection so that a program sees it fail, and not end well.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// carry is join for a stream whose host says first what became of it: after
// [sandbox.ConnectGranted] come the bytes of the other side, after anything else
// perhaps something to tell the program, and then the end.
func carry(guest *net.TCPConn, out *net.UnixConn) {
	watch := relay.NewWatch(guest, out)
	defer watch.Stop()
	var up sync.WaitGroup
	defer up.Wait()
	var sent, refused atomic.Bool
	up.Go(func() {
		_, err := relay.Copy(watch.Writer(out), guest)
		sent.Store(true)
		watch.Half()
		if err == nil || refused.Load() || errors.Is(err, syscall.EPIPE) {
			// The host that stopped reading may have said why.
			_ = out.CloseWrite()
			return
		}
		_ = out.Close() // which ends the other direction, and the guest with it
	})
	var verdict [1]byte
	if _, err := io.ReadFull(out, verdict[:]); err != nil {
		reset(guest)
		return
	}
	if verdict[0] != sandbox.ConnectGranted {
		refused.Store(true)
		if n, _ := relay.Copy(guest, out); n > 0 {
			_ = guest.CloseWrite()
			linger(guest)
		} else {
			reset(guest)
		}
		_ = out.Close()
		return
	}
	// A host that hangs up on a program that still sends broke off.
	if _, err := relay.Copy(watch.Writer(guest), out); err != nil || !sent.Load() && relay.Gone(out) {
		reset(guest)
		_ = out.Close()
		return
	}
	_ = guest.CloseWrite()
	watch.Half()
}

// lingerTime is how long a program may take to read why it was refused.
const lingerTime = 500 * time.Millisecond

// linger reads what a program still sends: closing before it stopped would take
// what it has not read yet away.
func linger(conn *net.TCPConn) {
	_ = conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, conn)
}
