// Package browsertest gives tests tabs of a real Chromium, without a window. It
// needs the program chromium.
package browsertest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

const (
	// life bounds a browser: what hangs fails its test.
	life = 15 * time.Minute
	// patience bounds what a page is to come to.
	patience = time.Minute
	// answers bounds one question to a page, whose answer a navigation can lose.
	answers = 5 * time.Second
	// between is the pause between two such questions.
	between = 50 * time.Millisecond
)

// Tab is one tab. Its methods end the test when the browser does not do what it
// is told.
type Tab struct {
	t   testing.TB
	ctx context.Context //nolint:containedctx // it is the tab, to chromedp
}

// New starts a browser, which knows no names but those below localhost, takes any
// certificate and ends with the test, and returns its first tab.
func New(t testing.TB) *Tab {
	t.Helper()
	profile, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), life)
	ctx, release := chromedp.NewExecAllocator(ctx,
		chromedp.UserDataDir(profile), chromedp.WSURLReadTimeout(time.Minute), chromedp.WindowSize(1000, 640),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.IgnoreCertErrors, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE *.localhost"))
	ctx, leave := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		leave()
		release() // waits for the browser
		cancel()
		// Its children may still write for a moment.
		var err error
		for range 100 {
			if err = os.RemoveAll(profile); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left behind: %v", err)
		}
	})
	return newTab(t, ctx)
}

// Visitor returns a tab of the same browser that shares nothing with others, as
// another person has it.
func (b *Tab) Visitor(t testing.TB) *Tab {
	t.Helper()
	browser := cdp.WithExecutor(b.ctx, chromedp.FromContext(b.ctx).Browser)
	person, err := target.CreateBrowserContext().Do(browser)
	if err != nil {
		t.Fatal(err)
	}
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(person).WithNewWindow(true).Do(browser)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := chromedp.NewContext(b.ctx, chromedp.WithTargetID(id))
	t.Cleanup(func() {
		leave()
		if err := target.DisposeBrowserContext(person).Do(browser); err != nil {
			t.Error(err)
		}
	})
	return newTab(t, ctx)
}

// newTab attaches to a tab, whose questions whether to leave a page are answered.
func newTab(t testing.TB, ctx context.Context) *Tab {
	t.Helper()
	if err := chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	chromedp.ListenTarget(ctx, func(event any) {
		if _, ok := event.(*page.EventJavascriptDialogOpening); ok {
			go func() { _ = chromedp.Run(ctx, page.HandleJavaScriptDialog(true)) }() // the tab may be gone
		}
	})
	return &Tab{t, ctx}
}

// Do does something.
func (b *Tab) Do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := b.Try(actions...); err != nil {
		b.t.Fatalf("%v; at %s the page shows\n%s", err, b.Address(), b.Text())
	}
}

// Try does what may fail.
func (b *Tab) Try(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// Open goes to an address and returns when the page has loaded, whatever its
// status is.
func (b *Tab) Open(address string) {
	b.t.Helper()
	b.Do(chromedp.Navigate(address))
}

// Listen hears of events of the tab; f must not wait.
func (b *Tab) Listen(f func(event any)) { chromedp.ListenTarget(b.ctx, f) }

// Address is where the tab is.
func (b *Tab) Address() string { return b.Get("location.href") }

// Text is what the page shows.
func (b *Tab) Text() string { return b.Get("document.body.innerText") }

// Get evaluates an expression, and waits for it when it is a promise; "" when
// the page has none of it.
func (b *Tab) Get(expression string) string {
	s, _ := b.get(expression) // a page has it or not
	return s
}

func (b *Tab) get(expression string) (s string, err error) {
	ctx, cancel := context.WithTimeout(b.ctx, answers)
	defer cancel()
	err = chromedp.Run(ctx, chromedp.Evaluate("(async () => String(await ("+expression+")))()", &s, awaited))
	return s, err
}

// Run evaluates the body of an async function, and returns what that returns as
// text. What it throws ends the test.
func (b *Tab) Run(body string) (s string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Evaluate("(async () => String(await (async () => {"+body+"})()))()", &s, awaited)); err != nil {
		b.t.Fatalf("%s: %v", body, err)
	}
	return s
}

func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// Until waits for an expression to be true, on whichever page the tab goes to.
func (b *Tab) Until(expression string) {
	b.t.Helper()
	var got string
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && b.ctx.Err() == nil; time.Sleep(between) {
		if got, err = b.get(expression); err == nil && got == "true" {
			return
		}
	}
	b.Picture("failed")
	b.t.Fatalf("it does not come that %s: %s, %v; at %s the page shows\n%s", expression, got, err, b.Address(), b.Text())
}

// Dark makes pages dark or light, as a person's system says.
func (b *Tab) Dark(dark bool) {
	b.t.Helper()
	value := "light"
	if dark {
		value = "dark"
	}
	b.Do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}))
}

// Picture writes a picture of the page to the directory CUBBY_TEST_PICTURES, for
// people who look at them; without that it does nothing.
func (b *Tab) Picture(name string) {
	b.t.Helper()
	dir := os.Getenv("CUBBY_TEST_PICTURES")
	if dir == "" {
		return
	}
	var picture []byte
	b.Do(chromedp.CaptureScreenshot(&picture))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		b.t.Error(err)
	}
}
