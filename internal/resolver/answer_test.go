package resolver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// policy allows everything below example.com.
func policy(_ context.Context, name string) (Verdict, error) {
	switch {
	case name == "away.example.com":
		return Verdict{}, errors.New("the host is away")
	case strings.HasSuffix(name, ".example.com"):
		return Verdict{Allow: true, Name: strings.TrimSuffix(name, ".")}, nil
	}
	return Verdict{Why: "allowlist: " + name + " is not on this sandbox's allowlist"}, nil
}

func newServer(t testing.TB) *Server { return serverThat(t, policy) }

func serverThat(t testing.TB, ask func(context.Context, string) (Verdict, error)) *Server {
	t.Helper()
	s, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"), Config{
		Names: NewNames(netip.MustParsePrefix("127.64.0.0/10"), 100), Ask: ask, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

type asked struct {
	name  string
	kind  dnsmessage.Type
	class dnsmessage.Class
	edns  bool
}

func (a asked) pack(t testing.TB) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 4711, RecursionDesired: true})
	name, err := dnsmessage.NewName(a.name)
	if err != nil {
		t.Fatal(err)
	}
	_ = b.StartQuestions()
	if a.class == 0 {
		a.class = dnsmessage.ClassINET
	}
	_ = b.Question(dnsmessage.Question{Name: name, Type: a.kind, Class: a.class})
	if a.edns {
		_ = b.StartAdditionals()
		var h dnsmessage.ResourceHeader
		_ = h.SetEDNS0(1232, dnsmessage.RCodeSuccess, false)
		_ = b.OPTResource(h, dnsmessage.OPTResource{})
	}
	query, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return query
}

func TestAnswers(t *testing.T) {
	s := newServer(t)
	for what, tt := range map[string]struct {
		q       asked
		code    dnsmessage.RCode
		address string // of the one answer
		pointer string
		code2   uint16 // extended
		text    string
	}{
		"a name":              {q: asked{name: "a.example.com.", kind: dnsmessage.TypeA}, address: "127.64.0.1"},
		"in other letters":    {q: asked{name: "A.eXample.COM.", kind: dnsmessage.TypeA}, address: "127.64.0.1"},
		"its IPv6 address":    {q: asked{name: "a.example.com.", kind: dnsmessage.TypeAAAA}},
		"its mail server":     {q: asked{name: "a.example.com.", kind: dnsmessage.TypeMX}},
		"its HTTPS record":    {q: asked{name: "a.example.com.", kind: 65}},
		"anything":            {q: asked{name: "a.example.com.", kind: dnsmessage.TypeALL}, address: "127.64.0.1"},
		"denied":              {q: asked{name: "b.example.org.", kind: dnsmessage.TypeA}, code: dnsmessage.RCodeNameError},
		"denied, with EDNS":   {q: asked{name: "b.example.org.", kind: dnsmessage.TypeA, edns: true}, code: dnsmessage.RCodeNameError, code2: 18, text: "allowlist: b.example.org is not on"},
		"denied, of IPv6":     {q: asked{name: "b.example.org.", kind: dnsmessage.TypeAAAA, edns: true}, code: dnsmessage.RCodeNameError, code2: 18},
		"a single label":      {q: asked{name: "db.", kind: dnsmessage.TypeA}, code: dnsmessage.RCodeNameError},
		"the host is away":    {q: asked{name: "away.example.com.", kind: dnsmessage.TypeA, edns: true}, code: dnsmessage.RCodeServerFailure, code2: 23},
		"localhost":           {q: asked{name: "localhost.", kind: dnsmessage.TypeA}, address: "127.0.0.1"},
		"below localhost":     {q: asked{name: "app.localhost.", kind: dnsmessage.TypeAAAA}, address: "::1"},
		"the root":            {q: asked{name: ".", kind: dnsmessage.TypeNS}, code: dnsmessage.RCodeNameError},
		"bytes in a name":     {q: asked{name: "a\x00\nb.example.com.", kind: dnsmessage.TypeA}, code: dnsmessage.RCodeNameError},
		"the name of a":       {q: asked{name: "1.0.64.127.in-addr.arpa.", kind: dnsmessage.TypePTR}, pointer: "a.example.com."},
		"the name of another": {q: asked{name: "2.0.64.127.in-addr.arpa.", kind: dnsmessage.TypePTR}, code: dnsmessage.RCodeNameError},
		"no address at all":   {q: asked{name: "x.127.in-addr.arpa.", kind: dnsmessage.TypePTR}, code: dnsmessage.RCodeNameError},
		"another class":       {q: asked{name: "version.bind.", kind: dnsmessage.TypeTXT, class: dnsmessage.ClassCHAOS}, code: dnsmessage.RCodeRefused},
	} {
		t.Run(what, func(t *testing.T) {
			s.c.Names.Address("a.example.com")
			reply := s.answer(t.Context(), tt.q.pack(t))
			if len(reply) > 512 {
				t.Errorf("%d bytes; without EDNS programs take 512", len(reply))
			}
			var m dnsmessage.Message
			if err := m.Unpack(reply); err != nil {
				t.Fatal(err)
			}
			if m.ID != 4711 || !m.Response || !m.RecursionDesired || m.RCode != tt.code {
				t.Errorf("header = %+v, want code %v", m.Header, tt.code)
			}
			if len(m.Questions) != 1 || m.Questions[0].Name.String() != tt.q.name {
				t.Errorf("the question comes back as %v", m.Questions)
			}
			var address, pointer string
			for _, a := range m.Answers {
				switch b := a.Body.(type) {
				case *dnsmessage.AResource:
					address = netip.AddrFrom4(b.A).String()
				case *dnsmessage.AAAAResource:
					address = netip.AddrFrom16(b.AAAA).String()
				case *dnsmessage.PTRResource:
					pointer = b.PTR.String()
				}
				if a.Header.TTL != 0 {
					t.Errorf("TTL = %d: the policy may change", a.Header.TTL)
				}
			}
			if address != tt.address || pointer != tt.pointer {
				t.Errorf("answers = %q %q, want %q %q", address, pointer, tt.address, tt.pointer)
			}
			code, text := extended(t, m, tt.q.edns)
			if code != tt.code2 || !strings.HasPrefix(text, tt.text) {
				t.Errorf("extended error %d %q, want %d %q", code, text, tt.code2, tt.text)
			}
		})
	}
}

// extended is the extended error of an answer.
func extended(t *testing.T, m dnsmessage.Message, wanted bool) (uint16, string) {
	t.Helper()
	if got := len(m.Additionals) == 1; got != wanted {
		t.Fatalf("EDNS in the answer: %v, in the query: %v", got, wanted)
	}
	for _, a := range m.Additionals {
		for _, o := range a.Body.(*dnsmessage.OPTResource).Options {
			if o.Code == optionExtendedError {
				return uint16(o.Data[0])<<8 | uint16(o.Data[1]), string(o.Data[2:])
			}
		}
	}
	return 0, ""
}

func TestWhatIsNoQuestion(t *testing.T) {
	s := newServer(t)
	query := asked{name: "a.example.com.", kind: dnsmessage.TypeA}.pack(t)
	changed := func(at int, to byte) []byte {
		q := append([]byte(nil), query...)
		q[at] = to
		return q
	}
	for what, tt := range map[string]struct {
		query []byte
		code  dnsmessage.RCode
		none  bool
	}{
		"nothing":          {query: nil, none: true},
		"half a header":    {query: query[:6], none: true},
		"an answer":        {query: changed(2, 0x81), none: true},
		"a status request": {query: changed(2, 2<<3), code: dnsmessage.RCodeNotImplemented},
		"an update":        {query: changed(2, 5<<3), code: dnsmessage.RCodeNotImplemented},
		"no question":      {query: changed(5, 0), code: dnsmessage.RCodeFormatError},
		"two questions":    {query: changed(5, 2), code: dnsmessage.RCodeFormatError},
		"half a question":  {query: query[:len(query)-5], code: dnsmessage.RCodeFormatError},
		"a missing record": {query: changed(11, 1), code: dnsmessage.RCodeFormatError},
	} {
		t.Run(what, func(t *testing.T) {
			reply := s.answer(t.Context(), tt.query)
			if tt.none {
				if reply != nil {
					t.Errorf("answered with %d bytes", len(reply))
				}
				return
			}
			var p dnsmessage.Parser
			h, err := p.Start(reply)
			if err != nil || h.RCode != tt.code || h.ID != 4711 {
				t.Errorf("header = %+v, %v, want code %v", h, err, tt.code)
			}
		})
	}
}

func TestGoResolver(t *testing.T) {
	s := newServer(t)
	for _, network := range []string{"udp", "tcp"} {
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Addr().String())
		}}
		got, err := r.LookupNetIP(t.Context(), "ip", "go.example.com.")
		if err != nil || len(got) != 1 || !netip.MustParsePrefix("127.64.0.0/10").Contains(got[0].Unmap()) {
			t.Errorf("%s: LookupNetIP = %v, %v", network, got, err)
		}
		_, err = r.LookupNetIP(t.Context(), "ip", "denied.example.org.")
		var dns *net.DNSError
		if !errors.As(err, &dns) || !dns.IsNotFound {
			t.Errorf("%s: a denied name: %v, want not found", network, err)
		}
	}
}

// Whoever sends much and reads nothing holds a bounded part.
func TestManyQuestions(t *testing.T) {
	hold := make(chan struct{})
	var asking, most atomic.Int32
	s := serverThat(t, func(ctx context.Context, name string) (Verdict, error) {
		n := asking.Add(1)
		defer asking.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return policy(ctx, name)
	})
	c, err := net.Dial("udp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	query := asked{name: "a.example.com.", kind: dnsmessage.TypeA}.pack(t)
	for range 1000 {
		_, _ = c.Write(query)
	}
	close(hold)
	if _, err := io.ReadAtLeast(c, make([]byte, 512), 12); err != nil {
		t.Fatal(err)
	}
	if m := most.Load(); m != 1 {
		t.Errorf("%d datagrams at once, want one after another", m)
	}
}

func FuzzAnswer(f *testing.F) {
	s := newServer(f)
	for _, a := range []asked{
		{name: "a.example.com.", kind: dnsmessage.TypeA},
		{name: "b.example.org.", kind: dnsmessage.TypeAAAA, edns: true},
		{name: "1.0.64.127.in-addr.arpa.", kind: dnsmessage.TypePTR},
	} {
		f.Add(a.pack(f))
	}
	f.Fuzz(func(t *testing.T, query []byte) {
		reply := s.answer(t.Context(), query)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("an answer that cannot be read: %v", err)
		}
		if !m.Response || m.ID != uint16(query[0])<<8|uint16(query[1]) || len(reply) > 1024 {
			t.Errorf("answer %+v of %d bytes", m.Header, len(reply))
		}
	})
}

// A port that is free for UDP may be taken for TCP.
func TestChosenPortIsFreeForBoth(t *testing.T) {
	// Half of the ports that the kernel chooses from would make the machine poor; a
	// thousand of 28,000 are met once in 28 times.
	for range 1000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	for range 200 {
		s, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"), Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.udp.Close(), s.tcp.Close()
	}
	taken := newServer(t).Addr()
	if _, err := Listen(taken, Config{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that was asked for and is taken: %v", err)
	}
}
