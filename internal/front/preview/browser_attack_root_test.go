//go:build root

package preview_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cubbyhq/cubby/internal/browsertest"
	"github.com/cubbyhq/cubby/internal/config"
)

// asked remembers the requests that an app got.
type asked struct {
	mu  sync.Mutex
	all []*http.Request // guarded by mu
}

func (a *asked) add(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, r)
}

// of lists those for a path of a preview.
func (a *asked) of(host, path string) (found []*http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.all {
		if r.URL.Path == path && (host == "" || r.Header.Get("X-Forwarded-Host") == host) {
			found = append(found, r)
		}
	}
	return found
}

// hostileWorld is one whose app can be any page. Its daemon has no tokens, so
// that the API trusts what comes from this machine.
func hostileWorld(t *testing.T) (*world, *asked) {
	t.Helper()
	seen := new(asked)
	mux := http.NewServeMux()
	mux.HandleFunc("/", html(theApp))
	mux.HandleFunc("/worker.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = io.WriteString(w, `const seen = [];
			onfetch = (e) => { seen.push(e.request.url) };
			onactivate = (e) => e.waitUntil(clients.claim());
			onmessage = (e) => e.ports[0].postMessage(seen)`)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, theApp)
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			if _, err := io.WriteString(w, "<p>"); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("/subresources", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Referrer-Policy", "unsafe-url")
		html(`<!doctype html><title>The app</title><img src="/image"><img src="`+r.FormValue("foreign")+`">`)(w, r)
	})
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		seen.add(r)
		mux.ServeHTTP(w, r)
	}, func(c *config.Config) { c.Tokens = "" })
	return w, seen
}

// TestAttacksInABrowser: what a page of one preview does to others, to the API and
// to its visitors. Each of them has a browser's rules for it.
func TestAttacksInABrowser(t *testing.T) {
	w, seen := hostileWorld(t)
	browser := browsertest.New(t)
	evil, victim := "http://"+w.host("a", 0)+"/", "http://"+w.host("p", 0)+"/"
	link, token := w.link("p", w.port)
	// invited returns a tab of a person who may see the victim.
	invited := func(t *testing.T) *browsertest.Tab {
		b := browser.Visitor(t)
		b.Open(link)
		b.Until(title("The app") + " && location.href === '" + victim + "'")
		return b
	}
	// tried tells how a script's attempt ended: what it got, or the kind of error.
	tried := func(b *browsertest.Tab, attempt string) string {
		return b.Run("try { return await (async () => {" + attempt + "})() } catch (e) { return e.name }")
	}

	t.Run("a service worker sees its own preview alone", func(t *testing.T) {
		b := invited(t)
		b.Open(evil)
		b.Run("await navigator.serviceWorker.register('/worker.js'); await navigator.serviceWorker.ready")
		b.Until("!!navigator.serviceWorker.controller")
		b.Run("await fetch('/own')")
		b.Open(victim)
		b.Run("await fetch('/victims')")
		b.Open(w.d.URL + "/")
		b.Run("await fetch('/v1/sandboxes')")
		b.Open(evil)
		got := b.Run(`const { port1, port2 } = new MessageChannel();
			navigator.serviceWorker.controller.postMessage('', [port2]);
			return new Promise((done) => { port1.onmessage = (e) => done(e.data) })`)
		urls := strings.Split(got, ",")
		if !slices.Contains(urls, evil+"own") || slices.ContainsFunc(urls, func(u string) bool { return !strings.HasPrefix(u, evil) }) {
			t.Errorf("the service worker saw %s", got)
		}
		if len(seen.of(w.host("p", 0), "/victims")) != 1 {
			t.Error("the victim did not get its own request")
		}
		if got := tried(b, "await navigator.serviceWorker.register('"+victim+"worker.js')"); got != "SecurityError" {
			t.Errorf("to register one for another preview ends with %s", got)
		}
	})
	t.Run("cookies for the parent domain shut nobody out and open nothing", func(t *testing.T) {
		b := invited(t)
		stranger := browser.Visitor(t)
		own, ownToken := w.link("a", w.port)
		for _, b := range []*browsertest.Tab{b, stranger} {
			b.Open(own)
			b.Until(title("The app"))
			b.Run(`for (const path of ['/', '/x', '/x/y']) {
				for (const name of ['cubby_preview', '__Host-cubby_preview', 'app']) {
					document.cookie = name + '=` + ownToken + `; domain=` + domain + `; path=' + path;
				}
			}`)
			if got := b.Get("document.cookie"); !strings.Contains(got, "cubby_preview="+ownToken) || !strings.Contains(got, "app=") {
				t.Fatalf("the page could not set its cookies: %s", got)
			}
		}
		for _, path := range []string{"", "x/y/z"} {
			b.Open(victim + path)
			b.Until(title("The app"))
			stranger.Open(victim + path)
			stranger.Until(title("This preview is not open"))
		}
		for _, r := range seen.of(w.host("p", 0), "/x/y/z") {
			if cookie := r.Header.Get("Cookie"); strings.Contains(cookie, "cubby_preview") || !strings.Contains(cookie, "app=") {
				t.Errorf("the app gets the cookies %s", cookie)
			}
		}
		// One that the page sets over the victim's own name stays its own.
		b.Open(evil)
		b.Run("document.cookie = 'cubby_preview=; domain=" + domain + "; max-age=0; path=/'")
		b.Open(victim)
		b.Until(title("The app"))
	})
	t.Run("a redirect loop ends in the browser", func(t *testing.T) {
		b := invited(t)
		if err := b.Try(chromedp.Navigate(evil + "loop")); err == nil || !strings.Contains(err.Error(), "ERR_TOO_MANY_REDIRECTS") {
			t.Errorf("the loop ends with %v", err)
		}
		if n := len(seen.of("", "/loop")); n > 50 {
			t.Errorf("it costs %d requests", n)
		}
		b.Open(victim)
		b.Until(title("The app"))
	})
	t.Run("a page reads neither the API nor another preview", func(t *testing.T) {
		b := invited(t)
		b.Open(evil)
		for _, address := range []string{w.d.URL + "/v1/sandboxes", w.d.URL + "/healthz", victim, link} {
			for _, mode := range []string{"omit", "include"} {
				if got := tried(b, "return (await fetch('"+address+"', { credentials: '"+mode+"' })).text()"); got != "TypeError" {
					t.Errorf("a fetch of %s with credentials %s gets %.200s", address, mode, got)
				}
			}
			if got := tried(b, "return (await (await fetch('"+address+"', { mode: 'no-cors', credentials: 'include' })).text()).length"); got != "0" && got != "TypeError" {
				t.Errorf("a fetch without CORS of %s gets %s bytes", address, got)
			}
			b.Run(`const frame = document.body.appendChild(document.createElement('iframe'));
				frame.src = '` + address + `';
				await new Promise((done) => { frame.onload = frame.onerror = done })`)
			if got := tried(b, "const { contentDocument } = document.querySelector('iframe:last-of-type'); return contentDocument && contentDocument.body.innerText"); got != "null" {
				t.Errorf("in a frame %s is read as %.200s", address, got)
			}
			if got := tried(b, "return document.querySelector('iframe:last-of-type').contentWindow.document.title"); got != "SecurityError" {
				t.Errorf("in a frame %s is reached: %.200s", address, got)
			}
		}
		// A request that asks for no leave beforehand, and one by a form.
		tried(b, "await fetch('"+w.d.URL+"/v1/sandboxes', { method: 'POST', mode: 'no-cors', body: '{\"id\":\"forged\"}' })")
		b.Run(`const form = document.body.appendChild(document.createElement('form'));
			form.method = 'post'; form.enctype = 'text/plain'; form.action = '` + w.d.URL + `/v1/sandboxes';
			const input = form.appendChild(document.createElement('input'));
			input.name = '{"id":"forged","labels":{"a":"'; input.value = '"}}';
			setTimeout(() => form.submit())`)
		b.Until("location.href.startsWith('" + w.d.URL + "')")
		var list struct {
			Sandboxes []struct{ ID string } `json:"sandboxes"`
		}
		w.api("GET", "/v1/sandboxes", "", &list)
		if len(list.Sandboxes) != 2 {
			t.Errorf("the sandboxes are %+v", list.Sandboxes)
		}
	})
	t.Run("a script does not read the preview's cookie", func(t *testing.T) {
		b := invited(t)
		if got := b.Run("return [document.cookie, JSON.stringify(await cookieStore.getAll())]"); got != ",[]" {
			t.Errorf("it reads %s", got)
		}
		got := b.Run(`document.cookie = 'cubby_preview=mine; path=/'; document.cookie = 'cubby_preview=; path=/; max-age=0';
			return document.cookie`)
		if got != "" {
			t.Errorf("it sets over it %s", got)
		}
		b.Open(victim)
		b.Until(title("The app"))
		for _, r := range seen.of(w.host("p", 0), "/") {
			if text := r.RequestURI + fmt.Sprint(r.Header); strings.Contains(text, token) {
				t.Errorf("the app gets the token: %s", text)
			}
		}
	})
	t.Run("no Referer has the token", func(t *testing.T) {
		foreign := new(asked)
		elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { foreign.add(r) }))
		defer elsewhere.Close()
		b := browser.Visitor(t)
		b.Open(strings.Replace(link, "/?", "/subresources?foreign="+elsewhere.URL+"/image&", 1))
		b.Until("document.readyState === 'complete' && " + title("The app"))
		own, others := seen.of(w.host("p", 0), "/image"), foreign.of("", "/image")
		if len(own) != 1 || len(others) != 1 {
			t.Fatalf("the app got %d requests and the foreign site %d", len(own), len(others))
		}
		for _, r := range append(own, others...) {
			if referer := r.Header.Get("Referer"); !strings.Contains(referer, "/subresources?") || strings.Contains(referer, "cubby_preview") || strings.Contains(referer, token) {
				t.Errorf("the Referer is %q", referer)
			}
		}
	})
	t.Run("bodies without end hold up no other preview", func(t *testing.T) {
		b, other := browser.Visitor(t), invited(t)
		b.Open(evil)
		// More than the connections that a browser has for one host.
		b.Run("for (let i = 0; i < 20; i++) fetch('/endless?' + i).then((r) => r.text()).catch(() => {})")
		other.Open(victim)
		other.Until(title("The app"))
		other.Run("await fetch('/')")
		var ran struct {
			ExitCode *int `json:"exit_code"`
		}
		w.api("POST", "/v1/sandboxes/a/exec", `{"cmd":"true"}`, &ran)
		if ran.ExitCode == nil || *ran.ExitCode != 0 {
			t.Errorf("a command beside it: %v", ran.ExitCode)
		}
	})
}

// TestPreviewsBelowLocalhostShareNoCookies: to a browser each name directly below
// localhost is a site of its own, as below a domain of the Public Suffix List. A
// page can set no cookies for others, nor so many that these are refused.
func TestPreviewsBelowLocalhostShareNoCookies(t *testing.T) {
	w := newWorld(t, html(theApp), func(c *config.Config) { c.PreviewDomain = "localhost" })
	b := browsertest.New(t)
	link, _ := w.link("p", w.port)
	b.Open(link)
	b.Until(title("The app"))
	b.Open("http://" + strings.Replace(w.host("a", 0), domain, "localhost", 1) + "/")
	b.Until(title("The app"))
	b.Run("for (let i = 0; i < 300; i++) document.cookie = 'c' + i + '=' + 'x'.repeat(3000) + '; domain=localhost; path=/'")
	if got := b.Get("document.cookie"); got != "" {
		t.Errorf("the page set %.80s", got)
	}
	b.Run("for (let i = 0; i < 300; i++) document.cookie = 'c' + i + '=x; path=/'")
	b.Open("http://" + strings.Replace(w.host("p", 0), domain, "localhost", 1) + "/")
	b.Until(title("The app"))
}
