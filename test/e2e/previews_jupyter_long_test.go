//go:build root && long

package e2e_test

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/browsertest"
	"github.com/cubbyhq/cubby/test/harness"
)

// TestJupyterInABrowser uses JupyterLab as it is: its page, a kernel that the page
// starts, and a cell whose output comes through its WebSocket.
func TestJupyterInABrowser(t *testing.T) {
	t.Parallel()
	packages := appPackages(t, "jupyter")
	h := newReal(t, harness.Options{})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(url)
	b := browsertest.New(t)
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			a := newApp(t, c, isolation, "jupyter", packages, 8888)
			a.sh("pip install --quiet --no-index --find-links wheels --requirement requirements.txt")
			a.serve("jupyter lab --no-browser")
			b := b.Visitor(t)
			b.Open(a.address)
			// Its own token is asked for; the door does not know it.
			b.Until(`location.pathname === '/login' && !!document.querySelector('input[name=password]')`)
			b.Picture("jupyter-" + isolation + "-1-login")
			token := a.sh(`grep -o 'token=[0-9a-f]*' /tmp/log-8888 | head -1 | cut -d= -f2 | tr -d '\n'`)
			b.Do(chromedp.SetValue("input[name=password]", token), chromedp.Click("#login_submit"))
			b.Until("location.pathname === '/lab' && !!document.querySelector('.jp-LauncherCard')")
			b.Picture("jupyter-" + isolation + "-2-launcher")

			b.Do(chromedp.Click(`.jp-LauncherCard[data-category="Notebook"]`))
			b.Until(shows("Python 3 (ipykernel) | Idle"))
			b.Do(chromedp.Click(".jp-Notebook .jp-CodeCell .cm-content"), input.InsertText("import os; print('sum', sum(range(101)), os.uname().nodename)"))
			b.Until("document.querySelector('.jp-Notebook .jp-CodeCell .cm-content').innerText.startsWith('import os;')")
			b.Do(chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(2))) // with the key that runs a cell
			b.Until("document.querySelector('.jp-OutputArea-output')?.innerText.trim() === 'sum 5050 " + a.id + "'")
			b.Picture("jupyter-" + isolation + "-3-output")

			// Pages of another port have its cookie sent, and are refused by Jupyter
			// itself for their origin.
			socket := `return new Promise((done) => {
				const socket = new WebSocket('` + strings.Replace(a.address, "http", "ws", 1) + `api/events/subscribe');
				socket.onopen = () => done('opened');
				socket.onerror = () => done('refused');
			})`
			if got := b.Run(socket); got != "opened" {
				t.Errorf("a WebSocket of its own page is %s", got)
			}
			if _, err := c.Update(t.Context(), a.id, sdk.Patch{Ports: []int{8888, 8889}}); err != nil {
				t.Fatal(err)
			}
			other := *a
			other.port = 8889
			other.serve("python3 -m http.server 8889")
			b.Open(strings.Replace(a.address, "-8888.", "-8889.", 1))
			b.Until(shows("Directory listing"))
			if got := b.Run(socket); got != "refused" {
				t.Errorf("a WebSocket of another page is %s", got)
			}
			a.sh("grep 'Blocking Cross Origin' /tmp/log-8888")
		})
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
