//go:build root

package egress_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flow is a first packet that the host sent into the world.
type flow struct {
	proto string // "tcp", "udp", "icmp", or the number
	to    netip.AddrPort
}

func (f flow) String() string { return f.proto + " " + f.to.String() }

// sentinel is where the test sends packets to that mark its own place in what
// comes over the wire.
var sentinel = netip.MustParseAddr("192.0.2.255")

// wire sees every packet that the host sends into the world.
type wire struct {
	mu    sync.Mutex
	flows []flow
	seen  map[uint16]chan struct{} // sentinels by port
	last  uint16
}

func newWire(t *testing.T, internet *netns) *wire {
	t.Helper()
	w := &wire{seen: make(map[uint16]chan struct{})}
	var file *os.File
	err := internet.do(func() error {
		link, err := net.InterfaceByName("in")
		if err != nil {
			return err
		}
		all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), "wire")
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	})
	if err != nil {
		t.Fatalf("listen on the wire: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		packet := make([]byte, 64<<10)
		for {
			n, err := file.Read(packet)
			if err != nil {
				return
			}
			if f, ok := parseFlow(packet[:n]); ok {
				w.note(f)
			}
		}
	}()
	t.Cleanup(func() {
		file.Close()
		<-done
	})
	return w
}

func (w *wire) note(f flow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.to.Addr() != sentinel {
		w.flows = append(w.flows, f)
		return
	}
	if seen, ok := w.seen[f.to.Port()]; ok {
		delete(w.seen, f.to.Port())
		close(seen)
	}
}

// take returns the flows since the last call, of everything that the host had
// sent when it was made.
func (w *wire) take(t *testing.T) []flow {
	t.Helper()
	w.mu.Lock()
	w.last++
	mark, seen := w.last, make(chan struct{})
	w.seen[mark] = seen
	w.mu.Unlock()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(sentinel, mark)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for late := time.After(patience); ; {
		_, _ = conn.Write([]byte("mark")) // an earlier one may have been refused
		select {
		case <-seen:
			w.mu.Lock()
			defer w.mu.Unlock()
			flows := w.flows
			w.flows = nil
			return flows
		case <-again.C:
		case <-late:
			t.Fatal("the wire shows nothing of what the host sends")
		}
	}
}

// parseFlow reads an IP packet. ok is false for what is no first packet of the
// host's: answers, what neighbours and multicast routers are asked, packets of
// TCP connections that exist.
func parseFlow(p []byte) (f flow, ok bool) {
	if len(p) < 20 {
		return flow{}, false
	}
	var proto byte
	var to netip.Addr
	var rest []byte
	switch p[0] >> 4 {
	case 4:
		head := int(p[0]&15) * 4
		if len(p) < head {
			return flow{}, false
		}
		proto, to, rest = p[9], netip.AddrFrom4([4]byte(p[16:20])), p[head:]
	case 6:
		if len(p) < 40 {
			return flow{}, false
		}
		proto, to, rest = p[6], netip.AddrFrom16([16]byte(p[24:40])), p[40:]
	default:
		return flow{}, false
	}
	if slices.Contains([]string{hostAddr, hostAddr6, ownAddr}, to.String()) {
		return flow{}, false
	}
	switch {
	case proto == unix.IPPROTO_TCP && len(rest) >= 14:
		return flow{"tcp", netip.AddrPortFrom(to, binary.BigEndian.Uint16(rest[2:]))}, rest[13]&0x12 == 2
	case proto == unix.IPPROTO_UDP && len(rest) >= 4:
		return flow{"udp", netip.AddrPortFrom(to, binary.BigEndian.Uint16(rest[2:]))}, true
	case proto == unix.IPPROTO_ICMP && len(rest) > 0:
		return flow{"icmp", netip.AddrPortFrom(to, 0)}, rest[0] != 3
	case proto == unix.IPPROTO_ICMPV6 && len(rest) > 0:
		return flow{"icmp", netip.AddrPortFrom(to, 0)}, rest[0] == 128
	case proto == unix.IPPROTO_IGMP || proto == unix.IPPROTO_HOPOPTS:
		return flow{}, false
	}
	return flow{fmt.Sprint(proto), netip.AddrPortFrom(to, 0)}, true
}
