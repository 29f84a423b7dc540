package preview_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token  = "secret-of-alice"
	domain = "preview.localhost"
)

// world is a daemon with a sandbox "a" and an app, which listens on the loopback
// that the sandbox shares with the test.
type world struct {
	t    *testing.T
	d    *daemontest.Daemon
	port int
	web  *http.Client // reaches every name at the previews, and follows nothing
}

func newWorld(t *testing.T, app http.HandlerFunc, change ...func(*config.Config)) *world {
	t.Helper()
	return newWorldAt(t, app, nil, change...)
}

func newWorldAt(t *testing.T, app http.HandlerFunc, now func() time.Time, change ...func(*config.Config)) *world {
	t.Helper()
	w := &world{t: t}
	w.port = w.listen(app)
	w.d = daemontest.Start(t, daemontest.Options{Now: now, Config: func(c *config.Config) {
		c.Tokens = "alice:" + token + ",bob@other:secret-of-bob"
		for _, f := range change {
			f(c)
		}
	}})
	w.web = visitor(t, w.d.Shows)
	w.api("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":"a","ports":[%d],"visibility":"public"}`, w.port), nil)
	w.api("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":"P","ports":[%d]}`, w.port), nil)
	return w
}

// listen serves an app on a port of its own.
func (w *world) listen(app http.HandlerFunc) int {
	s := httptest.NewServer(app)
	w.t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// testClock stands until it is moved.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// visitor is a client that finds every name at one address.
func visitor(t *testing.T, address string) *http.Client {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
		DisableCompression: true,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// api makes a request that succeeds.
func (w *world) api(method, path, body string, answer any) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.d.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		w.t.Fatalf("%s %s = %s %s, %v", method, path, res.Status, text, err)
	}
	if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			w.t.Fatal(err)
		}
	}
}

// host is the name of a sandbox's port; 0 is the app's.
func (w *world) host(id string, port int) string {
	if port == 0 {
		port = w.port
	}
	return "s-" + id + "-" + strconv.Itoa(port) + "." + domain + ":" + w.at()
}

// at is the port of the previews.
func (w *world) at() string {
	w.t.Helper()
	_, at, err := net.SplitHostPort(w.d.Shows)
	if err != nil {
		w.t.Fatal(err)
	}
	return at
}

// link is one to a port of a sandbox.
func (w *world) link(id string, port int) (address, token string) {
	w.t.Helper()
	var l struct {
		URL       string    `json:"url"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	w.api("POST", fmt.Sprintf("/v1/sandboxes/%s/ports/%d/links", id, port), "", &l)
	u, err := url.Parse(l.URL)
	if err != nil || u.Query().Get("cubby_preview") == "" || !l.ExpiresAt.After(time.Now().Add(23*time.Hour)) {
		w.t.Fatalf("the link is %+v, %v", l, err)
	}
	return l.URL, u.Query().Get("cubby_preview")
}

type answer struct {
	*http.Response
	text string
}

// do sends a request with headers as name, value, …, and reads the answer.
func (w *world) do(method, address string, body io.Reader, header ...string) answer {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, address, body)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Add(header[i], header[i+1])
	}
	res, err := w.web.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, address, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, address, err)
	}
	return answer{res, string(text)}
}

func (w *world) get(address string, header ...string) answer {
	w.t.Helper()
	return w.do("GET", address, nil, header...)
}

// raw sends bytes and returns the status and the body of the first answer; "" is
// none.
func (w *world) raw(text string) string {
	w.t.Helper()
	got, _ := w.exchange(text)
	return got
}

// location is where the first answer to bytes leads.
func (w *world) location(text string) string {
	w.t.Helper()
	_, h := w.exchange(text)
	return h.Get("Location")
}

func (w *world) exchange(text string) (string, http.Header) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.d.Shows)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		w.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", nil
	}
	defer res.Body.Close()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d ", res.StatusCode)
	_, _ = b.ReadFrom(res.Body)
	return b.String(), res.Header
}

// echo answers with what it got.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Got-Host", r.Host)
	w.Header().Set("Content-Type", "text/plain")
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s\n", r.Method, r.RequestURI, r.Host)
	_ = r.Header.Write(w)
	fmt.Fprintf(w, "body %d", len(body))
}

func TestRequestsReachTheApp(t *testing.T) {
	w := newWorld(t, echo)
	own := "http://" + w.host("a", 0)
	local := "localhost:" + strconv.Itoa(w.port)
	for name, address := range map[string]string{
		"as s-id-port": own, "as port-id": strings.Replace(own, "s-a-"+strconv.Itoa(w.port), strconv.Itoa(w.port)+"-a", 1),
		"in any case": strings.Replace(own, "s-a", "S-A", 1), "with a dot at the end": strings.Replace(own, ".localhost", ".localhost.", 1),
	} {
		if got := w.get(address + "/a%2Fb//c?x=1;2&y=%zz"); got.StatusCode != 200 || !strings.HasPrefix(got.text, "GET /a%2Fb//c?x=1;2&y=%zz "+local+"\n") {
			t.Errorf("%s: %d %s", name, got.StatusCode, got.text)
		}
	}
	got := w.get(own+"/", "Authorization", "Bearer apps", "Referer", own+"/page?x", "X-Forwarded-For", "10.0.0.1",
		"X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "gopher", "Cookie", "a=b; c=d")
	for _, line := range []string{
		"Authorization: Bearer apps\r\n", "Referer: http://" + local + "/page?x\r\n", "X-Forwarded-For: 127.0.0.1\r\n",
		"X-Forwarded-Host: " + w.host("a", 0) + "\r\n", "X-Forwarded-Proto: http\r\n", "Cookie: a=b; c=d\r\n",
	} {
		if !strings.Contains(got.text, line) {
			t.Errorf("the app does not get %q, but %s", line, got.text)
		}
	}
	for _, name := range []string{"X-Request-Id", "X-Content-Type-Options"} {
		if got.Header.Get(name) != "" {
			t.Errorf("the answer has %s, which the app did not send", name)
		}
	}
	for _, foreign := range []string{"null", "http://evil.example", "https" + own[4:], own + ".evil.example", "http://" + w.host("P", 0)} {
		got := w.get(own+"/", "Origin", foreign, "Referer", foreign+"/x")
		if !strings.Contains(got.text, "Origin: "+foreign+"\r\n") || !strings.Contains(got.text, "Referer: "+foreign+"/x\r\n") {
			t.Errorf("of origin %s the app gets %s", foreign, got.text)
		}
	}
	if got := w.do("PUT", own+"/", strings.NewReader(strings.Repeat("x", 5<<20))); !strings.HasSuffix(got.text, "body 5242880") {
		t.Errorf("an upload arrives as %s", got.text)
	}
	if got := w.do("HEAD", own+"/", nil); got.StatusCode != 200 || got.text != "" || got.Header.Get("X-Got-Host") != local {
		t.Errorf("HEAD = %v", got.Header)
	}
}

// A page's own request names its origin. What frameworks compare with that is the
// same local page, or absent.
func TestForwardedHostDiffersFromTheOrigin(t *testing.T) {
	w := newWorld(t, echo)
	own := "http://" + w.host("a", 0)
	got := w.do("POST", own+"/", nil, "Origin", own, "X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "gopher")
	if !strings.Contains(got.text, "Origin: http://localhost:"+strconv.Itoa(w.port)+"\r\n") ||
		strings.Contains(got.text, "X-Forwarded-Host") || strings.Contains(got.text, "X-Forwarded-Proto") || !strings.Contains(got.text, "X-Forwarded-For: 127.0.0.1\r\n") {
		t.Errorf("the app gets %s", got.text)
	}
	w.api("PATCH", "/v1/sandboxes/a", `{"host_header":"preserve"}`, nil)
	got = w.do("POST", own+"/", nil, "Origin", own)
	if !strings.Contains(got.text, "Origin: "+own+"\r\n") || !strings.Contains(got.text, "X-Forwarded-Host: "+w.host("a", 0)+"\r\n") || !strings.Contains(got.text, "X-Forwarded-Proto: http\r\n") {
		t.Errorf("with its own host the app gets %s", got.text)
	}
}

// An app that makes absolute addresses of its Host wants the preview's.
func TestTheHostIsPreserved(t *testing.T) {
	w := newWorld(t, echo)
	own := "http://" + w.host("a", 0)
	w.api("PATCH", "/v1/sandboxes/a", `{"host_header":"preserve"}`, nil)
	got := w.get(own+"/", "Origin", own, "Referer", own+"/x")
	if got.Header.Get("X-Got-Host") != w.host("a", 0) || !strings.Contains(got.text, "Origin: "+own+"\r\n") || !strings.Contains(got.text, "Referer: "+own+"/x\r\n") {
		t.Errorf("the app gets %s", got.text)
	}
	w.api("PATCH", "/v1/sandboxes/a", `{"host_header":"localhost"}`, nil)
	if got := w.get(own + "/"); got.Header.Get("X-Got-Host") != "localhost:"+strconv.Itoa(w.port) {
		t.Errorf("then the app gets %s", got.text)
	}
}

// Over TLS everything is as behind a proxy that speaks it.
func TestTLS(t *testing.T) {
	cert, key := certificate(t, "*."+domain)
	w := newWorld(t, echo, func(c *config.Config) { c.PreviewTLSCert, c.PreviewTLSKey = cert, key })
	tr := w.web.Transport.(*http.Transport)
	pool := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	tr.TLSClientConfig = &tls.Config{RootCAs: pool}
	tr.ForceAttemptHTTP2 = true
	address, pass := w.link("p", w.port)
	own := "https://" + w.host("p", 0)
	got := w.get(address)
	if !strings.HasPrefix(address, own+"/?") || got.StatusCode != http.StatusSeeOther || got.ProtoMajor != 2 ||
		!strings.HasPrefix(got.Header.Get("Set-Cookie"), "__Host-cubby_preview="+pass+"; Path=/;") {
		t.Errorf("the link %s is %s %s %v", address, got.Proto, got.Status, got.Header)
	}
	got = w.get(own+"/", "Cookie", "__Host-cubby_preview="+pass, "Referer", own+"/")
	for _, line := range []string{"X-Forwarded-Proto: https\r\n", "Referer: http://localhost:" + strconv.Itoa(w.port) + "/\r\n"} {
		if !strings.Contains(got.text, line) {
			t.Errorf("the app does not get %q, but %s", line, got.text)
		}
	}
	got = w.get(own+"/", "Cookie", "__Host-cubby_preview="+pass, "Origin", own)
	if !strings.Contains(got.text, "Origin: http://localhost:"+strconv.Itoa(w.port)+"\r\n") {
		t.Errorf("of its own origin the app gets %s", got.text)
	}
}

// certificate makes one for a name, with its key, and returns the files.
func certificate(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestAnswersReachTheVisitor(t *testing.T) {
	var local string
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		switch r.URL.Path {
		case "/redirect":
			h.Set("Location", r.URL.Query().Get("to"))
			w.WriteHeader(http.StatusFound)
		case "/cookies":
			h.Add("Set-Cookie", "a=1; Path=/; Domain=localhost; HttpOnly")
			h.Add("Set-Cookie", "b=2; domain=.preview.localhost")
			h.Add("Set-Cookie", "c=3; SameSite=Lax")
			h.Add("Set-Cookie", "cubby_preview=x; Path=/")
			h.Add("Set-Cookie", " __Host-cubby_preview=x; Path=/")
		case "/trailers":
			h.Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "body")
			h.Set("X-Sum", "42")
		case "/hints":
			h.Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
		}
	})
	own := "http://" + w.host("a", 0)
	local = "localhost:" + strconv.Itoa(w.port)
	for to, want := range map[string]string{
		"/x": "/x", "http://" + local + "/x?y=1#z": own + "/x?y=1#z", "https://127.0.0.1:" + strconv.Itoa(w.port) + "/": own + "/",
		"//" + local + "/x": own + "/x", "http://localhost:1/": "http://localhost:1/", "https://example.com/": "https://example.com/", "//evil.example": "//evil.example",
		"mailto:a@localhost": "mailto:a@localhost",
	} {
		if got := w.get(own + "/redirect?to=" + url.QueryEscape(to)); got.Header.Get("Location") != want {
			t.Errorf("Location %s is %s, want %s", to, got.Header.Get("Location"), want)
		}
	}
	if got := w.get(own + "/cookies").Header.Values("Set-Cookie"); strings.Join(got, "|") != "a=1; Path=/; HttpOnly|b=2|c=3; SameSite=Lax" {
		t.Errorf("cookies are %q", got)
	}
	if got := w.get(own + "/trailers"); got.text != "body" || got.Trailer.Get("X-Sum") != "42" {
		t.Errorf("the trailers are %v", got.Trailer)
	}
	if got := w.get(own + "/hints"); got.StatusCode != http.StatusTeapot {
		t.Errorf("after a hint the status is %d", got.StatusCode)
	}
}
