package preview_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// stripped is an answer without what differs from request to request.
func stripped(a answer) string {
	h := a.Header.Clone()
	h.Del("Date")
	text := a.text
	if i := strings.Index(text, `,"request_id"`); i >= 0 {
		text = text[:i]
		h.Del("Content-Length") // an id may come from the request
	}
	return fmt.Sprint(a.StatusCode, h, text)
}

// A stranger cannot tell a sandbox that is private from one that there is not,
// nor a port that is not open from either.
func TestStrangersLearnNothing(t *testing.T) {
	w := newWorld(t, echo)
	other := w.port + 1
	for _, accept := range []string{"text/html,*/*;q=0.8", "*/*"} {
		want := w.get("http://"+w.host("nobody", 0)+"/", "Accept", accept)
		if want.StatusCode != http.StatusUnauthorized || strings.Contains(want.Header.Get("Content-Type"), "html") != (accept != "*/*") {
			t.Errorf("an unknown sandbox is %d %v", want.StatusCode, want.Header)
		}
		for name, host := range map[string]string{"a private one": w.host("p", 0), "a port that is not declared": w.host("a", other)} {
			for _, header := range [][]string{nil, {"X-Cubby-Preview-Token", "secret-of-bob"}, {"Cookie", "cubby_preview=zzzz.AAAA"}, {"Authorization", "Bearer " + token}} {
				if got := w.get("http://"+host+"/", append(header, "Accept", accept)...); stripped(got) != stripped(want) {
					t.Errorf("%s, with %q: %s, and an unknown one is %s", name, header, stripped(got), stripped(want))
				}
			}
		}
	}
}

func TestLinks(t *testing.T) {
	w := newWorld(t, echo)
	address, pass := w.link("P", w.port)
	own := "http://" + w.host("p", 0)
	if !strings.HasPrefix(address, own+"/?cubby_preview=") {
		t.Errorf("the link is %s", address)
	}
	got := w.get(address + "&x=1&y=%2F")
	if got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != own+"/?x=1&y=%2F" || got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the link answers %d %v", got.StatusCode, got.Header)
	}
	if c := got.Header.Get("Set-Cookie"); !strings.HasPrefix(c, "cubby_preview="+pass+"; Path=/; Max-Age=86") || !strings.HasSuffix(c, "; HttpOnly; SameSite=Lax") {
		t.Errorf("the cookie is %s", c)
	}
	for name, header := range map[string][]string{
		"a cookie":                 {"Cookie", "a=b; cubby_preview=" + pass + "; c=d"},
		"one of several cookies":   {"Cookie", "a=b; cubby_preview=old; cubby_preview=" + pass + "; c=d"},
		"a cookie line of its own": {"Cookie", "cubby_preview=" + pass, "Cookie", "a=b; c=d"},
		"a header":                 {"X-Cubby-Preview-Token", pass, "Cookie", "a=b; c=d"},
		"a token of the API":       {"X-Cubby-Preview-Token", token, "Cookie", "a=b; c=d"},
	} {
		got := w.get(own+"/x?y", header...)
		if got.StatusCode != 200 || !strings.Contains(got.text, "Cookie: a=b; c=d\r\n") {
			t.Errorf("with %s: %d %s", name, got.StatusCode, got.text)
		}
		for _, secret := range []string{pass, token, "cubby_preview", "Cubby-Preview"} {
			if strings.Contains(strings.ToLower(got.text), strings.ToLower(secret)) {
				t.Errorf("with %s the app learns %q: %s", name, secret, got.text)
			}
		}
	}
	// What follows no redirect has it in the address, and the app has not.
	got = w.do("POST", address+"&x=1", strings.NewReader("hook"))
	if got.StatusCode != 200 || !strings.HasPrefix(got.text, "POST /?x=1 ") || !strings.HasSuffix(got.text, "body 4") {
		t.Errorf("POST = %d %s", got.StatusCode, got.text)
	}
	got = w.get(own+"/", "X-Cubby-Preview-Token", pass, "Referer", own+"/p?a=1&cubby_preview="+pass)
	if !strings.Contains(got.text, fmt.Sprintf("Referer: http://localhost:%d/p?a=1\r\n", w.port)) {
		t.Errorf("the Referer is %s", got.text)
	}
	// It opens this port of this sandbox.
	other := httpApp(t)
	for name, host := range map[string]string{"another port": w.host("p", other), "another sandbox": w.host("a", other)} {
		if got := w.get("http://"+host+"/", "X-Cubby-Preview-Token", pass); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("the link to %s is %d", name, got.StatusCode)
		}
	}
	at, proof, _ := strings.Cut(pass, ".")
	later, err := strconv.ParseInt(at, 36, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, forged := range []string{
		strconv.FormatInt(later+1, 36) + "." + proof, at + ".", at, "." + proof, strings.ToUpper(at) + "." + proof, "0" + pass, "+" + pass, pass + "=", pass + " x",
	} {
		if got := w.get(own+"/", "Cookie", "cubby_preview="+forged); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("the forged token %q is %d", forged, got.StatusCode)
		}
	}
	// An end is one of all.
	_, second := w.link("p", other)
	w.api("DELETE", "/v1/sandboxes/p/links", "", nil)
	w.api("DELETE", "/v1/sandboxes/p/links", "", nil)
	for _, old := range []string{pass, second} {
		if got := w.get(own+"/", "Cookie", "cubby_preview="+old); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("after the end of links: %d", got.StatusCode)
		}
	}
	// Whoever has the id later is another sandbox.
	_, pass = w.link("p", w.port)
	w.api("DELETE", "/v1/sandboxes/p", "", nil)
	w.api("POST", "/v1/sandboxes", `{"id":"p"}`, nil)
	if got := w.get(own+"/", "Cookie", "cubby_preview="+pass); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a link to the sandbox before: %d", got.StatusCode)
	}
	if strings.Contains(w.d.Log(), pass) || strings.Contains(w.d.Log(), second) {
		t.Error("the log has a token")
	}
}

// httpApp is the port of another app.
func httpApp(t *testing.T) int {
	t.Helper()
	w := &world{t: t}
	return w.listen(echo)
}

func TestLinksExpire(t *testing.T) {
	clock := &testClock{at: time.Now()}
	w := newWorldAt(t, echo, clock.now)
	_, pass := w.link("p", w.port)
	own := "http://" + w.host("p", 0)
	if got := w.get(own+"/", "X-Cubby-Preview-Token", pass); got.StatusCode != 200 {
		t.Errorf("the link is %d", got.StatusCode)
	}
	clock.advance(24*time.Hour + time.Second)
	if got := w.get(own+"/", "X-Cubby-Preview-Token", pass); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a day later the link is %d", got.StatusCode)
	}
}

// A link must not send its visitor elsewhere, whatever was made of its path.
func TestLinksAreNoOpenRedirects(t *testing.T) {
	w := newWorld(t, echo)
	address, pass := w.link("p", w.port)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"//evil.example", "//evil.example/%2f..", "/\\evil.example", "/%0d%0aX-Evil:%201", "/http://evil.example", "/..//evil.example", "/;@evil.example"} {
		got := w.raw("GET " + path + "?cubby_preview=" + pass + " HTTP/1.1\r\nHost: " + u.Host + "\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "303 ") {
			t.Errorf("%s is %s", path, got)
			continue
		}
		if l := w.location("GET " + path + "?cubby_preview=" + pass + " HTTP/1.1\r\nHost: " + u.Host + "\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(l, "http://"+u.Host+"/") || strings.ContainsAny(l, "\r\n") {
			t.Errorf("%s leads to %q", path, l)
		}
	}
}

func TestWrongTokensAreCounted(t *testing.T) {
	w := newWorld(t, echo)
	address := "http://" + w.host("p", 0) + "/"
	got := 0
	for range 40 {
		if got = w.get(address, "X-Cubby-Preview-Token", "guess").StatusCode; got != http.StatusUnauthorized {
			break
		}
	}
	if got != http.StatusTooManyRequests {
		t.Errorf("many wrong tokens are %d", got)
	}
	if got := w.get(address, "X-Cubby-Preview-Token", token); got.StatusCode != 200 {
		t.Errorf("the right one is %d then", got.StatusCode)
	}
}

// Behind a proxy that speaks TLS, addresses and cookies are those of TLS.
func TestPreviewsBehindAProxy(t *testing.T) {
	w := newWorld(t, echo, func(c *config.Config) { c.PreviewURL, c.PreviewDomain = "https://apps.example", "apps.example" })
	address, pass := w.link("p", w.port)
	host := fmt.Sprintf("s-p-%d.apps.example", w.port)
	if !strings.HasPrefix(address, "https://"+host+"/?") {
		t.Fatalf("the link is %s", address)
	}
	got := w.get("http://"+host+"/?cubby_preview="+pass, "Host", host)
	if got.Header.Get("Location") != "https://"+host+"/" {
		t.Errorf("the link leads to %s", got.Header.Get("Location"))
	}
	if c := got.Header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-cubby_preview="+pass+"; Path=/; Max-Age=") || !strings.HasSuffix(c, "; HttpOnly; Secure; SameSite=None; Partitioned") {
		t.Errorf("the cookie is %s", c)
	}
	got = w.get("http://"+host+"/", "Cookie", "__Host-cubby_preview="+pass, "X-Forwarded-For", "192.0.2.7", "X-Forwarded-Proto", "http", "Referer", "https://"+host+"/x")
	for _, line := range []string{"X-Forwarded-For: 192.0.2.7, 127.0.0.1\r\n", "X-Forwarded-Proto: https\r\n", "X-Forwarded-Host: " + host + "\r\n", fmt.Sprintf("Referer: http://localhost:%d/x\r\n", w.port)} {
		if !strings.Contains(got.text, line) {
			t.Errorf("the app does not get %q, but %s", line, got.text)
		}
	}
	got = w.get("http://"+host+"/", "Cookie", "__Host-cubby_preview="+pass, "Origin", "https://"+host)
	if !strings.Contains(got.text, fmt.Sprintf("Origin: http://localhost:%d\r\n", w.port)) {
		t.Errorf("of its own origin the app gets %s", got.text)
	}
}

// Without tokens of the API, private ones stay so.
func TestAccessWithoutTokensOfTheAPI(t *testing.T) {
	w := newWorld(t, echo, func(c *config.Config) { c.Tokens = "" })
	own := "http://" + w.host("p", 0) + "/"
	for _, header := range [][]string{nil, {"X-Cubby-Preview-Token", ""}, {"X-Cubby-Preview-Token", "x"}} {
		if got := w.get(own, header...); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("with %q: %d", header, got.StatusCode)
		}
	}
	_, pass := w.link("p", w.port)
	if got := w.get(own, "X-Cubby-Preview-Token", pass); got.StatusCode != 200 {
		t.Errorf("with a link: %d", got.StatusCode)
	}
}

func TestNoPreviews(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.PreviewListen = "off" }})
	w := &world{t: t, d: d}
	w.api("POST", "/v1/sandboxes", `{"id":"a","ports":[3000]}`, nil)
	var list struct {
		Ports []map[string]any `json:"ports"`
	}
	w.api("GET", "/v1/sandboxes/a/ports", "", &list)
	for _, p := range list.Ports {
		if _, has := p["url"]; has {
			t.Errorf("a port has a URL: %v", p)
		}
	}
	res, err := http.Post(d.URL+"/v1/sandboxes/a/ports/3000/links", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	res.Body.Close()
	if res.StatusCode != http.StatusConflict {
		t.Errorf("a link is %s", res.Status)
	}
}
