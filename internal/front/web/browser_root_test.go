//go:build root

package web_test

import (
	"context"
	"flag"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cubbyhq/cubby/internal/browsertest"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

var screenshot = flag.String("screenshot", "", "write a picture of the page to this file")

const token = "not-secure"

// browser is one tab of a real Chromium.
type browser struct {
	*browsertest.Tab
	t *testing.T
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	return &browser{browsertest.New(t), t}
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := b.Try(actions...); err != nil {
		b.t.Fatalf("%v; status %q, the screen shows\n%s", err, b.Get(statusText), b.Get(screenText))
	}
}

const (
	statusText = `document.getElementById('status').textContent`
	screenText = `Array.from(document.querySelectorAll('.xterm-rows > div'), (row) => row.textContent.replace(/\u00a0/g, ' ').trimEnd()).join('\n')`
)

func (b *browser) status(want string) {
	b.t.Helper()
	b.Until(statusText + " === " + strconv.Quote(want))
}

// shows waits for a line of the screen that is a text.
func (b *browser) shows(line string) {
	b.t.Helper()
	b.Until("(" + screenText + ").split('\\n').includes(" + strconv.Quote(line) + ")")
}

func (b *browser) typed(keys string) {
	b.t.Helper()
	b.do(chromedp.Focus(".xterm-helper-textarea"), chromedp.ActionFunc(func(ctx context.Context) error {
		for _, key := range keys {
			for _, event := range kb.Encode(key) {
				if event.Type == input.KeyDown {
					event.Type = input.KeyRawDown // its character is an event of its own
				}
				if err := event.Do(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// ctrlC presses the two keys.
func (b *browser) ctrlC() {
	b.t.Helper()
	press := func(kind input.KeyType) *input.DispatchKeyEventParams {
		return input.DispatchKeyEvent(kind).WithKey("c").WithCode("KeyC").WithModifiers(input.ModifierCtrl).WithWindowsVirtualKeyCode(67)
	}
	b.do(press(input.KeyRawDown), press(input.KeyUp))
}

func api(t *testing.T, url, method, path, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// TestPageInABrowser: links and the form, typing, a reload, a new size, and a
// daemon that stops and comes back.
func TestPageInABrowser(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = "me:" + token }})
	if status := api(t, d.URL, "POST", "/v1/sandboxes", `{"id":"box"}`); status != http.StatusCreated {
		t.Fatalf("create: %d", status)
	}
	b := newBrowser(t)

	// A link with all that it takes connects, and keeps the token for itself.
	b.do(chromedp.Navigate(d.URL + "/web?token=" + token + "&session=box"))
	b.status("connected")
	if at := b.Get("location.href"); strings.Contains(at, token) || !strings.Contains(at, "id=box") {
		t.Errorf("the address is %s", at)
	}
	b.typed("PS1='$ '; KEPT=here; clear\r")
	b.typed("echo sum-$((40+2))\r")
	b.shows("sum-42")
	b.do(chromedp.Reload())
	b.status("connected")
	b.shows("sum-42")
	b.typed("echo $KEPT-still\r")
	b.shows("here-still")

	// Keys are raw: Ctrl-C ends the command, tab completes.
	b.typed("bash -c 'echo begun-$((1+1)); exec sleep 600'\r")
	b.shows("begun-2")
	b.ctrlC()
	b.typed("echo code-$?\r")
	b.shows("code-130")
	b.typed("echo tab-$((2+3)) > completed_by_tab\r")
	b.typed("cat completed_\t\r")
	b.shows("tab-5")

	const rows = "document.querySelector('.xterm-rows').children.length"
	before := b.Get("String(" + rows + ")")
	b.typed("while ! test -e sized; do echo rows-$(stty size | cut -d' ' -f1); sleep 0.1; done\r")
	b.do(chromedp.EmulateViewport(700, 400))
	b.Until(rows + " !== " + before + " && (" + screenText + ").split('\\n').includes('rows-' + " + rows + ")")
	if status := api(t, d.URL, "PUT", "/v1/sandboxes/box/files?path=sized", "x"); status != http.StatusOK {
		t.Errorf("write: %d", status)
	}
	b.do(chromedp.EmulateViewport(1000, 640))

	if *screenshot != "" {
		b.typed("clear; PS1='\\[\\e[32m\\]sandbox@box\\[\\e[0m\\]:\\w\\$ '; cd /tmp\r")
		b.typed("python3 -c 'print(sum(range(101)))'\r")
		b.shows("5050")
		b.typed("ls --color=always -d /usr/*\r")
		var picture []byte
		b.do(chromedp.Sleep(time.Second), chromedp.CaptureScreenshot(&picture))
		if err := os.WriteFile(*screenshot, picture, 0o644); err != nil {
			t.Error(err)
		}
		b.typed("cd -\r")
	}

	// A link makes nothing; a click does.
	b.do(chromedp.Navigate(d.URL + "/web?id=made"))
	b.status(`there is no sandbox "made"`)
	if status := api(t, d.URL, "GET", "/v1/sandboxes/made", ""); status != http.StatusNotFound {
		t.Errorf("the link made a sandbox: %d", status)
	}
	b.do(chromedp.Click("#create", chromedp.NodeVisible))
	b.status("connected")
	if status := api(t, d.URL, "GET", "/v1/sandboxes/made", ""); status != http.StatusOK {
		t.Errorf("the click made none: %d", status)
	}
	if status := api(t, d.URL, "DELETE", "/v1/sandboxes/made", ""); status != http.StatusNoContent {
		t.Errorf("destroy: %d", status)
	}
	b.do(chromedp.Navigate(d.URL + "/web?id=made"))
	b.Until(statusText + `.startsWith('there is no sandbox "made": destroyed ')`)

	// The form, in a tab that knows no token.
	b.do(chromedp.Evaluate("sessionStorage.clear()", nil), chromedp.Navigate(d.URL+"/web"))
	b.Until("document.getElementById('id').value.startsWith('web-')")
	b.do(chromedp.SetValue("#id", "box"), chromedp.SetValue("#token", "wrong"), chromedp.Click("#connect"))
	b.status("the token is wrong")
	// A mistyped id is not the id of a new sandbox.
	b.do(chromedp.SetValue("#token", token), chromedp.SetValue("#id", "bxo"), chromedp.Click("#connect"))
	b.status(`there is no sandbox "bxo"`)
	b.Until("!document.getElementById('create').hidden")
	if status := api(t, d.URL, "GET", "/v1/sandboxes/bxo", ""); status != http.StatusNotFound {
		t.Errorf("a mistyped id made a sandbox: %d", status)
	}
	b.do(chromedp.SetValue("#id", "box"), chromedp.Click("#connect"))
	b.status("connected")

	// The daemon stops; the terminal goes on and the page comes back to it.
	b.typed("clear; PS1='$ '; echo wait-$((1+2)); while ! test -e seen; do sleep 0.05; done; echo back-$((3+4))\r")
	b.shows("wait-3")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	b.status("reconnecting")
	address := strings.TrimPrefix(d.URL, "http://")
	d = daemontest.Start(t, daemontest.Options{
		Dir: d.Dir, Driver: d.Driver.Restart(t),
		Config: func(c *config.Config) { c.Tokens, c.Listen = "me:"+token, address },
	})
	b.status("connected")
	b.shows("wait-3")
	if status := api(t, d.URL, "PUT", "/v1/sandboxes/box/files?path=seen", "x"); status != http.StatusOK {
		t.Errorf("write: %d", status)
	}
	b.shows("back-7")
	b.typed("exit 3\r")
	b.status("ended: exit 3")
}

// TestPageWakesASandbox: a terminal wakes its sandbox, by a key and by a link,
// unless a use is not to wake it.
func TestPageWakesASandbox(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	ask := func(method, path, body string) {
		t.Helper()
		if status := api(t, d.URL, method, "/v1/sandboxes"+path, body); status/100 != 2 {
			t.Fatalf("%s %s: %d", method, path, status)
		}
	}
	ask("POST", "", `{"id":"box"}`)
	b := newBrowser(t)
	link := chromedp.Navigate(d.URL + "/web?id=box")
	b.do(link)
	b.status("connected")
	b.typed("PS1='$ '; clear; echo sum-$((40+2))\r")
	b.shows("sum-42")

	ask("POST", "/box/sleep", `{"force":true}`)
	b.typed("echo on-$((1+1))\r")
	b.shows("on-2")
	b.status("connected")

	b.do(chromedp.Navigate("about:blank"))
	ask("POST", "/box/sleep", `{"force":true}`)
	b.do(link)
	b.status("connected")
	b.shows("on-2")

	b.do(chromedp.Navigate("about:blank"))
	ask("PATCH", "/box", `{"auto_wake":"never"}`)
	ask("POST", "/box/sleep", `{"force":true}`)
	b.do(link)
	b.status("the sandbox is sleeping")
	b.do(chromedp.Click("#start", chromedp.NodeVisible))
	b.status("connected")
	b.shows("on-2")
}

// TestPageRunsNothingForeign: what the terminal shows, and what a link says,
// is text.
func TestPageRunsNothingForeign(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	if status := api(t, d.URL, "POST", "/v1/sandboxes", `{"id":"box"}`); status != http.StatusCreated {
		t.Fatalf("create: %d", status)
	}
	b := newBrowser(t)
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(`window.refused = []; document.addEventListener('securitypolicyviolation', (e) => refused.push(e.violatedDirective + ' ' + e.blockedURI))`).Do(ctx)
		return err
	}))
	b.do(chromedp.Navigate(d.URL + "/web?id=box&name=x%22%3E%3Cscript%3Ewindow.hit=1%3C/script%3E"))
	b.status("this cannot be the name of a terminal")
	b.do(chromedp.Navigate(d.URL + "/web?id=box&cmd=touch+/tmp/hit"))
	b.status("connected")
	b.typed("printf '<img src=x onerror=\"window.hit=1\">%s\\n' end-$((1+1))\r")
	b.Until("(" + screenText + ").includes('end-2')")
	if got := b.Get("String(window.hit)"); got != "undefined" {
		t.Errorf("a script ran: %s", got)
	}
	if got := b.Get("refused.join()"); got != "" {
		t.Errorf("the page's own policy refused %s", got)
	}
}
