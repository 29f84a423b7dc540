package preview_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Whatever a request says of its host, it is one of a preview's names, or it
// reaches nothing.
func TestAttackNamesOfHosts(t *testing.T) {
	var hits atomic.Int64
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { hits.Add(1); echo(w, r) })
	_, at, err := net.SplitHostPort(w.d.Shows)
	if err != nil {
		t.Fatal(err)
	}
	name := "s-a-" + strconv.Itoa(w.port)
	port := strconv.Itoa(w.port)
	refused := map[string]string{
		"":                                 "no name",
		domain:                             "the domain itself",
		"localhost:" + at:                  "another name",
		"127.0.0.1:" + at:                  "an address",
		"[::1]:" + at:                      "an address of IPv6",
		"[" + name + "." + domain + "]":    "a name in brackets",
		name + "." + domain + ".evil.test": "the name below another domain",
		name + ".evil.test":                "a label below another domain",
		"x." + name + "." + domain:         "a name below it",
		name + domain:                      "no dot before the domain",
		"s-a-0" + port + "." + domain:      "a port with a zero before it",
		"s-a-+" + port + "." + domain:      "a port with a sign",
		"s-a-0." + domain:                  "port 0",
		"s-a-65536." + domain:              "a port that is none",
		"s-a." + domain:                    "no port",
		"s--" + port + "." + domain:        "no id",
		port + "-." + domain:               "no id before",
		"s-a%2d" + port + "." + domain:     "an escape",
		"s-ａ-" + port + "." + domain:       "another script's a",
		"xn--s-a-" + port + "." + domain:   "an international name",
		name + "." + domain + "..":         "two dots at the end",
		name + "." + domain + ":x":         "a port that is no number",
		name + "." + domain + ":1:2":       "two ports",
		"u@" + name + "." + domain:         "a user",
		name + "." + domain + "/x":         "a path",
		name + "_." + domain:               "a foreign character",
	}
	for host, what := range refused {
		got := w.raw("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "404 ") && !strings.HasPrefix(got, "400 ") && !strings.HasPrefix(got, "401 ") {
			t.Errorf("%s (%q) is %.60s", what, host, got)
		}
	}
	own := name + "." + domain
	private := "s-p-" + port + "." + domain
	for what, tt := range map[string]struct{ request, status string }{
		"two hosts":                        {"GET / HTTP/1.1\r\nHost: " + own + "\r\nHost: " + private + "\r\n\r\n", "400"},
		"no host":                          {"GET / HTTP/1.1\r\n\r\n", "400"},
		"a line that goes on":              {"GET / HTTP/1.1\r\nHost: " + own + "\r\n " + private + "\r\n\r\n", "400"},
		"a private one's absolute URI":     {"GET http://" + private + "/ HTTP/1.1\r\nHost: " + own + "\r\n\r\n", "401"},
		"an open one's absolute URI":       {"GET http://" + own + "/ HTTP/1.1\r\nHost: " + private + "\r\n\r\n", "200"},
		"another host's absolute URI":      {"GET http://evil.test/ HTTP/1.1\r\nHost: " + own + "\r\n\r\n", "404"},
		"a tunnel":                         {"CONNECT " + own + ":80 HTTP/1.1\r\nHost: " + own + "\r\n\r\n", "404"},
		"a tunnel to elsewhere":            {"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: " + own + "\r\n\r\n", "404"},
		"a URI without slashes":            {"GET http:evil.test HTTP/1.1\r\nHost: " + private + "\r\n\r\n", "401"},
		"a question about the server":      {"OPTIONS * HTTP/1.1\r\nHost: evil.test\r\n\r\n", "404"},
		"one about a private one's":        {"OPTIONS * HTTP/1.1\r\nHost: " + private + "\r\n\r\n", "401"},
		"X-Forwarded-Host":                 {"GET / HTTP/1.1\r\nHost: " + private + "\r\nX-Forwarded-Host: " + own + "\r\n\r\n", "401"},
		"Forwarded":                        {"GET / HTTP/1.1\r\nHost: " + private + "\r\nForwarded: host=" + own + "\r\n\r\n", "401"},
		"the API's path":                   {"GET /v1/sandboxes HTTP/1.1\r\nHost: 127.0.0.1:" + at + "\r\nAuthorization: Bearer " + token + "\r\n\r\n", "404"},
		"the API's path, of a private one": {"GET /v1/sandboxes HTTP/1.1\r\nHost: " + private + "\r\nAuthorization: Bearer " + token + "\r\nX-API-Key: " + token + "\r\n\r\n", "401"},
	} {
		if got := w.raw(tt.request); !strings.HasPrefix(got, tt.status+" ") {
			t.Errorf("%s is %.80q, want %s", what, got, tt.status)
		}
	}
	if n := hits.Load(); n != 1 {
		t.Errorf("the app got %d requests, want one", n)
	}
	// The API does not know the names of previews.
	req, err := http.NewRequestWithContext(t.Context(), "GET", w.d.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = own
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized || hits.Load() != 1 {
		t.Errorf("a preview's name at the API is %s", res.Status)
	}
}

// A page of the visitor's own machine on the app's port is foreign, and the app
// does not take it for its own.
func TestAttackOriginOfTheVisitorsMachine(t *testing.T) {
	w := newWorld(t, echo)
	for _, name := range []string{"localhost", "LOCALHOST"} {
		foreign := fmt.Sprintf("http://%s:%d", name, w.port)
		got := w.do("POST", "http://"+w.host("a", 0)+"/", nil, "Origin", foreign, "Referer", foreign+"/page")
		if !strings.Contains(got.text, "Origin: null\r\n") || strings.Contains(got.text, "Referer") {
			t.Errorf("of origin %s the app gets %s", foreign, got.text)
		}
	}
}

// A daemon without tokens answers the API to names of this machine alone: pages
// of previews are of none.
func TestAttackAPIFromAPreview(t *testing.T) {
	w := newWorld(t, echo, func(c *config.Config) { c.Tokens = "" })
	own := w.host("a", 0)
	for name, change := range map[string]func(*http.Request){
		"its name":   func(r *http.Request) { r.Host = own },
		"its origin": func(r *http.Request) { r.Header.Set("Origin", "http://"+own) },
		"both": func(r *http.Request) {
			r.Host = own
			r.Header.Set("Origin", "http://"+own)
		},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", w.d.URL+"/v1/sandboxes", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(req)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer http.DefaultClient.CloseIdleConnections()
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("a request of the API with %s is %s", name, res.Status)
		}
	}
}

// Of a request whose end can be read in two ways, the app gets one or none, and
// never a second that the visitor hid in it.
func TestAttackSmuggledRequests(t *testing.T) {
	var mu sync.Mutex
	hits := map[string]int{} // by path
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hits[r.URL.Path]++
		mu.Unlock()
		_, _ = io.Copy(w, r.Body)
	})
	host := "Host: " + w.host("a", 0) + "\r\n"
	hidden := "GET /smuggled HTTP/1.1\r\nHost: localhost\r\nX: "
	for name, request := range map[string]string{
		"length and chunks":    "POST / HTTP/1.1\r\n" + host + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":          "POST / HTTP/1.1\r\n" + host + "Content-Length: 0\r\nContent-Length: 30\r\n\r\n" + hidden,
		"a list of lengths":    "POST / HTTP/1.1\r\n" + host + "Content-Length: 0, 30\r\n\r\n" + hidden,
		"a signed length":      "POST / HTTP/1.1\r\n" + host + "Content-Length: +0\r\n\r\n" + hidden,
		"an unknown coding":    "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
		"two codings":          "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
		"a space in the name":  "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
		"a chunk that is none": "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + hidden,
		"a chunk's extension":  "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0;\n" + hidden,
		"HTTP/1.0 with chunks": "POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 30\r\n\r\n0\r\n\r\n" + hidden,
		"a line in a header":   "GET / HTTP/1.1\r\n" + host + "X-A: a\rGET /smuggled HTTP/1.1\r\n\r\n",
		"a NUL in a header":    "GET / HTTP/1.1\r\n" + host + "X-A: a\x00b\r\n\r\n",
		"a line in the path":   "GET /\nsmuggled HTTP/1.1\r\n" + host + "\r\n",
		"an h2c upgrade":       "GET /h2c HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		w.raw(strings.Replace(request, " / ", " /"+url.PathEscape(name)+" ", 1) + "\r\n\r\n")
	}
	mu.Lock()
	defer mu.Unlock()
	for path, n := range hits {
		if n > 1 || strings.Contains(path, "smuggled") {
			t.Errorf("the app got %s %d times", path, n)
		}
	}
}

// What a visitor lists as of this connection is not taken from the door.
func TestAttackHopByHop(t *testing.T) {
	w := newWorld(t, echo)
	_, pass := w.link("p", w.port)
	got := w.raw("GET / HTTP/1.1\r\nHost: " + w.host("p", 0) + "\r\nConnection: close, X-Cubby-Preview-Token, X-Forwarded-For, Cookie, Host\r\n" +
		"X-Cubby-Preview-Token: " + pass + "\r\nx-cubby-preview-token: second\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
	if !strings.HasPrefix(got, "200 ") || strings.Contains(strings.ToLower(got), "cubby") || !strings.Contains(got, "X-Forwarded-For: 127.0.0.1\r\n") ||
		!strings.Contains(got, "localhost:"+strconv.Itoa(w.port)) {
		t.Errorf("the app gets %s", got)
	}
}

// hostile is an app that answers each connection with bytes of its own, and goes
// on for as long as they are taken.
func hostile(t *testing.T, begin, again string) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 64<<10))
			_, err = io.WriteString(c, begin)
			for err == nil && again != "" {
				_, err = io.WriteString(c, again)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).Port
}

// An app that does not speak HTTP, or without end, is a page.
func TestAttackHostileApps(t *testing.T) {
	w := newWorld(t, echo)
	for name, bytes := range map[string][2]string{
		"endless headers": {"HTTP/1.1 200 OK\r\n", "X-A: " + strings.Repeat("a", 4000) + "\r\n"},
		"endless hints":   {"", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"},
		"no HTTP":         {"SSH-2.0-OpenSSH_9.7\r\n", ""},
		"nothing":         {"", ""},
		"two lengths":     {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", ""},
		"a bad switch":    {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", ""},
	} {
		port := hostile(t, bytes[0], bytes[1])
		w.api("PATCH", "/v1/sandboxes/a", fmt.Sprintf(`{"ports":[%d]}`, port), nil)
		if got := w.get("http://" + w.host("a", port) + "/"); got.StatusCode != http.StatusBadGateway {
			t.Errorf("%s is %d %.80s", name, got.StatusCode, got.text)
		}
	}
	// A second answer on a kept connection is not the next visitor's.
	port := hostile(t, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirstHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond", "")
	w.api("PATCH", "/v1/sandboxes/a", fmt.Sprintf(`{"ports":[%d]}`, port), nil)
	for range 5 {
		if got := w.get("http://" + w.host("a", port) + "/"); got.StatusCode == 200 && got.text != "first" {
			t.Errorf("the answer is %q", got.text)
		}
	}
}

// Visitors who hold all connections that a sandbox gives them keep nobody from
// its commands, and none from another sandbox's previews.
func TestAttackAThousandConnections(t *testing.T) {
	leave := make(chan struct{})
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/hold" {
			select {
			case <-leave:
			case <-r.Context().Done():
			}
		}
	})
	var held, refused atomic.Int64
	var visitors, answered sync.WaitGroup
	for range 1000 {
		answered.Add(1)
		visitors.Go(func() {
			done := sync.OnceFunc(answered.Done)
			defer done()
			res, err := w.web.Get("http://" + w.host("a", 0) + "/hold")
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			switch res.StatusCode {
			case http.StatusOK:
				held.Add(1)
			case http.StatusServiceUnavailable:
				refused.Add(1)
			default:
				t.Errorf("a visitor is answered %s", res.Status)
			}
			done()
			_, _ = io.Copy(io.Discard, res.Body)
		})
	}
	answered.Wait()
	if held.Load() != 512 || refused.Load() != 488 {
		t.Errorf("%d visitors hold a connection and %d were refused, want 512 and 488", held.Load(), refused.Load())
	}
	var ran struct {
		ExitCode *int `json:"exit_code"`
	}
	w.api("POST", "/v1/sandboxes/a/exec", `{"cmd":"true"}`, &ran)
	if ran.ExitCode == nil || *ran.ExitCode != 0 {
		t.Errorf("a command of the sandbox: %v", ran.ExitCode)
	}
	if got := w.get("http://"+w.host("p", 0)+"/", "X-Cubby-Preview-Token", token); got.StatusCode != 200 {
		t.Errorf("another sandbox's preview is %d", got.StatusCode)
	}
	close(leave)
	visitors.Wait()
	w.until("there is room again", func() bool { return w.get("http://"+w.host("a", 0)+"/").StatusCode == 200 })
}

// A default port that another program has means no previews, one that was asked
// for an error.
func TestPreviewsOnATakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:9091")
	if err == nil {
		defer l.Close()
	}
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.PreviewListen = "" }})
	if d.Shows != "" || !strings.Contains(d.Log(), "there are no previews") {
		t.Errorf("previews are at %q", d.Shows)
	}
	cfg := config.Default()
	cfg.Listen, cfg.PreviewListen, cfg.DataDir = "127.0.0.1:0", "127.0.0.1:9091", t.TempDir()
	if _, err := daemon.New(t.Context(), cfg, daemon.WithDriver(drivertest.NewFake(t)), daemon.WithPlainDisks()); !errors.Is(err, errs.Unavailable) {
		t.Errorf("with a port that was asked for: %v", err)
	}
}
