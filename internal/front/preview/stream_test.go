package preview_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// inUse reports whether a sandbox is in use now.
func (w *world) inUse(id string) bool {
	var b map[string]any
	w.api("GET", "/v1/sandboxes/"+id, "", &b)
	return b["idle_at"] == nil
}

// until waits for something to be so.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := poll.Until(ctx, 5*time.Millisecond, 50*time.Millisecond, func() (bool, error) { return is(), nil }); err != nil {
		w.t.Fatalf("it does not come that %s: %v", what, err)
	}
}

// What an app sends arrives when it is sent, and the request is use for as long
// as it goes on. When the visitor goes, the app hears of it.
func TestStreams(t *testing.T) {
	next, gone := make(chan string), make(chan struct{})
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case s := <-next:
				_, _ = io.WriteString(w, s)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				gone <- struct{}{}
				return
			}
		}
	})
	for _, kind := range []string{"text/event-stream", "application/octet-stream"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+w.host("a", 0)+"/?type="+kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body := bufio.NewReader(res.Body)
		for range 3 {
			next <- "data: x\n"
			if line, err := body.ReadString('\n'); line != "data: x\n" {
				t.Fatalf("%s: read %q, %v", kind, line, err)
			}
		}
		if !w.inUse("a") {
			t.Errorf("%s: the sandbox is not in use", kind)
		}
		cancel()
		<-gone
		w.until("the sandbox is not in use", func() bool { return !w.inUse("a") })
	}
}

// An upload reaches the app while it comes, and its answer the visitor before
// the upload ends.
func TestUploadsAreStreamed(t *testing.T) {
	got := make(chan string)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		body := bufio.NewReader(r.Body)
		for {
			line, err := body.ReadString('\n')
			if err != nil {
				return
			}
			got <- line
		}
	})
	in, out := io.Pipe()
	done := make(chan int)
	go func() { done <- w.do("POST", "http://"+w.host("a", 0)+"/", in).StatusCode }()
	for range 3 {
		if _, err := io.WriteString(out, "piece\n"); err != nil {
			t.Fatal(err)
		}
		if line := <-got; line != "piece\n" {
			t.Errorf("the app read %q", line)
		}
	}
	out.Close()
	if status := <-done; status != http.StatusOK {
		t.Errorf("the upload is %d", status)
	}
}

// A WebSocket is use while bytes flow, and not for as long as it is open.
func TestWebSockets(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil) // which compares Host and Origin
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for {
			kind, data, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			if err := conn.Write(r.Context(), kind, data); err != nil {
				return
			}
		}
	})
	own := "http://" + w.host("a", 0)
	dial := func(origin string) (*websocket.Conn, error) {
		conn, res, err := websocket.Dial(t.Context(), own+"/", &websocket.DialOptions{HTTPClient: w.web, HTTPHeader: http.Header{"Origin": {origin}}})
		if err != nil && (res == nil || res.StatusCode != http.StatusForbidden) {
			t.Fatalf("dial: %v", err)
		}
		return conn, err
	}
	if _, err := dial("http://evil.example"); err == nil {
		t.Error("the app's own check of origins is gone")
	}
	conn, err := dial(own)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	for _, text := range []string{"hello", strings.Repeat("x", 30_000)} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, data, err := conn.Read(t.Context()); string(data) != text {
			t.Fatalf("read %d bytes, %v", len(data), err)
		}
	}
	w.until("an idle WebSocket is no use", func() bool { return !w.inUse("a") })
	// A sleep ends it, as its other end is not there any more.
	ended := make(chan error, 1)
	go func() {
		_, _, err := conn.Read(t.Context())
		ended <- err
	}()
	if err := w.d.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the end of the daemon is a message")
	}
}

// Visitors may speak HTTP/2 without TLS, as at the API.
func TestHTTP2(t *testing.T) {
	w := newWorld(t, echo)
	tr := w.web.Transport.(*http.Transport)
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetUnencryptedHTTP2(true)
	got := w.do("POST", "http://"+w.host("a", 0)+"/x", strings.NewReader("body"), "Cookie", "a=b", "Cookie", "c=d")
	if got.StatusCode != 200 || got.ProtoMajor != 2 || !strings.HasPrefix(got.text, "POST /x localhost:"+strconv.Itoa(w.port)) || !strings.HasSuffix(got.text, "body 4") {
		t.Errorf("over HTTP/2: %s %s", got.Proto, got.text)
	}
	if got := w.get("http://" + w.host("p", 0) + "/"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a private one over HTTP/2 is %d", got.StatusCode)
	}
	got = w.get("http://"+w.host("a", 0)+"/", "Host", "evil.example")
	if got.StatusCode != http.StatusNotFound {
		t.Errorf("a foreign :authority is %d", got.StatusCode)
	}
}

// A sandbox that sleeps runs for a visitor that may see it, and for no other.
func TestVisitsWakeSandboxes(t *testing.T) {
	w := newWorld(t, echo)
	state := func(id string) (status string) {
		var b struct{ Status string }
		w.api("GET", "/v1/sandboxes/"+id, "", &b)
		return b.Status
	}
	own, private := "http://"+w.host("a", 0)+"/", "http://"+w.host("p", 0)+"/"
	for _, id := range []string{"a", "p"} {
		w.api("POST", "/v1/sandboxes/"+id+"/sleep", "", nil)
	}
	asleep := state("p")
	if asleep == "running" {
		t.Fatal("it does not sleep")
	}
	if got := w.get(private); got.StatusCode != http.StatusUnauthorized || state("p") != asleep {
		t.Errorf("a stranger is answered %d, and the sandbox is %s", got.StatusCode, state("p"))
	}
	if got := w.do("POST", own, strings.NewReader("body")); got.StatusCode != 200 || !strings.HasSuffix(got.text, "body 4") || state("a") != "running" {
		t.Errorf("the request that wakes is %d %s, and the sandbox is %s", got.StatusCode, got.text, state("a"))
	}
	// One that a request stopped stays so.
	w.api("POST", "/v1/sandboxes/a/stop", "", nil)
	got := w.get(own, "Accept", "text/html")
	if got.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got.text, "The app is stopped") || strings.Contains(got.text, "refresh") || state("a") != "stopped" {
		t.Errorf("of a stopped sandbox: %d %s", got.StatusCode, got.text)
	}
}

// holdWakes makes sandboxes wait before they run, until hold is closed.
func (w *world) holdWakes() (hold chan struct{}) {
	hold = make(chan struct{})
	w.d.Faults.SetBefore(func(ctx context.Context, method string, _ sandbox.UID) {
		if method != "Start" && method != "Wake" {
			return
		}
		select {
		case <-hold:
		case <-ctx.Done():
		}
	})
	return hold
}

// A person gets a page soon while the sandbox comes up, and the app when it has;
// a program waits.
func TestPageWhileTheSandboxWakes(t *testing.T) {
	w := newWorld(t, echo)
	own := "http://" + w.host("a", 0) + "/"
	w.api("POST", "/v1/sandboxes/a/sleep", "", nil)
	hold := w.holdWakes()
	for range 2 {
		got := w.get(own, "Accept", "text/html,application/xhtml+xml")
		if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "1" || got.Header.Get("Cache-Control") != "no-store" ||
			!strings.Contains(got.text, "<title>Spinning up your app…</title>") || !strings.Contains(got.text, `http-equiv="refresh" content="1"`) {
			t.Errorf("the page is %d %v %s", got.StatusCode, got.Header, got.text)
		}
	}
	program := make(chan answer)
	go func() { program <- w.get(own) }()
	if got := w.get(own, "Accept", "text/html"); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the page is %d", got.StatusCode)
	}
	select {
	case got := <-program:
		t.Errorf("a program is answered %d %s before the sandbox runs", got.StatusCode, got.text)
	default:
	}
	close(hold)
	if got := <-program; got.StatusCode != 200 {
		t.Errorf("the program is answered %d %s", got.StatusCode, got.text)
	}
	if got := w.get(own, "Accept", "text/html"); got.StatusCode != 200 {
		t.Errorf("the person is answered %d %s", got.StatusCode, got.text)
	}
}

// A port on which nothing listens yet is a page that looks again.
func TestNothingListens(t *testing.T) {
	w := newWorld(t, echo)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	address := "http://" + w.host("p", port) + "/"
	got := w.get(address, "Accept", "text/html", "X-Cubby-Preview-Token", token)
	if got.StatusCode != http.StatusBadGateway || got.Header.Get("Retry-After") != "2" || !strings.Contains(got.text, "Nothing is here yet") || !strings.Contains(got.text, "refresh") {
		t.Errorf("as a page: %d %v %s", got.StatusCode, got.Header, got.text)
	}
	got = w.get(address, "X-Cubby-Preview-Token", token)
	if got.StatusCode != http.StatusBadGateway || !strings.Contains(got.text, `"code":"sandbox_unavailable"`) || !strings.Contains(got.text, `"retryable":true`) {
		t.Errorf("as JSON: %d %s", got.StatusCode, got.text)
	}
}

// An app that fails is no failure of the daemon: its log does not warn of it.
func TestAppsThatFailAreLoggedQuietly(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	if got := w.get("http://" + w.host("a", 0) + "/"); got.StatusCode != http.StatusInternalServerError {
		t.Fatalf("the app answers %d", got.StatusCode)
	}
	w.until("the request is logged", func() bool { return strings.Contains(w.d.Log(), "route=preview status=500") })
	if log := w.d.Log(); strings.Contains(log, "level=WARN msg=request") {
		t.Errorf("the log has a warning:\n%s", log)
	}
}
