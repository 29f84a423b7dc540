package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const testKey = "a key of 32 characters or more..."

func keys(t testing.TB, list string) Keys {
	t.Helper()
	k, err := ParseKeys(list)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestParseKeysRefuses(t *testing.T) {
	for _, list := range []string{"", "short", testKey + ",", "a:" + testKey + ",a:" + testKey, testKey + "," + testKey} {
		_, err := ParseKeys(list)
		if !errors.Is(err, errs.Invalid) || strings.Contains(err.Error(), testKey) {
			t.Errorf("ParseKeys(%q) = %v, want invalid, and no key in it", list, err)
		}
	}
}

// forged makes a token by hand.
func forged(t testing.TB, method jwt.SigningMethod, key any, header, claims map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims(claims))
	for k, v := range header {
		token.Header[k] = v
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTokens(t *testing.T) {
	now := time.Now()
	old, current := "old:the key that was used before", "new:"+testKey
	k := keys(t, current+","+old)
	for _, p := range []sandbox.Policy{
		{Mode: sandbox.NetworkAllowlist, Allow: []string{"*.example.com", "b.example:80"}, Deny: []string{"10.0.0.0/8"}},
		{Mode: sandbox.NetworkOpen, Deny: []string{"evil.example"}}, {Mode: sandbox.NetworkNone},
	} {
		text, err := k.sign("box", p, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, verifier := range []Keys{k, keys(t, old+","+current)} {
			session, got, err := verifier.verify(text, now)
			if err != nil || session != "box" || got.Mode != p.Mode || !slices.Equal(got.Allow, p.Allow) || !slices.Equal(got.Deny, p.Deny) {
				t.Errorf("verify = %q, %+v, %v; want %+v", session, got, err, p)
			}
		}
		for what, err := range map[string]error{
			"another key":        second(keys(t, testKey[1:]+"x").verify(text, now)),
			"too late":           second(k.verify(text, now.Add(tokenLife+2*tokenSkew))),
			"cut off":            second(k.verify(text[:len(text)-2], now)),
			"a kid that is gone": second(keys(t, old).verify(text, now)),
		} {
			if !errors.Is(err, errs.Unauthenticated) {
				t.Errorf("%s: %v, want unauthenticated", what, err)
			}
		}
		if _, _, err := k.verify(text, now.Add(tokenLife+tokenSkew/2)); err != nil {
			t.Errorf("within the skew: %v", err)
		}
	}

	// What agentbox's own daemon signs.
	alone := keys(t, testKey)
	good := map[string]any{"iss": tokenIssuer, "session_id": "s", "tenant_id": nil, "allowed_hosts": "a.example, b.example", "exp": now.Add(time.Hour).Unix()}
	_, p, err := alone.verify(forged(t, jwt.SigningMethodHS256, []byte(testKey), nil, good), now)
	if err != nil || p.Mode != sandbox.NetworkAllowlist || !slices.Equal(p.Allow, []string{"a.example", "b.example"}) {
		t.Errorf("agentbox's token = %+v, %v", p, err)
	}
	with := func(key string, value any) map[string]any {
		c := map[string]any{}
		for k, v := range good {
			c[k] = v
		}
		if c[key] = value; value == nil {
			delete(c, key)
		}
		return c
	}
	if _, p, err := alone.verify(forged(t, jwt.SigningMethodHS256, []byte(testKey), nil, with("allowed_hosts", "")), now); err != nil || p.Mode != sandbox.NetworkNone {
		t.Errorf("a token without hosts = %+v, %v; want no network", p, err)
	}
	for what, text := range map[string]string{
		"no expiry":       forged(t, jwt.SigningMethodHS256, []byte(testKey), nil, with("exp", nil)),
		"another issuer":  forged(t, jwt.SigningMethodHS256, []byte(testKey), nil, with("iss", "somebody")),
		"no session":      forged(t, jwt.SigningMethodHS256, []byte(testKey), nil, with("session_id", nil)),
		"another method":  forged(t, jwt.SigningMethodHS512, []byte(testKey), nil, good),
		"no signature":    forged(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, good),
		"a strange mode":  forged(t, jwt.SigningMethodHS256, []byte(testKey), nil, with("mode", "everything")),
		"a strange host":  forged(t, jwt.SigningMethodHS256, []byte(testKey), nil, with("allowed_hosts", []string{"http://x/"})),
		"not a host list": forged(t, jwt.SigningMethodHS256, []byte(testKey), nil, with("allowed_hosts", 7)),
		"an unknown kid":  forged(t, jwt.SigningMethodHS256, []byte(testKey), map[string]any{"kid": "x"}, good),
		"nothing":         "",
		"garbage":         "a.b.c",
	} {
		if _, _, err := alone.verify(text, now); !errors.Is(err, errs.Unauthenticated) {
			t.Errorf("%s: %v, want unauthenticated", what, err)
		}
	}
}

func second(_ string, _ sandbox.Policy, err error) error { return err }

// startAlone serves the rig's proxy by itself, and returns its URL.
func (r *rig) startAlone(k Keys) string { return r.startAloneAt(k, time.Now) }

// startAloneAt is startAlone with a clock.
func (r *rig) startAloneAt(k Keys, now func() time.Time) string {
	return r.serveAlone(&Alone{proxy: r.proxy, keys: k, now: now, perSession: maxSessionStreams, strangers: maxStrangers})
}

func (r *rig) serveAlone(a *Alone) string {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx, l) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			r.t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

func TestAloneNeedsAToken(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello"+r.Header.Get("Proxy-Authorization"))
	}))
	defer up.Close()
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	k := keys(t, testKey)
	address := r.startAlone(k)
	token, err := k.sign("box", sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	expired, _ := k.sign("box", sandbox.Policy{Mode: sandbox.NetworkOpen}, time.Now().Add(-time.Hour))
	foreign, _ := keys(t, testKey+"x").sign("box", sandbox.Policy{Mode: sandbox.NetworkOpen}, time.Now())
	basic := func(password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("sandbox:"+password))
	}
	for _, tt := range []struct {
		name, authorization, url string
		code                     int
		body                     string
	}{
		{"agentbox's form", basic("jwt_" + token), "http://a.example.com/", 200, "hello"},
		{"a bearer", "Bearer " + token, "http://a.example.com/", 200, "hello"},
		{"a denied host", "Bearer " + token, "http://example.com/", 403, "Host not allowed: example.com"},
		{"an address of this machine", "Bearer " + token, up.URL, 403, "Host not allowed: 127.0.0.1"},
		{"nothing", "", "http://a.example.com/", 407, ""},
		{"an expired one", "Bearer " + expired, "http://a.example.com/", 407, ""},
		{"one of another key", "Bearer " + foreign, "http://a.example.com/", 407, ""},
		{"a password that is none", basic(token), "http://a.example.com/", 407, ""},
		{"garbage", "Basic !!", "http://a.example.com/", 407, ""},
		{"a scheme that nobody knows", "Digest " + token, "http://a.example.com/", 407, ""},
	} {
		for _, method := range []string{"GET", "CONNECT"} {
			conn, err := net.Dial("tcp", hostOf(address))
			if err != nil {
				t.Fatal(err)
			}
			target := tt.url
			if u, _ := url.Parse(tt.url); method == "CONNECT" {
				if target = u.Host; u.Port() == "" {
					target += ":80"
				}
			}
			fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nProxy-Authorization: %s\r\n\r\n", method, target, tt.authorization)
			res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
			if err != nil || res.StatusCode != tt.code {
				t.Errorf("%s, %s: %v, %v; want %d", tt.name, method, res, err, tt.code)
			} else if method == "GET" {
				if body, _ := io.ReadAll(io.LimitReader(res.Body, int64(len(tt.body)))); string(body) != tt.body {
					t.Errorf("%s: body %q, want %q", tt.name, body, tt.body)
				}
			}
			if err == nil && res.StatusCode == 407 && res.Header.Get("Proxy-Authenticate") == "" {
				t.Errorf("%s: 407 without a challenge", tt.name)
			}
			conn.Close()
		}
	}
	for _, d := range r.seen() {
		if d.Allow && d.Host != "a.example.com" {
			t.Errorf("%+v was let through", d)
		}
	}
}

// A kept connection takes a newer token of its session, and none of another.
func TestAConnectionIsOneSessions(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer up.Close()
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	k := keys(t, testKey)
	conn, err := net.Dial("tcp", hostOf(r.startAlone(k)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	from := bufio.NewReader(conn)
	for i, tt := range []struct {
		session sandbox.UID
		host    string
		code    int
	}{{"one", "a.example.com", 200}, {"one", "b.example.com", 403}, {"two", "a.example.com", 407}} {
		if i == 2 { // a denial ends the connection: a fresh one, and its session
			if conn, err = net.Dial("tcp", conn.RemoteAddr().String()); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			from = bufio.NewReader(conn)
			first, _ := k.sign("one", sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}, time.Now())
			fmt.Fprintf(conn, "GET http://a.example.com/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer %s\r\n\r\n", first)
			res, err := http.ReadResponse(from, nil)
			if err != nil || res.StatusCode != 200 {
				t.Fatal(res, err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
		}
		token, _ := k.sign(tt.session, sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}, time.Now())
		fmt.Fprintf(conn, "GET http://%s/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer %s\r\n\r\n", tt.host, token)
		res, err := http.ReadResponse(from, nil)
		if err != nil || res.StatusCode != tt.code {
			t.Fatalf("request %d = %v, %v; want %d", i, res, err, tt.code)
		}
		_, _ = io.Copy(io.Discard, res.Body)
	}
}

// Two proxies: the sandbox's, which attaches the token, and one alone.
func TestUpstream(t *testing.T) {
	up := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer up.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "plain"+r.Header.Get("Proxy-Authorization"))
	}))
	defer plain.Close()
	far := newRig(t, "")
	far.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 443)
	far.routes["93.184.215.14:80"] = hostOf(plain.URL)
	far.names.answers["inside.example.com"] = answers("10.0.0.1")
	k := keys(t, "id:"+testKey)
	address := far.startAlone(k)

	near := newRig(t, "")
	var err error
	if near.proxy.upstream, err = NewUpstream(address, k); err != nil {
		t.Fatal(err)
	}
	near.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"*.example.com"}}
	for u, want := range map[string]string{"https://a.example.com/": "hello", "http://a.example.com/": "plain"} {
		if code, body, _ := get(t, near.client(), u); code != 200 || body != want {
			t.Errorf("GET %s = %d %q", u, code, body)
		}
	}
	for u, code := range map[string]int{
		"http://pypi.org/": 403, "http://inside.example.com/": 403, "http://gone.example.com/": 502, "http://127.0.0.1/": 403,
	} {
		if got, body, _ := get(t, near.client(), u); got != code {
			t.Errorf("GET %s = %d %q, want %d", u, got, body, code)
		}
	}
	if asked := near.names.lookedUp(); len(asked) > 0 {
		t.Errorf("the near proxy looked up %v", asked)
	}
	for _, d := range far.seen() {
		if d.Host == "pypi.org" || d.Host == "127.0.0.1" {
			t.Errorf("what the near one denies came to the far one: %+v", d)
		}
	}
	// Another key: nothing is reached, and nothing is shown.
	if near.proxy.upstream, err = NewUpstream(address, keys(t, testKey+"x")); err != nil {
		t.Fatal(err)
	}
	if code, body, _ := get(t, near.client(), "http://a.example.com/"); code != 502 || strings.Contains(body, testKey) {
		t.Errorf("with another key = %d %q, want 502", code, body)
	}
}

func TestNewUpstreamRefuses(t *testing.T) {
	k := keys(t, testKey)
	for _, u := range []string{"", "host:1", "socks5://host:1", "http://", "http://host/path", "http://user@host", "http://host?x"} {
		if _, err := NewUpstream(u, k); !errors.Is(err, errs.Invalid) {
			t.Errorf("NewUpstream(%q) = %v, want invalid", u, err)
		}
	}
	if _, err := NewUpstream("http://host:1", Keys{}); !errors.Is(err, errs.Invalid) {
		t.Errorf("without a key = %v, want invalid", err)
	}
}

func FuzzToken(f *testing.F) {
	k := keys(f, testKey)
	good, _ := k.sign("box", sandbox.Policy{Mode: sandbox.NetworkOpen}, time.Now())
	f.Add(good)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		session, p, err := k.verify(text, time.Now())
		if err != nil && !errors.Is(err, errs.Unauthenticated) {
			t.Fatalf("verify(%q) = %v", text, err)
		}
		if err == nil && (session == "" || p.Validate() != nil) {
			t.Fatalf("verify(%q) = %q, %+v", text, session, p)
		}
	})
}

// A sandbox that is older than any token keeps its policy, on kept connections
// and on new ones; its clock and the proxy's may be a little apart, keys are
// replaced meanwhile, and what its policy does not name it never reaches.
func TestTokensAreRenewed(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello"+r.Header.Get("Proxy-Authorization"))
	}))
	defer up.Close()
	var clock atomic.Int64
	began := time.Now()
	at := func(skew time.Duration) func() time.Time {
		return func() time.Time { return began.Add(time.Duration(clock.Load()) + skew) }
	}
	far := newRig(t, "")
	far.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	first, next := "one:"+testKey, "two:"+testKey[:20]
	both := far.startAloneAt(keys(t, first+","+next), at(0))

	near := newRig(t, "")
	near.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
	signWith := func(k Keys, skew time.Duration) {
		u, err := NewUpstream(both, k)
		if err != nil {
			t.Fatal(err)
		}
		u.now = at(skew)
		near.proxy.upstream = u
	}
	signWith(keys(t, first), 0)
	kept := near.client()
	reaches := func(what string, c *http.Client, want int) {
		t.Helper()
		if code, body, _ := get(t, c, "http://a.example.com/"); code != want || code == 200 && body != "hello" {
			t.Errorf("%s: %d %q, want %d", what, code, body, want)
		}
	}
	for range 4 {
		reaches("a kept connection", kept, 200)
		reaches("a new one", near.client(), 200)
		if code, _, _ := get(t, near.client(), "http://pypi.org/"); code != 403 {
			t.Errorf("a host that the policy does not name: %d, want 403", code)
		}
		clock.Add(int64(2 * time.Hour))
	}
	signWith(keys(t, next+","+first), tokenSkew/2)
	reaches("with the next key", near.client(), 200)
	signWith(keys(t, next), -tokenLife-tokenSkew/2)
	reaches("within the skew", near.client(), 200)
	signWith(keys(t, next), -tokenLife-2*tokenSkew)
	reaches("with clocks too far apart", near.client(), 502)
	signWith(keys(t, "three:"+testKey+"x"), 0)
	reaches("with a key that is not known", near.client(), 502)
}

// Answers begin with the words that agentbox's proxy has for them.
func TestAnswersInAgentboxWords(t *testing.T) {
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"gone.example.com"}}
	k := keys(t, testKey)
	address := r.startAlone(k)
	token, err := k.sign("box", r.policy, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]struct {
		code int
		body string
	}{
		"CONNECT b.example.com:443":       {403, "Host not allowed: b.example.com\n"},
		"GET http://b.example.com:81/":    {403, "Host not allowed: b.example.com\n"},
		"CONNECT gone.example.com:443":    {502, "Failed to connect: gone.example.com"},
		"GET http://gone.example.com/":    {502, "Proxy error: gone.example.com"},
		"GET /":                           {400, "Invalid proxy request\n"},
		"GET https://gone.example.com/":   {400, "Invalid proxy request\n"},
		"GET http://gone.example.com:xx/": {400, ""},
		"GET http://gone.example.com:0/":  {400, "Could not parse host from URL\n"},
		"CONNECT gone.example.com":        {400, "Could not parse host from URL\n"},
	} {
		conn, err := net.Dial("tcp", hostOf(address))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer %s\r\n\r\n", request, token)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", request, err)
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != want.code || !strings.HasPrefix(string(body), want.body) {
			t.Errorf("%s = %d %q, want %d %q", request, res.StatusCode, body, want.code, want.body)
		}
		conn.Close()
	}
}
