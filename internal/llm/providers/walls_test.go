package providers

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/llm"
)

// names is a name server that knows an address for each name.
func names(t *testing.T, table map[string]string) Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := answerTo(buf[:n], table); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func answerTo(query []byte, table map[string]string) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.Additionals = true, nil
	name := strings.TrimSuffix(q.Name.String(), ".")
	if table[name] == "" {
		m.RCode = dnsmessage.RCodeNameError
	} else if a := netip.MustParseAddr(table[name]); a.Is4() == (q.Type == dnsmessage.TypeA) {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type}}
		if a.Is4() {
			r.Body = &dnsmessage.AResource{A: a.As4()}
		} else {
			r.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
		}
		m.Answers = append(m.Answers, r)
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

// secret is a server on loopback that counts who comes.
func secret(t *testing.T) (port string, visits *atomic.Int32) {
	t.Helper()
	visits = new(atomic.Int32)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			visits.Add(1)
			c.Close()
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, visits
}

func hello() llm.Request {
	return llm.Request{Model: "m", Messages: []llm.Message{{Role: llm.User, Parts: []llm.Part{llm.Text{Text: "hi"}}}}}
}

// fails asks and returns why that failed.
func fails(t *testing.T, p llm.Model) error {
	t.Helper()
	for _, err := range p.Stream(t.Context(), hello()) {
		if err != nil {
			return err
		}
	}
	t.Fatal("there was an answer")
	return nil
}

// TestLiterals has addresses in every spelling: none of them is connected to for
// those who are not trusted.
func TestLiterals(t *testing.T) {
	port, visits := secret(t)
	set := New(Config{Tries: 1})
	defer set.Close()
	for _, host := range []string{
		"127.0.0.1", "127.8.8.8", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0", "0.0.0.0", "127.0.0.1.",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]", "[fe80::1%25lo]", "[0:0:0:0:0:0:0:1]",
		"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "[fd00:ec2::254]", "168.63.129.16", "224.0.0.1", "255.255.255.255",
		"localhost", "LOCALHOST", "localhost.", "１２７.０.０.１", "127。0。0。1", "ⓛocalhost", "127.0.0.1%00.example.com", "127.0.0.1\\@example.com",
	} {
		p, err := set.Open(Source{Provider: "mine", BaseURL: "https://" + host + ":" + port + "/v1", Key: NewKey("k")})
		if err != nil {
			if !errors.Is(err, errs.Invalid) {
				t.Errorf("Open(%s): %v, want invalid", host, err)
			}
			continue
		}
		var e *llm.Error
		if err := fails(t, p); !errors.As(err, &e) || e.Fault != llm.Invalid && e.Fault != llm.Unavailable {
			t.Errorf("%s: %v, want invalid", host, err)
		}
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d connections to loopback", n)
	}
}

// TestRebinding has names that lead to where no stranger may: what counts is the
// address that is dialled, whenever the name came to lead there.
func TestRebinding(t *testing.T) {
	port, visits := secret(t)
	set := New(Config{Tries: 2, Pause: time.Millisecond, Resolver: names(t, map[string]string{
		"inside.example":   "127.0.0.1",
		"mapped.example":   "::ffff:127.0.0.1",
		"six.example":      "::1",
		"nat64.example":    "64:ff9b::7f00:1",
		"metadata.example": "169.254.169.254",
		"private.example":  "10.1.2.3",
	})})
	defer set.Close()
	for _, name := range []string{"inside", "mapped", "six", "nat64", "metadata", "private"} {
		p, err := set.Open(Source{Provider: "mine", BaseURL: "https://" + name + ".example:" + port, Key: NewKey("k")})
		if err != nil {
			t.Fatal(err)
		}
		e := wantFault(t, fails(t, p), llm.Invalid)
		if !strings.Contains(e.Message, "only the operator's") {
			t.Errorf("%s: %v", name, e)
		}
		if _, err := p.Models(t.Context()); err == nil {
			t.Errorf("%s has models", name)
		}
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d connections to loopback", n)
	}
	// The same name of the operator's leads there.
	p, err := set.Open(Source{Provider: "mine", BaseURL: "http://inside.example:" + port, Trusted: true})
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, fails(t, p), llm.Unavailable)
	if visits.Load() == 0 {
		t.Error("the operator's name leads nowhere")
	}
}

// TestPublicOnly is what is asked right before a connection is made: the addresses
// of a name may have changed since it was looked up.
func TestPublicOnly(t *testing.T) {
	for to, allowed := range map[string]bool{
		"93.184.215.14:443": true, "[2606:4700::1111]:443": true,
		"127.0.0.1:443": false, "[::1]:443": false, "[::ffff:10.0.0.1]:443": false, "[fe80::1%lo]:443": false, "nonsense": false, "/run/socket": false,
	} {
		if err := publicOnly(t.Context(), "tcp", to, nil); (err == nil) != allowed {
			t.Errorf("publicOnly(%s) = %v, want allowed: %v", to, err, allowed)
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range own {
		ip, ok := n.(*net.IPNet)
		if !ok {
			continue
		}
		if err := publicOnly(t.Context(), "tcp", net.JoinHostPort(ip.IP.String(), "443"), nil); err == nil {
			t.Errorf("this host's own address %s is allowed", ip.IP)
		}
	}
}

// TestPlain: strangers' keys do not travel in the clear.
func TestPlain(t *testing.T) {
	set := New(Config{})
	defer set.Close()
	_, err := set.Open(Source{Provider: "mine", BaseURL: "http://api.example.com", Key: NewKey("k")})
	if !errors.Is(err, errs.Invalid) {
		t.Errorf("plain HTTP: %v, want invalid", err)
	}
	// Ollama's usual address is on the operator's machine.
	if _, err := set.Open(Source{Provider: "ollama", Key: NewKey("k")}); !errors.Is(err, errs.Invalid) {
		t.Errorf("Ollama without a base URL: %v, want invalid", err)
	}
	if _, err := set.Open(Source{Provider: "openai", Key: NewKey("k")}); err != nil {
		t.Errorf("a key for the usual address: %v", err)
	}
}

// TestProxy: a proxy of the daemon would connect to wherever it is told.
func TestProxy(t *testing.T) {
	open := newTransports(nil)
	defer open.close()
	if open.guarded.Proxy != nil {
		t.Error("base URLs of strangers go through the daemon's proxy")
	}
	if open.trusted.Proxy == nil {
		t.Error("the operator's do not")
	}
	var seen atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	set := New(Config{Tries: 1, Resolver: names(t, map[string]string{"inside.example": "127.0.0.1"})})
	defer set.Close()
	p, err := set.Open(Source{Provider: "mine", BaseURL: "https://inside.example", Key: NewKey("k")})
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, fails(t, p), llm.Invalid)
	if seen.Load() != 0 {
		t.Error("the proxy was asked")
	}
}

// TestRedirect: what a base URL redirects to is not asked, with the key or without.
func TestRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked after a redirect: %v", r.Header)
	}))
	defer other.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("the key is %q", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer first.Close()
	set := New(Config{})
	defer set.Close()
	p, err := set.Open(Source{Provider: "mine", BaseURL: first.URL, Key: NewKey("k"), Trusted: true})
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, fails(t, p), llm.Invalid)
	if _, err := p.Models(t.Context()); err == nil {
		t.Error("it has models")
	}
}

// FuzzForStrangers proves that no base URL of a stranger that is taken has an
// address that is not public, or no TLS.
func FuzzForStrangers(f *testing.F) {
	for _, s := range []string{"https://api.example.com/v1", "https://127.1/", "http://x", "https://[::ffff:10.0.0.1]:443", "https://u@h/", "https://h/?q", "https://0x7f.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		base, _, err := vendorOf("mine").base(Source{Provider: "mine", BaseURL: text})
		if err != nil {
			return
		}
		if base == "" {
			return // nobody's
		}
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			t.Fatalf("%q became %q, %v", text, base, err)
		}
		if a, err := netip.ParseAddr(u.Hostname()); err == nil && publicOnly(t.Context(), "tcp", netip.AddrPortFrom(a, 443).String(), nil) != nil {
			t.Fatalf("%q became %q", text, base)
		}
	})
}
