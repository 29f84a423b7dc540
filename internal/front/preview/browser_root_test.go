//go:build root

package preview_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/internal/browsertest"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const theApp = `<!doctype html><title>The app</title><h1>The app</h1>`

func html(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, text)
	}
}

// pictures are of a page as it is in the light and in the dark.
func pictures(b *browsertest.Tab, name string) {
	for _, dark := range []bool{true, false} {
		b.Dark(dark)
		b.Picture("page-" + name + map[bool]string{true: "-dark", false: "-light"}[dark])
	}
}

func title(text string) string { return fmt.Sprintf("document.title === %q", text) }

// TestPagesInABrowser: a person sees a page while there is no app, and the app by
// itself as soon as there is one.
func TestPagesInABrowser(t *testing.T) {
	w := newWorld(t, html(theApp))
	browser := browsertest.New(t)
	own := "http://" + w.host("a", 0) + "/"

	t.Run("a sandbox that wakes", func(t *testing.T) {
		b := browser.Visitor(t)
		w.api("POST", "/v1/sandboxes/a/sleep", "", nil)
		hold := make(chan struct{})
		w.d.Faults.SetBefore(func(ctx context.Context, method string, _ sandbox.UID) {
			if method != "Start" && method != "Wake" {
				return
			}
			select {
			case <-hold:
			case <-ctx.Done():
			}
		})
		b.Open(own + "path?query=1")
		b.Until(title("Spinning up your app…"))
		pictures(b, "503-waking")
		if text := b.Get("document.documentElement.outerHTML + document.cookie"); strings.Contains(text, w.host("a", 0)) {
			t.Errorf("the page names the sandbox: %s", text)
		}
		close(hold)
		b.Until(title("The app"))
		if at := b.Address(); at != own+"path?query=1" {
			t.Errorf("then the address is %s", at)
		}
		w.d.Faults.SetBefore(nil)
	})
	t.Run("a server that starts later", func(t *testing.T) {
		b := browser.Visitor(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		w.api("PATCH", "/v1/sandboxes/a", fmt.Sprintf(`{"ports":[%d,%d]}`, w.port, port), nil)
		b.Open("http://" + w.host("a", port) + "/")
		b.Until(title("Nothing is here yet"))
		pictures(b, "502-nothing")
		if l, err = net.Listen("tcp", address); err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: html(theApp)}
		served := make(chan error)
		go func() { served <- s.Serve(l) }()
		b.Until(title("The app"))
		s.Close()
		<-served
	})
	t.Run("a link", func(t *testing.T) {
		b := browser.Visitor(t)
		private := "http://" + w.host("p", 0) + "/"
		b.Open(private)
		b.Until(title("This preview is not open"))
		pictures(b, "401-not-open")
		link, token := w.link("p", w.port)
		b.Open(link)
		b.Until(title("The app"))
		if at := b.Get("location.href + document.referrer + performance.getEntriesByType('navigation')[0].name"); at != private+private {
			t.Errorf("the page knows of its address %s", at)
		}
		if got := b.Run("return [document.cookie, JSON.stringify(await cookieStore.getAll())]"); got != ",[]" {
			t.Errorf("a script of the page reads the cookies %s", got)
		}
		var cookies []*network.Cookie
		b.Do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
			cookies, err = network.GetCookies().Do(ctx)
			return err
		}))
		if len(cookies) != 1 || cookies[0].Value != token || !cookies[0].HTTPOnly || cookies[0].SameSite != network.CookieSameSiteLax || cookies[0].Domain+":"+w.at() != w.host("p", 0) {
			t.Errorf("the browser's cookies are %+v", cookies)
		}
		b.Open(private)
		b.Until(title("The app"))
		w.api("DELETE", "/v1/sandboxes/p/links", "", nil)
		b.Open(private)
		b.Until(title("This preview is not open"))
	})
	t.Run("other ends", func(t *testing.T) {
		b := browser.Visitor(t)
		b.Open("http://" + domain + ":" + w.at() + "/")
		b.Until(title("No such preview"))
		pictures(b, "404")
		w.api("POST", "/v1/sandboxes/a/sleep", "", nil)
		w.d.Faults.SetFail("Start", errs.E(errs.LowMemory, "the host has no memory left"))
		w.d.Faults.SetFail("Wake", errs.E(errs.LowMemory, "the host has no memory left"))
		b.Open(own)
		b.Until(title("Too busy"))
		pictures(b, "503-busy")
		w.d.Faults.SetFail("Start", nil)
		w.d.Faults.SetFail("Wake", nil)
		w.api("POST", "/v1/sandboxes/a/stop", "", nil)
		b.Open(own)
		b.Until(title("The app is stopped"))
		pictures(b, "503-stopped")
	})
}

// TestTLSInABrowser: over TLS a browser speaks HTTP/2 and opens WebSockets, the
// cookie is of this name alone, and also holds where the preview is in a frame of
// another site.
func TestTLSInABrowser(t *testing.T) {
	cert, key := certificate(t, "*."+domain)
	seen := new(asked)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		seen.add(r)
		if r.Header.Get("Upgrade") == "" {
			html(theApp)(w, r)
			return
		}
		conn, err := websocket.Accept(w, r, nil) // which compares Host and Origin
		if err != nil {
			return
		}
		_ = conn.Close(websocket.StatusNormalClosure, "seen")
	}, func(c *config.Config) { c.PreviewTLSCert, c.PreviewTLSKey = cert, key })
	browser := browsertest.New(t)
	private := "https://" + w.host("p", 0) + "/"
	link, token := w.link("p", w.port)

	b := browser.Visitor(t)
	b.Open(link)
	b.Until(title("The app") + " && location.href === '" + private + "'")
	if got := b.Get("performance.getEntriesByType('navigation')[0].nextHopProtocol"); got != "h2" {
		t.Errorf("the browser speaks %s", got)
	}
	got := b.Run("const socket = new WebSocket('/socket'); return new Promise((done) => { socket.onclose = (e) => done(e.reason) })")
	if got != "seen" {
		t.Errorf("the WebSocket ends with %q", got)
	}
	var cookies []*network.Cookie
	b.Do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		cookies, err = network.GetCookies().Do(ctx)
		return err
	}))
	if len(cookies) != 1 || cookies[0].Name != "__Host-cubby_preview" || cookies[0].Value != token || !cookies[0].HTTPOnly || !cookies[0].Secure {
		t.Errorf("the browser's cookies are %+v", cookies)
	}

	site := httptest.NewServer(html(`<!doctype html><iframe src="` + strings.Replace(link, "/?", "/framed?", 1) + `"></iframe>`))
	defer site.Close()
	b = browser.Visitor(t)
	b.Open(site.URL)
	w.until("the app is seen in a frame", func() bool { return len(seen.of(w.host("p", 0), "/framed")) == 1 })
	// Another time the cookie is enough.
	b.Run("document.querySelector('iframe').src = '" + private + "again'")
	w.until("the app is seen in a frame again", func() bool { return len(seen.of(w.host("p", 0), "/again")) == 1 })
}
