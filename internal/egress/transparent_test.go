package egress

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// program opens a stream as the agent does for a program that connects to
// target.
func (r *rig) program(target string) net.Conn {
	r.t.Helper()
	c := r.dialDoor(sandbox.DoorConnect, Guest{Box: "box"})
	if _, err := io.WriteString(c, target+"\n"); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// said is what a stream answers to what a program sends first: the verdict and
// the rest.
func said(t *testing.T, c net.Conn, first string) (byte, string) {
	t.Helper()
	if _, err := io.WriteString(c, first); err != nil {
		t.Fatal(err)
	}
	_ = closeWrite(c)
	all, err := io.ReadAll(c)
	if err != nil || len(all) == 0 {
		t.Fatalf("read %q, %v", all, err)
	}
	return all[0], string(all[1:])
}

const request = "GET / HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\n\r\n"

func TestTransparent(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer up.Close()
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com", "93.184.215.15", "gone.example.com"}}
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 8080)
	r.publish("b.example.com", "93.184.215.15", hostOf(up.URL), 8080)
	for what, tt := range map[string]struct {
		target, first string
		verdict       byte
		answer        string // part of it
	}{
		"a name":                 {"a.example.com:8080", request, '+', "hello"},
		"an address":             {"93.184.215.15:8080", request, '+', "hello"},
		"denied, in HTTP":        {"b.example.com:80", request, '-', "HTTP/1.1 403 Forbidden"},
		"the text of a denial":   {"b.example.com:80", request, '-', "b.example.com is not on this sandbox's allowlist"},
		"denied, in TLS":         {"b.example.com:443", "\x16\x03\x01\x00\x05", '-', string(alertAccessDenied)},
		"denied, in anything":    {"b.example.com:22", "SSH-2.0-OpenSSH_10.0\r\n", '-', ""},
		"denied, in silence":     {"b.example.com:25", "", '-', ""},
		"no host, in HTTP":       {"gone.example.com:80", request, '-', "HTTP/1.1 502 Bad Gateway"},
		"no host, in TLS":        {"gone.example.com:443", "\x16\x03\x01\x00\x05", '-', string(alertInternalError)},
		"no host, in anything":   {"gone.example.com:22", "SSH-2.0-x\r\n", '-', ""},
		"the host's own network": {"127.0.0.1:80", request, '-', "403"},
		"metadata":               {"169.254.169.254:80", request, '-', "403"},
		"no port":                {"b.example.com:0", "", 0, ""},
	} {
		t.Run(what, func(t *testing.T) {
			c := r.program(tt.target)
			if tt.verdict == 0 {
				if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("a malformed target is answered")
				}
				return
			}
			verdict, answer := said(t, c, tt.first)
			if verdict != tt.verdict || !strings.Contains(answer, tt.answer) || tt.answer == "" && answer != "" {
				t.Errorf("%q %q, want %q %q", verdict, answer, tt.verdict, tt.answer)
			}
		})
	}
	for _, d := range r.seen() {
		if d.Protocol != ProtocolTransparent {
			t.Errorf("decision %+v does not say how it was asked for", d)
		}
	}
}

// Behind this door as behind the others, TLS may ask for no other host.
func TestTransparentServerName(t *testing.T) {
	up := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer up.Close()
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 443)
	for name, want := range map[string]bool{"a.example.com": true, "b.example.com": false} {
		c := r.program("a.example.com:443")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		err := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).HandshakeContext(t.Context())
		if (err == nil) != want {
			t.Errorf("a handshake for %s: %v", name, err)
		}
	}
	if ds := r.seen(); len(ds) != 3 || ds[2].Allow == ds[1].Allow {
		t.Errorf("decisions = %+v", ds)
	}
}

func TestTransparentIsListedAndCut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", l.Addr().String(), 5432)
	c := r.program("a.example.com:5432")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	open := r.proxy.Open("box")
	if len(open) != 1 || open[0].Protocol != ProtocolTransparent || open[0].Host != "a.example.com" || open[0].Port != 5432 {
		t.Fatalf("open = %+v", open)
	}
	r.policy = sandbox.Policy{Mode: sandbox.NetworkOpen, Deny: []string{"a.example.com:5432"}}
	if n := r.proxy.Cut("box", r.policy); n != 1 {
		t.Errorf("%d connections were cut, want 1", n)
	}
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, io.EOF) {
		t.Logf("its end: %v", err)
	}
}

func TestResolve(t *testing.T) {
	r := newRig(t, "db.internal:5432")
	r.policy = sandbox.Policy{
		Mode:  sandbox.NetworkAllowlist,
		Allow: []string{"a.example.com:443", "*.below.example.com", "192.0.2.7"},
		Deny:  []string{"bad.below.example.com", "half.below.example.com:80"},
	}
	c := r.dialDoor(sandbox.DoorResolve, Guest{Box: "box"})
	lines := bufio.NewReader(c)
	for _, tt := range []struct{ name, want string }{
		{"a.example.com", "allow a.example.com\n"},
		{"A.Example.com.", "allow a.example.com\n"},
		{"x.below.example.com", "allow x.below.example.com\n"},
		{"half.below.example.com", "allow half.below.example.com\n"},
		{"db.internal", "allow db.internal\n"},
		{"bad.below.example.com", "deny deny: bad.below.example.com is on this sandbox's deny list\n"},
		{"b.example.com", "deny allowlist: b.example.com is not on"},
		{"b.example.com", "deny allowlist: "},
		{"db", "deny allowlist: "},
		{"192.0.2.7", "deny name: 192.0.2.7 is an address"},
		{"", "deny name: the host name is malformed\n"},
		{"a\x00b", "deny name: the host name is malformed\n"},
	} {
		if _, err := io.WriteString(c, tt.name+"\n"); err != nil {
			t.Fatal(err)
		}
		got, err := lines.ReadString('\n')
		if err != nil || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	if len(r.dialled) > 0 || len(r.names.asked) > 0 {
		t.Errorf("dialled %v, looked %d names up: a question must not leave the host", r.dialled, len(r.names.asked))
	}
	// One event for the same name asked for twice.
	hosts := map[string]int{}
	for _, d := range r.seen() {
		if hosts[d.Host]++; d.Allow || d.Protocol != ProtocolDNS || d.Port != 0 {
			t.Errorf("decision %+v", d)
		}
	}
	if hosts["b.example.com"] != 1 || hosts["db"] != 1 || hosts["bad.below.example.com"] != 1 {
		t.Errorf("denied: %v", hosts)
	}
}

func TestResolveFollowsThePolicy(t *testing.T) {
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkNone}
	c := r.dialDoor(sandbox.DoorResolve, Guest{Box: "box"})
	lines := bufio.NewReader(c)
	ask := func() string {
		t.Helper()
		if _, err := io.WriteString(c, "a.example.com\n"); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	if got := ask(); !strings.HasPrefix(got, "deny none: ") {
		t.Errorf("without a network: %q", got)
	}
	r.policy = sandbox.Policy{Mode: sandbox.NetworkOpen}
	if got := ask(); got != "allow a.example.com\n" {
		t.Errorf("with every public host: %q", got)
	}
}

// What an agent was told holds as long as its stream stands, so the stream ends
// with the policy, and before the change of it returns.
func TestNamesOfAnOldPolicyEnd(t *testing.T) {
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkOpen}
	open := map[sandbox.UID]net.Conn{}
	for _, box := range []sandbox.UID{"box", "other"} {
		c := r.dialDoor(sandbox.DoorResolve, Guest{Box: box})
		if _, err := io.WriteString(c, "a.example.com\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		open[box] = c
	}
	r.proxy.PolicyChanged("box")
	look := func(c net.Conn) error {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	if err := look(open["box"]); !errors.Is(err, io.EOF) {
		t.Errorf("the stream of a sandbox whose policy changed: %v, want its end", err)
	}
	if err := look(open["other"]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stream of another sandbox: %v, want that it stands", err)
	}
}

// A hostile agent's lines are bounded, and end its stream.
func TestEndlessLines(t *testing.T) {
	r := newRig(t, "")
	for _, door := range []sandbox.Door{sandbox.DoorConnect, sandbox.DoorResolve} {
		c := r.dialDoor(door, Guest{Box: "box"})
		_, _ = io.WriteString(c, strings.Repeat("a", 100<<10))
		if rest, err := io.ReadAll(c); len(rest) > 0 {
			t.Errorf("%s: answered %q, %v", door, rest, err)
		}
	}
	if ds := r.seen(); len(ds) > 0 {
		t.Errorf("decisions = %+v", ds)
	}
}

func FuzzTransparent(f *testing.F) {
	r := newRig(f, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"gone.example.com"}}
	for _, seed := range []string{"gone.example.com:80\n" + request, "b.example.com:443\n\x16\x03\x01", "[::1]:80\nx", "a:1\nGET / HTTP/1.1\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, said string) {
		guest, host := socketPair(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.proxy.Serve(t.Context(), host, sandbox.DoorConnect, Guest{Box: "box"}, func() sandbox.Policy { return r.policy })
		}()
		_, _ = io.WriteString(guest, said)
		_ = closeWrite(guest)
		all, _ := io.ReadAll(guest)
		guest.Close()
		<-done
		if len(all) > 0 && all[0] != sandbox.ConnectRefused {
			t.Errorf("%q is answered %q: nothing is reachable", said, all)
		}
	})
}
