// Package resolver is the name server of a sandbox that has no network: it
// answers every name that the sandbox may reach with an address of its own on
// loopback, where whoever connects is carried to the host of that name.
//
// It decides nothing and asks nobody but [Config.Ask], which asks the policy:
// whether a name exists in the world outside is not looked at, so that no name
// leaves the sandbox this way. It refuses zone transfers, updates and every
// other use of DNS than to ask for one name.
package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	maxQuery   = 4096 // bytes of a query; programs send some 50
	maxStreams = 32   // TCP connections
	askTimeout = 4 * time.Second
	idle       = 10 * time.Second // between two queries of a TCP connection
)

// Verdict is what the policy says of a name.
type Verdict struct {
	Allow bool
	Name  string // in normal form: other spellings of it are the same name
	Why   string // it is denied, for people; in ASCII
}

// Config is what a Server needs.
type Config struct {
	Names *Names
	// Ask asks the policy about a name, which consists of letters, digits, dots,
	// hyphens and underscores. An error is answered as "try again".
	Ask func(ctx context.Context, name string) (Verdict, error)
	Log *slog.Logger
}

// Server answers DNS on one address, by UDP and by TCP.
type Server struct {
	c   Config
	udp *net.UDPConn
	tcp net.Listener
}

// tries bounds how often a port is chosen.
const tries = 100

// Listen takes the address; [Server.Run] serves it. Port 0 is one that is free for
// both UDP and TCP.
func Listen(address netip.AddrPort, c Config) (s *Server, err error) {
	for range tries {
		s, err = listen(address, c)
		if address.Port() != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return s, err
}

// listen takes for TCP what the kernel chose for UDP, where that is free too.
func listen(address netip.AddrPort, c Config) (*Server, error) {
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
	if err != nil {
		return nil, err
	}
	tcp, err := net.Listen("tcp", udp.LocalAddr().String())
	if err != nil {
		_ = udp.Close()
		return nil, err
	}
	return &Server{c: c, udp: udp, tcp: tcp}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.udp.LocalAddr().(*net.UDPAddr).AddrPort() }

// Run serves until ctx ends and then closes everything.
func (s *Server) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		_ = s.udp.Close()
		_ = s.tcp.Close()
	})
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.datagrams(ctx) })
	s.streams(ctx, &all)
}

// datagrams answers queries one after another: the policy is asked so anyway,
// and handing each to another goroutine would take longer than answering it.
// What comes meanwhile waits in the kernel's buffer, and beyond that is lost as in
// any network.
func (s *Server) datagrams(ctx context.Context) {
	buffer := make([]byte, maxQuery)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buffer)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // what a program did that left before its answer
		}
		if reply := s.answer(ctx, buffer[:n]); reply != nil {
			_, _ = s.udp.WriteToUDPAddrPort(reply, from)
		}
	}
}

func (s *Server) streams(ctx context.Context, all *sync.WaitGroup) {
	places := make(chan struct{}, maxStreams)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := s.tcp.Accept()
		if err != nil {
			<-places
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors: they come back
			continue
		}
		all.Go(func() {
			defer func() { <-places }()
			s.stream(ctx, conn)
		})
	}
}

// stream answers the queries of a TCP connection, one after another: each has
// its size in front (RFC 1035, 4.2.2).
func (s *Server) stream(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	for {
		_ = conn.SetDeadline(time.Now().Add(idle))
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint16(size[:])
		if n > maxQuery {
			return
		}
		query := make([]byte, n)
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply := s.answer(ctx, query)
		if reply == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}
