package preview_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// open makes a port of "a" one that everybody sees, and returns where.
func (w *world) open(port int) string {
	w.t.Helper()
	w.api("PATCH", "/v1/sandboxes/a", fmt.Sprintf(`{"ports":[%d]}`, port), nil)
	return "http://" + w.host("a", port) + "/"
}

// An answer of many small fields would take megabytes for as long as it lasts.
func TestAttackAnswersOfManyFields(t *testing.T) {
	w := newWorld(t, echo)
	var many strings.Builder
	for i := range 257 {
		fmt.Fprintf(&many, "a%x:\r\n", i)
	}
	for fields, want := range map[string]int{many.String(): http.StatusBadGateway, many.String()[:many.Len()/2]: http.StatusOK} {
		fields = fields[:strings.LastIndex(fields, "\r\n")+2]
		at := w.open(hostile(t, "HTTP/1.1 200 OK\r\nConnection: close\r\n"+fields+"\r\n", ""))
		if got := w.get(at); got.StatusCode != want {
			t.Errorf("an answer of %d fields is %s", strings.Count(fields, "\n"), got.Status)
		}
	}
}

// Hints are passed on as they come, and some programs take cookies from them.
func TestAttackCookiesInHints(t *testing.T) {
	w := newWorld(t, echo)
	at := w.open(hostile(t, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nSet-Cookie: a=b; Domain="+domain+"\r\nSet-Cookie: cubby_preview=x\r\n\r\n"+
		"HTTP/1.1 200 OK\r\nConnection: close\r\nSet-Cookie: c=d; Domain="+domain+"\r\n\r\n", ""))
	hints := 0
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
			hints++
			if status != http.StatusEarlyHints || h.Get("Link") != "</x>" || h.Get("Set-Cookie") != "" {
				t.Errorf("the hint is %d %v", status, h)
			}
			return nil
		},
	}), "GET", at, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if hints != 1 || res.StatusCode != http.StatusOK || res.Header.Get("Set-Cookie") != "c=d" {
		t.Errorf("%d hints, %s, cookie %q", hints, res.Status, res.Header.Get("Set-Cookie"))
	}
}

// What follows the body of a request reaches the app too.
func TestTrailersOfRequests(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, r.Trailer)
	})
	for _, protocol := range []func(*http.Protocols){func(p *http.Protocols) { p.SetHTTP1(true) }, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }} {
		web := visitor(t, w.d.Shows)
		tr := web.Transport.(*http.Transport)
		tr.Protocols = new(http.Protocols)
		protocol(tr.Protocols)
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+w.host("a", 0)+"/", io.MultiReader(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{"X-Sum": {"42"}}
		res, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(text) != "4 map[X-Sum:[42]]" {
			t.Errorf("over %s the app got %s, %v", res.Proto, text, err)
		}
	}
}

// An app that ends a WebSocket ends it, also when the visitor stays: nothing of it
// is left in the daemon.
func TestAttackVisitorsWhoStay(t *testing.T) {
	w := newWorld(t, echo)
	at := w.open(hostile(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nlast words", ""))
	conn, err := net.Dial("tcp", w.d.Shows)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", strings.Trim(strings.TrimPrefix(at, "http:"), "/"))
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || !bytes.HasSuffix(got, []byte("\r\n\r\nlast words")) {
		t.Fatalf("the visitor read %q, %v", got, err)
	}
	w.until("the request ends", func() bool { return strings.Contains(w.d.Log(), "route=preview status=101") })
}

// A page that looks again each second is one visitor, and not one for each second.
func TestPagesThatLookAgainTakeOnePlace(t *testing.T) {
	w := newWorld(t, echo)
	own := "http://" + w.host("a", 0) + "/"
	w.api("POST", "/v1/sandboxes/a/sleep", "", nil)
	hold := w.holdWakes()
	// All places of previews, and some more.
	for range 6 {
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				if got := w.get(own, "Accept", "text/html"); got.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("a page is %s", got.Status)
				}
			})
		}
		all.Wait()
	}
	close(hold)
	w.until("the app answers", func() bool { return w.get(own, "Accept", "text/html").StatusCode == http.StatusOK })
}

// A token that has just ended by this clock has not by the application's.
func TestSignInWithAClockBehind(t *testing.T) {
	w := newSignInWorld(t)
	back := "http://" + w.host("m", 0) + "/"
	got := w.signIn(good(t, "exp", time.Now().Add(-5*time.Second).Unix()), back)
	if arrived := w.get(got.Header.Get("Location")); got.StatusCode != http.StatusFound || arrived.StatusCode != http.StatusSeeOther {
		t.Errorf("sent on with %s, arrived with %s", got.Status, arrived.Status)
	}
}

// An end that no clock can show is none that holds.
func TestAttackEndsOfTokens(t *testing.T) {
	w := newSignInWorld(t)
	back := "http://" + w.host("m", 0) + "/"
	for _, end := range []any{1e300, -1e300, 1 << 62, -1, 0, "", true, []int{1}, map[string]int{}} {
		token := signed(t, jwt.SigningMethodHS256, map[string]any{"kid": "one"}, []byte(keyA), claims("exp", end))
		got := w.signIn(token, back)
		if got.StatusCode != http.StatusFound {
			continue
		}
		arrived := w.get(got.Header.Get("Location"))
		if cookies := arrived.Cookies(); len(cookies) != 1 || cookies[0].MaxAge <= 0 || cookies[0].MaxAge > 90*24*3600 {
			t.Errorf("with an end of %v: %s, %v", end, arrived.Status, cookies)
		}
	}
}

// A time that is shorter than any clock shows is not the default.
func TestLinksOfNoTime(t *testing.T) {
	w := newWorld(t, echo)
	var l struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	w.api("POST", fmt.Sprintf("/v1/sandboxes/p/ports/%d/links", w.port), `{"expires_in":1e-10}`, &l)
	if l.ExpiresAt.After(time.Now()) {
		t.Errorf("it holds until %s", l.ExpiresAt)
	}
}
