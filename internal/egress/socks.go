package egress

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// SOCKS 5 (RFC 1928), for programs that want it: the same port, the same
// decisions and the same tunnels as CONNECT. Nobody authenticates: the stream
// itself says whose it is.
const (
	socksVersion    = 5
	socksNoAuth     = 0x00
	socksNoMethod   = 0xff
	socksConnect    = 1
	socksIPv4       = 1
	socksName       = 3
	socksIPv6       = 4
	socksGranted    = 0
	socksFailure    = 1
	socksNotAllowed = 2
	socksNoHost     = 4
	socksNoCommand  = 7
	socksNoAddress  = 8
)

// socks serves a stream that began with SOCKS's version. It returns when the
// stream has ended; the caller closes it.
func (s *stream) socks(ctx context.Context) {
	_ = s.conn.SetDeadline(time.Now().Add(headerTimeout))
	hostname, port, refusal := readSocks(s.conn)
	if refusal != nil {
		_, _ = s.conn.Write(refusal)
		return
	}
	_ = s.conn.SetDeadline(time.Time{}) // the dial has its own bounds
	f, policy := s.begin(ProtocolSocks), s.policy()
	up, d, err := s.dial(ctx, policy, hostname, port)
	if err != nil {
		code := byte(socksFailure)
		if denied, ok := asDenied(err); ok {
			code = socksNotAllowed
			f.decided(denied)
		} else {
			if errs.KindOf(err) == errs.Unavailable {
				code = socksNoHost
			}
			f.fail(d)
		}
		_, _ = s.conn.Write(socksReply(code))
		return
	}
	s.carry(f, d, policy, up, func() (net.Conn, *bufio.Reader, error) {
		_, err := s.conn.Write(socksReply(socksGranted))
		return s.conn, bufio.NewReader(strings.NewReader("")), err
	})
}

// socksReply is an answer to a request. The address that it has room for is
// the proxy's own affair.
func socksReply(code byte) []byte {
	return []byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0}
}

// readSocks agrees on a method and reads the request, after the first byte. A
// refusal is what to answer instead; it is empty, and not nil, for a guest that
// does not speak the protocol.
func readSocks(conn io.ReadWriter) (hostname string, port int, refusal []byte) {
	silence := []byte{}
	var count [1]byte
	if _, err := io.ReadFull(conn, count[:]); err != nil {
		return "", 0, silence
	}
	methods := make([]byte, count[0])
	if _, err := io.ReadFull(conn, methods); err != nil {
		return "", 0, silence
	}
	if !slices.Contains(methods, socksNoAuth) {
		return "", 0, []byte{socksVersion, socksNoMethod}
	}
	if _, err := conn.Write([]byte{socksVersion, socksNoAuth}); err != nil {
		return "", 0, silence
	}
	var head [4]byte // version, command, reserved, kind of address
	if _, err := io.ReadFull(conn, head[:]); err != nil || head[0] != socksVersion {
		return "", 0, silence
	}
	var size int
	switch head[3] {
	case socksIPv4:
		size = net.IPv4len
	case socksIPv6:
		size = net.IPv6len
	case socksName:
		if _, err := io.ReadFull(conn, count[:]); err != nil {
			return "", 0, silence
		}
		size = int(count[0])
	default:
		return "", 0, socksReply(socksNoAddress)
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(conn, rest); err != nil {
		return "", 0, silence
	}
	if head[1] != socksConnect {
		return "", 0, socksReply(socksNoCommand)
	}
	hostname = string(rest[:size])
	if head[3] != socksName {
		a, _ := netip.AddrFromSlice(rest[:size]) // of a size that it takes
		hostname = a.String()
	}
	if port = int(binary.BigEndian.Uint16(rest[size:])); port == 0 {
		return "", 0, socksReply(socksFailure)
	}
	return hostname, port, nil
}

// replayed is a connection whose first byte was read ahead.
type replayed struct {
	net.Conn
	first []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.first) > 0 && len(p) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

// CloseWrite ends this direction.
func (r *replayed) CloseWrite() error { return closeWrite(r.Conn) }
