//go:build root

package e2e_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/test/harness"
)

// caFile is where a sandbox of these tests has the authority of their servers.
const caFile = "/workspace/ca.pem"

// origin is a server elsewhere that remembers the headers of what it was asked.
type origin struct {
	plain, secure string // host:port

	mu      sync.Mutex
	headers []http.Header
	arrived map[string]chan struct{} // by name, closed when somebody asked for it
}

func (o *origin) seen() []http.Header {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]http.Header(nil), o.headers...)
}

func (o *origin) arrival(name string) chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.arrived[name] == nil {
		o.arrived[name] = make(chan struct{})
	}
	return o.arrived[name]
}

// newOrigin serves what the tests of protocols ask for.
func newOrigin(t *testing.T) (o *origin, authority string) {
	t.Helper()
	certificate, authority := ownAuthority(t)
	o = &origin{arrived: map[string]chan struct{}{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.headers = append(o.headers, r.Header.Clone())
		o.mu.Unlock()
		fmt.Fprintf(w, "hello over %s\n", r.Proto)
	})
	mux.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		_ = c.Write(r.Context(), websocket.MessageText, []byte("hello from a socket"))
	})
	// The second half comes when somebody has seen the first.
	mux.HandleFunc("/halves/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-o.arrival(r.PathValue("name")):
			fmt.Fprintln(w, "second")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/seen/{name}", func(_ http.ResponseWriter, r *http.Request) { close(o.arrival(r.PathValue("name"))) })
	mux.HandleFunc("/upper", func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		for lines := bufio.NewScanner(r.Body); lines.Scan(); _ = rc.Flush() {
			fmt.Fprintln(w, strings.ToUpper(lines.Text()))
		}
	})
	for _, to := range []*string{&o.plain, &o.secure} {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", elsewhere+":0")
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(mux)
		s.Listener.Close()
		s.Listener = l
		if to == &o.plain {
			s.Start()
		} else {
			s.TLS, s.EnableHTTP2 = certificate, true
			s.StartTLS()
		}
		t.Cleanup(s.Close)
		*to = l.Addr().String()
	}
	return o, authority
}

// TestEgressProtocols takes what programs speak through the egress path of
// real sandboxes.
func TestEgressProtocols(t *testing.T) {
	t.Parallel()
	o, authority := newOrigin(t)
	eachIsolation(t, sdk.CreateOptions{Env: map[string]string{"CURL_CA_BUNDLE": caFile}}, func(t *testing.T, _ realHost, c *sdk.Client) {
		if _, err := c.Files("a").Write(t.Context(), caFile, strings.NewReader(authority), sdk.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		for scheme, host := range map[string]string{"http": o.plain, "https": o.secure} {
			name := strings.ReplaceAll(t.Name(), "/", "-") + "-" + scheme
			for _, tt := range []struct{ what, line, want string }{
				{"a request", "curl -sS --http1.1 URL/hello", "hello over HTTP/1.1"},
				{"HTTP/2", "curl -sS --http2 URL/hello", map[string]string{"http": "hello over", "https": "hello over HTTP/2.0"}[scheme]},
				{"SOCKS", "curl -sS --noproxy '' --proxy socks5h://127.0.0.1:3128 URL/hello", "hello over"},
				{"an upgrade", "curl -sS --http1.1 --max-time 280 -i -N -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' URL/socket | tr -d '\\000'", "hello from a socket"},
				{"half an answer", "curl -sSN --max-time 280 URL/halves/NAME | (read -r first; curl -sS URL/seen/NAME; echo \"$first\"; cat)", "first\nsecond"},
				{"an upload that goes on", "(echo one; echo two) | curl -sSN --http1.1 --max-time 280 -T - -X POST -H 'Transfer-Encoding: chunked' URL/upper", "ONE\nTWO"},
				{"a body that waits for its turn", "curl -sS --http1.1 -H 'Expect: 100-continue' --expect100-timeout 280 --data-binary @/workspace/ca.pem URL/upper | head -1", "-----BEGIN CERTIFICATE-----"},
			} {
				line := strings.NewReplacer("URL", scheme+"://"+host, "NAME", name).Replace(tt.line)
				if e := sh(t, c, line); !strings.Contains(e.Stdout, tt.want) {
					t.Errorf("%s over %s = %q, want %q\n%s", tt.what, scheme, e.Stdout, tt.want, e.Stderr)
				}
			}
		}
		var allowed []struct {
			Payload struct {
				Protocol      string `json:"protocol"`
				BytesSent     int64  `json:"bytes_sent"`
				BytesReceived int64  `json:"bytes_received"`
			} `json:"payload"`
		}
		protocols := map[string]bool{}
		eventually(t, patience, "the connections are in the history", func() bool {
			_, text := call(t, "GET", c.URL()+"/v1/sandboxes/a/events?limit=1000&kinds=egress.allowed", "")
			var page struct{ Events json.RawMessage }
			if json.Unmarshal([]byte(text), &page) != nil || json.Unmarshal(page.Events, &allowed) != nil {
				t.Fatalf("events = %s", text)
			}
			for _, e := range allowed {
				if e.Payload.BytesSent > 0 && e.Payload.BytesReceived > 0 {
					protocols[e.Payload.Protocol] = true
				}
			}
			return protocols["connect"] && protocols["socks"] && protocols["http"]
		})
		cutsWhatIsOpen(t, c, o)
	})
}

// cutsWhatIsOpen has a download that a new policy does not allow end, and
// another one go on.
func cutsWhatIsOpen(t *testing.T, c *sdk.Client, o *origin) {
	t.Helper()
	name := strings.ReplaceAll(t.Name(), "/", "-")
	sh(t, c, "(curl -sSkN --max-time 280 https://"+o.secure+"/halves/"+name+"-kept > kept; echo $? > kept.code) > /dev/null 2>&1 & "+
		"(curl -sSN --max-time 280 http://"+o.plain+"/halves/"+name+"-cut > cut; echo $? > cut.code) > /dev/null 2>&1 & "+
		"until grep -q first kept && grep -q first cut; do sleep 0.05; done")
	_, port, _ := net.SplitHostPort(o.plain)
	if _, err := c.Update(t.Context(), "a", sdk.Patch{Network: &sdk.Network{Deny: []string{elsewhere + ":" + port}}, CutConnections: true}); err != nil {
		t.Fatal(err)
	}
	if e := sh(t, c, "until [ -s cut.code ]; do sleep 0.05; done; cat cut.code; cat kept; [ ! -e kept.code ] && curl -sS -o /dev/null -w '%{http_code}' http://"+o.plain+"/hello"); strings.HasPrefix(e.Stdout, "0\n") ||
		!strings.HasSuffix(e.Stdout, "\nfirst\n403") {
		t.Errorf("after the cut: %q %s", e.Stdout, e.Stderr)
	}
	close(o.arrival(name + "-kept"))
	if e := sh(t, c, "until [ -s kept.code ]; do sleep 0.05; done; cat kept kept.code"); e.Stdout != "first\nsecond\n0\n" {
		t.Errorf("what is still allowed ends with %q", e.Stdout)
	}
	if _, err := c.Update(t.Context(), "a", sdk.Patch{Network: &sdk.Network{Mode: "allowlist"}}); err != nil {
		t.Fatal(err)
	}
}

// TestNoSandboxSeesAToken has the daemon send everything through a proxy of its
// own. Requests arrive there with tokens, and neither a process of the sandbox
// nor the server at the other end sees one.
func TestNoSandboxSeesAToken(t *testing.T) {
	t.Parallel()
	o, _ := newOrigin(t)
	const key = "a key of the tokens that nobody sees"
	keys, err := egress.ParseKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	operator, err := egress.ParseOperator(elsewhere, "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	sessions := map[string]int{}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = egress.NewAlone(egress.Config{Operator: operator, OnDecision: func(box sandbox.UID, d egress.Decision) {
			mu.Lock()
			defer mu.Unlock()
			sessions[string(box)]++
		}}, keys).Serve(ctx, l)
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			h := newReal(t, harness.Options{})
			url, err := h.start([]string{"--egress-allow", elsewhere, "--egress-proxy", "http://" + l.Addr().String(), "--egress-signing-key", key})
			if err != nil {
				t.Fatal(err)
			}
			c := clientOf(url)
			if _, err := c.Create(t.Context(), sdk.CreateOptions{ID: "a", Isolation: isolation, User: "root"}); err != nil {
				t.Fatal(err)
			}
			before := len(o.seen())
			e := sh(t, c, "curl -sSv http://"+o.plain+"/hello 2>&1; curl -sSv --proxy-header 'Proxy-Authorization: Basic eHh4OnVzZXI=' http://"+o.plain+"/hello 2>&1; "+
				"curl -sSvk https://"+o.secure+"/hello 2>&1; "+
				"env; for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\\0' '\\n' < $f; done 2>/dev/null; set")
			if n := strings.Count(e.Stdout, "hello over"); n != 3 {
				t.Errorf("%d answers came, want 3: %s", n, e.Stdout)
			}
			for _, secret := range []string{"eyJ", "jwt_", key, "sandbox-egress-control"} {
				if strings.Contains(e.Stdout, secret) {
					t.Errorf("the sandbox sees %q:\n%s", secret, e.Stdout)
				}
			}
			arrived := o.seen()[before:]
			if len(arrived) != 3 {
				t.Errorf("%d requests arrived, want 3", len(arrived))
			}
			for _, header := range arrived {
				if v := header.Get("Proxy-Authorization"); v != "" {
					t.Errorf("the server at the end sees %q", v)
				}
			}
			mu.Lock()
			if len(sessions) != 1 || sessions[""] > 0 {
				t.Errorf("the proxy heard of %v, want one sandbox", sessions)
			}
			clear(sessions)
			mu.Unlock()
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// ownAuthority makes a certificate authority and a server's certificate for
// elsewhere that it signed.
func ownAuthority(t *testing.T) (server *tls.Config, authority string) {
	t.Helper()
	must := func(der []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	caKey, serverKey := key(), key()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test Authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER := must(x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey))
	// With the key's id, which strict clients want to see in what it signs.
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: elsewhere}, IPAddresses: []net.IP{net.ParseIP(elsewhere)}, DNSNames: []string{goodName},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER := must(x509.CreateCertificate(rand.Reader, leaf, ca, &serverKey.PublicKey, caKey))
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leafDER}, PrivateKey: serverKey}}},
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
}
