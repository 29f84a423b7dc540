package preview_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/preview"
)

const (
	keyA, keyB = "secret-of-the-app-01", "secret-of-the-app-02"
	portal     = "https://app.example.com/login?box={sandbox_id}&back={return}"
)

// newSignInWorld has private sandboxes "m" of alice and "n" of bob, beside those
// of every world.
func newSignInWorld(t *testing.T, change ...func(*config.Config)) *world {
	t.Helper()
	w := newWorld(t, echo, append([]func(*config.Config){func(c *config.Config) {
		c.PreviewKeys = "one=" + keyA + ",two=" + keyB
	}}, change...)...)
	for id, user := range map[string]string{"m": "alice", "n": "bob"} {
		w.api("POST", "/sandbox", `{"id":"`+id+`","visibility":"private","external":{"user_id":"`+user+`"}}`, nil)
	}
	return w
}

// with sets where those go who are not let in.
func with(redirect, mode string) func(*config.Config) {
	return func(c *config.Config) { c.AuthRedirectURL, c.ForwardAuthDeny = redirect, mode }
}

// claims are those of a token for "m", with changes as name, value, …; a nil value
// takes one out.
func claims(changes ...any) jwt.MapClaims {
	now := time.Now()
	c := jwt.MapClaims{
		"iss": "app", "aud": "sandbox-preview", "sub": "alice", "sandbox_id": "m", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == nil {
			delete(c, changes[i].(string))
			continue
		}
		c[changes[i].(string)] = changes[i+1]
	}
	return c
}

// signed makes a token.
func signed(t *testing.T, method jwt.SigningMethod, header map[string]any, key any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	for name, value := range header {
		token.Header[name] = value
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func good(t *testing.T, changes ...any) string {
	t.Helper()
	return signed(t, jwt.SigningMethodHS256, map[string]any{"kid": "one"}, []byte(keyA), claims(changes...))
}

// signIn asks /preview-auth as a browser does that follows nothing.
func (w *world) signIn(token, back string) answer {
	w.t.Helper()
	return w.ask("/preview-auth?"+url.Values{"token": {token}, "return": {back}}.Encode(), nil)
}

// ask gets a path of the API without a token.
func (w *world) ask(path string, header http.Header) answer {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "GET", w.d.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	tr := new(http.Transport)
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{res, string(text)}
}

// forward asks /forward-auth about a request.
func (w *world) forward(host, uri string, header ...string) answer {
	w.t.Helper()
	h := http.Header{"X-Forwarded-Host": {host}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Method": {"GET"}}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return w.ask("/forward-auth", h)
}

// A token brings a browser to the preview, whose own cookie it gets there, and
// nowhere else; the sandbox's id may be in any case.
func TestSignIn(t *testing.T) {
	w := newSignInWorld(t)
	back := "http://" + w.host("m", 0) + "/dir/page?a=b&c=%20d"
	for name, token := range map[string]string{
		"the first key":  good(t),
		"the second key": signed(t, jwt.SigningMethodHS256, map[string]any{"kid": "two"}, []byte(keyB), claims()),
		"an upper-case id, no issuer, several audiences": good(t, "sandbox_id", "M", "iss", nil, "aud", []string{"x", "sandbox-preview"}),
		"a clock a little ahead":                         good(t, "iat", time.Now().Add(10*time.Second).Unix()),
	} {
		got := w.signIn(token, back)
		location := got.Header.Get("Location")
		if got.StatusCode != http.StatusFound || !strings.HasPrefix(location, back+"&cubby_preview=") || got.Header.Get("Set-Cookie") != "" ||
			got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Fatalf("%s: %s to %q, %s", name, got.Status, location, got.text)
		}
		arrived := w.get(location)
		cookies := arrived.Cookies()
		if arrived.StatusCode != http.StatusSeeOther || arrived.Header.Get("Location") != back || len(cookies) != 1 || cookies[0].Domain != "" {
			t.Fatalf("%s: arrived with %s %q, %v", name, arrived.Status, arrived.Header.Get("Location"), cookies)
		}
		if left := time.Duration(cookies[0].MaxAge) * time.Second; left > time.Hour || left < 55*time.Minute {
			t.Errorf("%s: the cookie holds for %s, and the token for an hour", name, left)
		}
		cookie := cookies[0].Name + "=" + cookies[0].Value
		if shown := w.get(back, "Cookie", cookie); shown.StatusCode != http.StatusOK {
			t.Errorf("%s: with the cookie %s", name, shown.Status)
		}
		for other, address := range map[string]string{"another sandbox": "http://" + w.host("n", 0), "another port": "http://" + w.host("m", 1)} {
			if shown := w.get(address, "Cookie", cookie); shown.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: the cookie opens %s: %s", name, other, shown.Status)
			}
		}
	}
	for name, ok := range map[string]string{
		"the API":                 w.d.URL + "/web",
		"another name of a port":  "http://" + strconv.Itoa(w.port) + "-M." + domain + ":" + w.host("m", 0)[strings.LastIndexByte(w.host("m", 0), ':')+1:],
		"with a link's old token": back + "&cubby_preview=old",
	} {
		if got := w.signIn(good(t), ok); got.StatusCode != http.StatusFound || strings.Contains(got.Header.Get("Location"), "old") {
			t.Errorf("%s: %s %q, %s", name, got.Status, got.Header.Get("Location"), got.text)
		}
	}
	// Ending the links of the sandbox ends what came of tokens.
	location := w.signIn(good(t), back).Header.Get("Location")
	w.api("DELETE", "/v1/sandboxes/m/links", "", nil)
	if got := w.get(location); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("after all links have ended: %s", got.Status)
	}
}

// Every token that was not made for this sandbox, its user and this time is turned
// away, in one way.
func TestAttackTokens(t *testing.T) {
	w := newSignInWorld(t)
	back := "http://" + w.host("m", 0) + "/"
	hs, key := jwt.SigningMethodHS256, []byte(keyA)
	kid := map[string]any{"kid": "one"}
	parts := strings.Split(good(t), ".")
	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"one"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"aud":"sandbox-preview","sub":"alice","sandbox_id":"m","exp":99999999999}`))
	for name, token := range map[string]string{
		"none":                    "",
		"garbage":                 "a.b.c",
		"alg none":                signed(t, jwt.SigningMethodNone, kid, jwt.UnsafeAllowNoneSignatureType, claims()),
		"alg None without a sum":  base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"None","kid":"one"}`)) + "." + parts[1] + ".",
		"HS384":                   signed(t, jwt.SigningMethodHS384, kid, key, claims()),
		"HS512":                   signed(t, jwt.SigningMethodHS512, kid, key, claims()),
		"no kid":                  signed(t, hs, nil, key, claims()),
		"an unknown kid":          signed(t, hs, map[string]any{"kid": "three"}, key, claims()),
		"a kid that is no text":   signed(t, hs, map[string]any{"kid": 1}, key, claims()),
		"an empty kid":            signed(t, hs, map[string]any{"kid": ""}, []byte{}, claims()),
		"a path as kid":           signed(t, hs, map[string]any{"kid": "/dev/null"}, []byte{}, claims()),
		"another key's kid":       signed(t, hs, map[string]any{"kid": "two"}, key, claims()),
		"an unknown critical":     signed(t, hs, map[string]any{"kid": "one", "crit": []string{"b64"}, "b64": false}, key, claims()),
		"a key of its own":        signed(t, hs, map[string]any{"kid": "four", "jwk": map[string]string{"kty": "oct", "k": "eA"}}, []byte("x"), claims()),
		"the signature taken off": parts[0] + "." + parts[1] + ".",
		"others' signature":       forged + "." + parts[2],
		"expired":                 good(t, "exp", time.Now().Add(-time.Hour).Unix()),
		"without an end":          good(t, "exp", nil),
		"an end that is no time":  good(t, "exp", "tomorrow"),
		"from the future":         good(t, "iat", time.Now().Add(time.Hour).Unix()),
		"not yet":                 good(t, "nbf", time.Now().Add(time.Hour).Unix()),
		"another audience":        good(t, "aud", "sandbox-api"),
		"no audience":             good(t, "aud", nil),
		"no user":                 good(t, "sub", nil),
		"an empty user":           good(t, "sub", ""),
		"another user":            good(t, "sub", "bob"),
		"the user in other case":  good(t, "sub", "Alice"),
		"no sandbox":              good(t, "sandbox_id", nil),
		"too long":                good(t, "more", strings.Repeat("x", 9<<10)),
	} {
		got := w.signIn(token, back)
		if got.StatusCode != http.StatusUnauthorized || got.text != `{"error":"unauthorized"}`+"\n" || got.Header.Get("Location") != "" {
			t.Errorf("%s: %s %s", name, got.Status, got.text)
		}
	}
	// Of a sandbox that there is not, and of one that names no user.
	for id, token := range map[string]string{"gone": good(t, "sandbox_id", "gone"), "p": good(t, "sandbox_id", "p", "sub", "")} {
		if got := w.signIn(token, "http://"+w.host(id, 0)+"/"); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("for %s: %s", id, got.Status)
		}
	}
	// Two tokens, and another's token for an address that is not its sandbox's.
	if got := w.ask("/preview-auth?token="+good(t)+"&token="+good(t)+"&return="+url.QueryEscape(back), nil); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("two tokens: %s", got.Status)
	}
	if got := w.signIn(good(t), "http://"+w.host("n", 0)+"/"); got.StatusCode != http.StatusBadRequest {
		t.Errorf("to another sandbox: %s", got.Status)
	}
}

// The endpoint leads to previews and to the API, and nowhere else, with a token
// that holds as with one that does not.
func TestAttackReturnElsewhere(t *testing.T) {
	w := newSignInWorld(t, with(portal, "redirect"))
	host := w.host("m", 0)
	name, port := host[:strings.LastIndexByte(host, ':')], host[strings.LastIndexByte(host, ':')+1:]
	for _, back := range []string{
		"", "/", "//" + host + "/", "https://" + host + "/", "ftp://" + host + "/", "javascript:alert(1)", "data:text/html,x", "http:" + host, "http:/" + host, "http:///" + host,
		"http://evil.example/", "http://evil.example/?" + host, "http://evil.example#" + host, "http://" + host + "@evil.example/", "http://user@" + host + "/", "http://u:p@" + host + "/",
		"http://evil.example\\@" + host + "/", "http://" + host + "\\@evil.example/", "http:\\\\evil.example\\" + host, "http://evil.example\\." + host,
		"http://" + name + ".evil.example:" + port + "/", "http://" + strings.Replace(name, ".", "-", 1) + ":" + port + "/", "http://evil" + domain + ":" + port + "/",
		"http://m." + domain + ":" + port + "/", "http://" + domain + ":" + port + "/", "http://x." + name + ":" + port + "/",
		"http://" + name + ":1/", "http://" + name + "/", "http://" + name + ":0" + port + "/", "http://" + name + "%2eevil.example:" + port + "/", "http://[" + name + "]:" + port + "/",
		"http://127.0.0.1:1/", "https://" + strings.TrimPrefix(w.d.URL, "http://") + "/",
		"http://" + host + "/\r\nSet-Cookie: a=b", "http://" + host + "/\x00", "http://" + host + "/ x", " http://" + host + "/", "http://" + host + "/\u2028",
		"http://" + strings.Replace(name, "s-m", "s-\u217f", 1) + ":" + port + "/", "http://" + host + "/" + strings.Repeat("x", 5<<10),
	} {
		for kind, token := range map[string]string{"a token": good(t), "a bad token": "x"} {
			if got := w.signIn(token, back); got.StatusCode != http.StatusBadRequest || got.Header.Get("Location") != "" || got.Header.Get("Set-Cookie") != "" {
				t.Errorf("with %s to %q: %s %q", kind, back, got.Status, got.Header.Get("Location"))
			}
		}
	}
	if got := w.ask("/preview-auth?token="+good(t)+"&return="+url.QueryEscape("http://"+host+"/")+"&return=http://evil.example/", nil); got.StatusCode != http.StatusBadRequest {
		t.Errorf("two returns: %s", got.Status)
	}
	// What is a path of the preview stays one.
	for _, path := range []string{"//evil.example/", "/@evil.example", "/?return=http://evil.example", "?x=http://evil.example", ""} {
		got := w.signIn(good(t), "http://"+host+path)
		if u, err := url.Parse(got.Header.Get("Location")); got.StatusCode != http.StatusFound || err != nil || u.Host != host || u.User != nil {
			t.Errorf("%q leads to %q, %s", path, got.Header.Get("Location"), got.Status)
		}
	}
	// Who has no token goes to the application, which gets both values whole.
	back := "http://" + host + "/a?b=c&d=e#f"
	got := w.signIn("x", back)
	u, err := url.Parse(got.Header.Get("Location"))
	if err != nil || got.StatusCode != http.StatusFound || u.Host != "app.example.com" || u.Query().Get("box") != "m" || u.Query().Get("back") != back || len(u.Query()) != 2 {
		t.Errorf("a bad token is sent to %q, %s", got.Header.Get("Location"), got.Status)
	}
}

// A proxy hears whether a request may pass, by what the preview itself would look
// at. Nothing wakes for the question.
func TestForwardAuth(t *testing.T) {
	w := newSignInWorld(t)
	_, link := w.link("m", w.port)
	private := w.host("m", 0)
	for _, tt := range []struct {
		name, host, uri string
		header          []string
		status          int
		user            string
	}{
		{"no name of a preview", "evil.example", "/", nil, 401, ""},
		{"two names", private + ", evil.example", "/", nil, 401, ""},
		{"no name", "", "/", nil, 401, ""},
		{"an unknown sandbox", w.host("nobody", 0), "/", nil, 401, ""},
		{"an unknown sandbox, with a link", w.host("nobody", 0), "/", []string{"Cookie", "cubby_preview=" + link}, 401, ""},
		{"a public one", w.host("A", 0), "/", nil, 200, ""},
		{"a public one's other port", w.host("a", 1), "/", nil, 401, ""},
		{"a private one", private, "/", nil, 401, ""},
		{"with the cookie", private, "/", []string{"Cookie", "x=y; cubby_preview=" + link}, 200, "alice"},
		{"in upper case", strings.ToUpper(private), "/", []string{"Cookie", "cubby_preview=" + link}, 200, "alice"},
		{"with a cookie before it", private, "/", []string{"Cookie", "cubby_preview=foreign", "Cookie", "cubby_preview=" + link}, 200, "alice"},
		{"with the link", private, "/?a=b&cubby_preview=" + link, nil, 200, "alice"},
		{"with the header", private, "/", []string{"X-Cubby-Preview-Token", link}, 200, "alice"},
		{"with a token of the API", private, "/", []string{"X-Cubby-Preview-Token", token}, 200, "alice"},
		{"another tenant's", private, "/", []string{"X-Cubby-Preview-Token", "secret-of-bob"}, 401, ""},
		{"the app's own authorization", private, "/", []string{"Authorization", "Bearer " + token}, 401, ""},
		{"another sandbox's link", w.host("n", 0), "/", []string{"Cookie", "cubby_preview=" + link}, 401, ""},
		{"another port's link", w.host("m", 1), "/", []string{"Cookie", "cubby_preview=" + link}, 401, ""},
		{"sandboxed's own cookie", private, "/", []string{"Cookie", "sandbox_preview=" + good(t)}, 401, ""},
	} {
		got := w.forward(tt.host, tt.uri, tt.header...)
		if got.StatusCode != tt.status || got.Header.Get("X-Sandbox-External-User-Id") != tt.user {
			t.Errorf("%s: %s for %q, want %d for %q", tt.name, got.Status, got.Header.Get("X-Sandbox-External-User-Id"), tt.status, tt.user)
		}
	}
}

// What is answered about a private sandbox told it from one that there is not.
func TestForwardAuthDoesNotTellWhichSandboxesThereAre(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"with a redirect": with(portal, "redirect"), "with a page": with(portal, "meta-refresh"), "with neither": with("", "redirect"),
	} {
		w := newSignInWorld(t, change)
		_, link := w.link("m", w.port)
		for _, header := range [][]string{nil, {"Cookie", "cubby_preview=foreign"}, {"X-Cubby-Preview-Token", "secret-of-bob"}} {
			seen := func(id string) string {
				got := w.forward(w.host(id, 0), "/page", header...)
				return got.Status + " " + got.Header.Get("Location") + " " + got.text
			}
			private, none := seen("m"), strings.ReplaceAll(seen("q"), "q", "m")
			if strings.ReplaceAll(private, "q", "m") != none {
				t.Errorf("%s, %q: a private one is %s, one that there is not %s", name, header, private, none)
			}
		}
		if got := w.forward(w.host("m", 0), "/", "Cookie", "cubby_preview="+link); got.StatusCode != http.StatusOK {
			t.Errorf("%s: with a link it is %s", name, got.Status)
		}
	}
}

// Those who may not pass go to the application, by a redirect or by a page.
func TestForwardAuthDenies(t *testing.T) {
	w := newSignInWorld(t, with(portal, "redirect"))
	host, evil := w.host("m", 0), "\r\nSet-Cookie: a=b"
	for uri, back := range map[string]string{
		"/a?b=c&d=e":         "/a?b=c&d=e",
		"/?cubby_preview=x":  "/",
		"//evil.example/":    "//evil.example/",
		"http://evil/":       "",
		"@evil.example":      "",
		"/\"><script>" + "x": "/\"><script>x",
		"":                   "",
	} {
		got := w.forward(host, uri)
		u, err := url.Parse(got.Header.Get("Location"))
		if got.StatusCode != http.StatusFound || err != nil || u.Host != "app.example.com" || u.Query().Get("back") != "http://"+host+back || u.Query().Get("box") != "m" {
			t.Errorf("%q is sent to %q, %s", uri, got.Header.Get("Location"), got.Status)
		}
	}
	if got := w.signIn("x", "http://"+host+"/"+url.PathEscape(evil)); got.Header.Get("Set-Cookie") != "" {
		t.Errorf("a header was injected: %v", got.Header)
	}
	page := newSignInWorld(t, with("https://app.example.com/?a=1&r={return}", "meta-refresh"))
	got := page.forward(page.host("m", 0), "/\"><script>alert(1)</script>")
	if got.StatusCode != http.StatusUnauthorized || !strings.Contains(got.text, `content="0;url=https://app.example.com/?a=1&amp;r=http%3A%2F%2F`) || strings.Contains(got.text, "<script>") {
		t.Errorf("the page is %s %s", got.Status, got.text)
	}
}

// Tokens are in no log.
func TestSignInIsNotLogged(t *testing.T) {
	w := newSignInWorld(t)
	back := "http://" + w.host("m", 0) + "/secret-path"
	token := good(t)
	location := w.signIn(token, back).Header.Get("Location")
	_ = w.get(location)
	_ = w.signIn(token+"x", back)
	w.forward(w.host("m", 0), "/secret-path?cubby_preview=x", "Cookie", "cubby_preview=secret-cookie")
	u, err := url.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{token, u.Query().Get("cubby_preview"), "secret-path", "secret-cookie", keyA, keyB} {
		if secret == "" || strings.Contains(w.d.Log(), secret) {
			t.Errorf("%.20q… is in the log", secret)
		}
	}
	if !strings.Contains(w.d.Log(), "route=/preview-auth") || !strings.Contains(w.d.Log(), "route=/forward-auth") {
		t.Error("the requests are not in the log")
	}
}

// Without previews, or without keys, nobody comes in.
func TestSignInWithoutPreviewsOrKeys(t *testing.T) {
	none := newWorld(t, echo, func(c *config.Config) { c.PreviewKeys = "" })
	if got := none.signIn(good(t), "http://"+none.host("p", 0)+"/"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without keys: %s %s", got.Status, got.text)
	}
}

func TestParseKeys(t *testing.T) {
	long := strings.Repeat("k", 16)
	for list, ok := range map[string]bool{
		"": true, "a=" + long: true, "a=" + long + ", b=" + long + "==": true, "a=" + strings.Repeat("k", 512): true,
		"a": false, "=" + long: false, "a=" + long[1:]: false, "a=" + strings.Repeat("k", 513): false, "a=" + long + ",a=" + long: false,
		"a=" + long + ",": false, "a b=" + long: false, strings.Repeat("i", 65) + "=" + long: false, long: false,
	} {
		_, err := preview.ParseKeys(list)
		if (err == nil) != ok || err != nil && (errs.KindOf(err) != errs.Invalid || strings.Contains(err.Error(), "kkkk")) {
			t.Errorf("ParseKeys(%.40q) = %v", list, err)
		}
	}
	for redirect, ok := range map[string]bool{
		"": true, portal: true, "http://localhost:3000/": true, "app.example.com": false, "//app.example.com/": false, "https://{sandbox_id}.example.com/": false,
		"javascript:x": false, "https://user@app.example.com/": false, "https:///x": false, "https://a b/": false,
	} {
		if err := preview.CheckSignIn(redirect, "redirect"); (err == nil) != ok {
			t.Errorf("CheckSignIn(%q) = %v", redirect, err)
		}
	}
	if err := preview.CheckSignIn("", "page"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("an unknown mode = %v", err)
	}
}
