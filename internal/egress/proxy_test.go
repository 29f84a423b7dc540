package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestForward(t *testing.T) {
	var header http.Header
	var gotHost string
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header, gotHost = r.Header.Clone(), r.Host
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, b)
	}))
	defer up.Close()
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	c := r.client()

	req, _ := http.NewRequest("POST", "http://A.example.com./x%2Fy?q=1", strings.NewReader("hello"))
	req.Header.Set("Proxy-Authorization", "Basic secret")
	req.Header.Set("Proxy-Connection", "keep-alive")
	req.Header.Set("X-Forwarded-For", "1.2.3.4")
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if got, want := string(b), "POST /x%2Fy?q=1 hello"; res.StatusCode != 200 || got != want {
		t.Errorf("POST = %d %q, want 200 %q", res.StatusCode, got, want)
	}
	if res.Header.Get("X-Hop") != "" {
		t.Error("a header that Connection names was passed on to the guest")
	}
	for _, k := range []string{"Proxy-Authorization", "Proxy-Connection", "X-Forwarded-Host", "Via"} {
		if v := header.Get(k); v != "" {
			t.Errorf("upstream got %s: %q, want none", k, v)
		}
	}
	if got := header.Get("X-Forwarded-For"); got != "1.2.3.4" {
		t.Errorf("upstream got X-Forwarded-For %q, want the guest's own", got)
	}
	if gotHost != "A.example.com." {
		t.Errorf("upstream got Host %q", gotHost)
	}
	if _, _, res := get(t, c, "http://a.example.com/"); res.StatusCode != 200 {
		t.Errorf("second GET = %d", res.StatusCode)
	}
	ds := r.seen()
	if len(ds) != 2 || !ds[0].Allow || ds[0].Host != "a.example.com" || ds[0].Rule != RuleOpen {
		t.Errorf("decisions = %+v, want two that allow a.example.com by open", ds)
	}
	for _, name := range r.names.lookedUp() {
		if name != "a.example.com." {
			t.Errorf("looked %q up, want a name that no search domain can extend", name)
		}
	}
}

func TestConnect(t *testing.T) {
	up := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "secret hello")
	}))
	defer up.Close()
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 443)
	if code, body, _ := get(t, r.client(), "https://a.example.com/"); code != 200 || body != "secret hello" {
		t.Errorf("GET = %d %q, want 200 and the hello", code, body)
	}
	want := netip.MustParseAddrPort("93.184.215.14:443")
	if ds := r.seen(); len(ds) != 1 || !ds[0].Allow || ds[0].Address != want {
		t.Errorf("decisions = %+v, want one that allows %s", ds, want)
	}
}

func TestDenied(t *testing.T) {
	tests := []struct {
		name, url string
		policy    sandbox.Policy
		host      string // in the text
		hint      string
	}{
		{"not listed", "http://deb.debian.org/x", sandbox.Policy{Mode: sandbox.NetworkAllowlist}, "deb.debian.org:80", "CUBBY_EGRESS_ALLOW"},
		{"none", "http://pypi.org/", sandbox.Policy{Mode: sandbox.NetworkNone}, "pypi.org:80", "network mode"},
		{"metadata", "http://169.254.169.254/latest/meta-data/", sandbox.Policy{Mode: sandbox.NetworkOpen}, "169.254.169.254:80", "operator"},
		{"decimal loopback", "http://2130706433:9090/", sandbox.Policy{Mode: sandbox.NetworkOpen}, "127.0.0.1:9090", "operator"},
		{"name of a private address", "http://inside.example.com/", sandbox.Policy{Mode: sandbox.NetworkOpen}, "inside.example.com:80", "operator"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, "")
			r.names.answers["inside.example.com"] = [][]netip.Addr{addrs("10.1.2.3", "::ffff:127.0.0.1", "fd00:ec2::254")}
			r.policy = tt.policy
			code, body, _ := get(t, r.client(), tt.url)
			if code != 403 || !strings.Contains(body, tt.host) || !strings.Contains(body, tt.hint) || strings.Contains(body, "10.1.2.3") {
				t.Errorf("GET %s = %d %q, want 403 with %q and %q and no address", tt.url, code, body, tt.host, tt.hint)
			}
			_, err := r.client().Get(strings.Replace(tt.url, "http:", "https:", 1))
			if err == nil || !strings.Contains(err.Error(), "cubby: ") {
				t.Errorf("CONNECT = %v, want the reason in the status line", err)
			}
			res, err := r.client().Post(tt.url, "text/plain", strings.NewReader(strings.Repeat("x", 100_000)))
			if err != nil || res.StatusCode != 403 {
				t.Errorf("POST = %v, %v, want 403", res, err)
			} else {
				res.Body.Close()
			}
			for _, d := range r.seen() {
				if d.Allow {
					t.Errorf("decision = %+v, want a denial", d)
				}
			}
			if n := len(r.seen()); n != 3 {
				t.Errorf("%d decisions, want 3", n)
			}
			if len(r.dialled) != 0 {
				t.Errorf("dialled %v, want nothing", r.dialled)
			}
		})
	}
}

// A name that answers with a public address when it is decided and with a
// private one a moment later must not get the private one dialled.
func TestRebinding(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") }))
	defer up.Close()
	r := newRig(t, "")
	r.routes["93.184.215.14:80"] = hostOf(up.URL)
	r.names.answers["re.example.com"] = [][]netip.Addr{addrs("93.184.215.14"), addrs("127.0.0.1"), addrs("169.254.169.254", "93.184.215.14")}
	for i, want := range []int{200, 403, 200} {
		if code, body, _ := get(t, r.client(), "http://re.example.com/"); code != want {
			t.Errorf("GET %d = %d %q, want %d", i, code, body, want)
		}
	}
	for _, a := range r.dialled {
		if a != "93.184.215.14:80" {
			t.Errorf("dialled %s", a)
		}
	}
}

// What listens on one of the host's own public addresses is not the Internet.
func TestOwnAddress(t *testing.T) {
	r := newRig(t, "")
	r.proxy.ownAddrs = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.IPv4(93, 184, 215, 14), Mask: net.CIDRMask(24, 32)}}, nil
	}
	r.names.answers["me.example.com"] = [][]netip.Addr{addrs("93.184.215.14")}
	if code, body, _ := get(t, r.client(), "http://me.example.com/"); code != 403 {
		t.Errorf("GET = %d %q, want 403", code, body)
	}
	// By way of a gateway.
	if code, body, _ := get(t, r.client(), "http://[2002:5db8:d70e::1]/"); code != 403 {
		t.Errorf("GET by 6to4 = %d %q, want 403", code, body)
	}
	r.proxy.ownAddrs = func() ([]net.Addr, error) { return nil, errors.New("netlink") }
	if code, body, _ := get(t, r.client(), "http://me.example.com/"); code != 403 {
		t.Errorf("GET with unknown interfaces = %d %q, want 403", code, body)
	}
}

func TestOperatorAllowsLoopback(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") }))
	defer up.Close()
	r := newRig(t, hostOf(up.URL))
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist}
	if code, body, _ := get(t, r.client(), up.URL); code != 200 || body != "ok" {
		t.Errorf("GET = %d %q, want 200", code, body)
	}
}

func TestUpstreamFailures(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	go func() {
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "SSH-2.0-nonsense\r\n")
			c.Close()
		}
	}()
	r := newRig(t, "")
	r.publish("dead.example.com", "93.184.215.14", dead.Addr().String(), 80)
	r.publish("garbage.example.com", "93.184.215.15", garbage.Addr().String(), 80)
	for _, host := range []string{"dead.example.com", "nowhere.example.com", "garbage.example.com"} {
		code, body, _ := get(t, r.client(), "http://"+host+"/")
		if code != 502 || !strings.Contains(body, host) {
			t.Errorf("GET %s = %d %q, want 502 that names the host", host, code, body)
		}
	}
}

// The next address is tried when the first does not answer.
func TestSecondAddress(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") }))
	defer up.Close()
	r := newRig(t, "")
	r.names.answers["two.example.com"] = [][]netip.Addr{addrs("93.184.215.20", "93.184.215.14")}
	r.routes["93.184.215.20:80"] = "127.0.0.1:1"
	r.routes["93.184.215.14:80"] = hostOf(up.URL)
	if code, _, _ := get(t, r.client(), "http://two.example.com/"); code != 200 {
		t.Errorf("GET = %d, want 200", code)
	}
}

func TestMalformed(t *testing.T) {
	for _, raw := range []string{
		"GET / HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
		"GET https://pypi.org/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
		"GET ftp://pypi.org/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
		"CONNECT pypi.org HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
		"CONNECT pypi.org:0 HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
		"CONNECT pypi.org:99999 HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
		"GET http://pypi.org:x/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
		"nonsense\r\n\r\n",
		"GET http://pypi.org/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
	} {
		r := newRig(t, "")
		c := r.dial()
		fmt.Fprint(c, raw)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != 400 {
			t.Errorf("%q: %v, %v, want 400", raw, res, err)
		}
		if len(r.dialled) != 0 {
			t.Errorf("%q: dialled %v", raw, r.dialled)
		}
	}
}

// The Host header is the decided host's, whatever the guest writes there.
func TestHostHeaderCannotDiffer(t *testing.T) {
	got := make(chan string, 1)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got <- r.Host }))
	defer up.Close()
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	c := r.dial()
	fmt.Fprint(c, "GET http://a.example.com/ HTTP/1.1\r\nHost: hidden.example.com\r\n\r\n")
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 200 {
		t.Fatalf("GET = %v, %v, want 200", res, err)
	}
	if h := <-got; h != "a.example.com" {
		t.Errorf("upstream got Host %q, want a.example.com", h)
	}
}

// Pipelined requests of one stream are answered in order, each by its own
// decision: apt does this.
func TestPipelined(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	defer up.Close()
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	c := r.dial()
	var raw bytes.Buffer
	for _, u := range []string{"a.example.com/1", "a.example.com/2", "b.example.com/3", "a.example.com/4"} {
		fmt.Fprintf(&raw, "GET http://%s HTTP/1.1\r\nHost: x\r\n\r\n", u)
	}
	if _, err := c.Write(raw.Bytes()); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	for i, want := range []int{200, 200, 403} {
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != want {
			t.Fatalf("answer %d = %v, %v, want %d", i, res, err, want)
		}
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Fatalf("answer %d: body: %v", i, err)
		}
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("after a denial the stream gives %v, want EOF", err)
	}
}

// A policy that changes holds for the next request of an open stream.
func TestPolicyChange(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer up.Close()
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	c := r.dial()
	br := bufio.NewReader(c)
	for i, want := range []int{200, 403} {
		fmt.Fprint(c, "GET http://a.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != want {
			t.Fatalf("answer %d = %v, %v, want %d", i, res, err, want)
		}
		r.policy = sandbox.Policy{Mode: sandbox.NetworkNone}
	}
}
