//go:build root

package egress_test

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// zone is what the names of the world resolve to. A name that is not here leads
// to a host that no sandbox may reach.
var zone = map[string][]string{
	"good.example.com.":          {goodAddr, goodAddr6},
	"loop.example.com.":          {"127.0.0.1", "::1"},
	"zero.example.com.":          {"0.0.0.0", "::"},
	"private.example.com.":       {"10.1.2.3", "fd00::5"},
	"meta.example.com.":          {"169.254.169.254", "fd00:ec2::254"},
	"own.example.com.":           {ownAddr, hostAddr6},
	"mapped.example.com.":        {"::ffff:127.0.0.1"},
	"nat64.example.com.":         {"64:ff9b::a9fe:a9fe"},
	"six.example.com.":           {"2002:7f00:1::"},
	"mixed.example.com.":         {"10.1.2.3", goodAddr},
	"denied.example.com.":        {goodAddr},
	"denynet.example.com.":       {"192.0.2.9"},
	"127.0.0.1.nip.example.org.": {"127.0.0.1"},
	"metadata.google.internal.":  {"169.254.169.254"},
}

// nameServer is the host's resolver.
type nameServer struct {
	conn net.PacketConn

	mu      sync.Mutex
	asked   []string
	rebound bool // rebind.example.com leads to loopback by now
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn}
	done := make(chan struct{})
	go func() {
		defer close(done)
		packet := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if answer, ok := s.answer(packet[:n]); ok {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return s
}

// take returns the names that were asked for since the last call.
func (s *nameServer) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// rebind changes the answer about rebind.example.com.
func (s *nameServer) rebind(to bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rebound = to
}

func (s *nameServer) answer(packet []byte) ([]byte, bool) {
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil || len(m.Questions) != 1 {
		return nil, false
	}
	q := m.Questions[0]
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true},
		Questions: m.Questions,
	}
	for _, text := range s.addresses(strings.ToLower(q.Name.String())) {
		a := netip.MustParseAddr(text)
		head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 0}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			head.Type = dnsmessage.TypeA
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			head.Type = dnsmessage.TypeAAAA
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	out, err := reply.Pack()
	return out, err == nil
}

// addresses notes a question and answers it.
func (s *nameServer) addresses(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, name)
	if name == "rebind.example.com." {
		if s.rebound {
			return []string{"127.0.0.1"}
		}
		return []string{goodAddr}
	}
	if list, ok := zone[name]; ok {
		return list
	}
	if strings.HasSuffix(name, ".wild.example.com.") || name == "wild.example.com." {
		return []string{wildAddr}
	}
	return []string{evilAddr, evilAddr6}
}
