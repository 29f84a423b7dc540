//go:build root

package e2e_test

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/browsertest"
	"github.com/cubbyhq/cubby/test/harness"
)

// app is an app of testdata/apps in a sandbox, with a server that runs in the
// background.
type app struct {
	t       *testing.T
	c       *sdk.Client
	id      string
	port    int
	address string // of its preview
}

// appPackages returns the path of a tar with the packages of an app.
func appPackages(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("../../scripts/app-packages.sh", name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("fetch the packages of %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// newApp makes a sandbox with an app, whose preview everybody may see.
func newApp(t *testing.T, c *sdk.Client, isolation, name, packages string, port int) *app {
	t.Helper()
	ctx := t.Context()
	id := name + "-" + isolation
	_, err := c.Create(ctx, sdk.CreateOptions{
		ID: id, Isolation: isolation, Ports: []int{port}, Visibility: "public", Limits: &sdk.Limits{MemoryBytes: 3 << 30, CPUs: 2, DiskBytes: 4 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &app{t: t, c: c, id: id, port: port}
	t.Cleanup(func() {
		if t.Failed() {
			log, err := c.Files(id).Read(context.Background(), fmt.Sprintf("/tmp/log-%d", port))
			t.Logf("what its server printed: %s, %v", log, err)
		}
	})
	if a.address, err = c.PortURL(ctx, id, port); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(packages)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.Files(id).Extract(ctx, "app", f); err != nil {
		t.Fatal(err)
	}
	sources, out := io.Pipe()
	go func() {
		w := tar.NewWriter(out)
		err := w.AddFS(os.DirFS("testdata/apps/" + name))
		if err == nil {
			err = w.Close()
		}
		out.CloseWithError(err)
	}()
	if err := c.Files(id).Extract(ctx, "app", sources); err != nil {
		t.Fatal(err)
	}
	return a
}

// sh runs a line of shell in the app's directory and returns what it printed.
func (a *app) sh(line string) string {
	a.t.Helper()
	o := sdk.Shell(line)
	o.Cwd = "/workspace/app"
	e, err := a.c.Exec(a.t.Context(), a.id, o)
	if err != nil || e.Err() != nil {
		a.t.Fatalf("%s: %v, %v: %s%s", line, err, e.Err(), e.Stdout, e.Stderr)
	}
	return e.Stdout
}

// serve starts a server and returns when it listens.
func (a *app) serve(line string) {
	a.t.Helper()
	a.sh(fmt.Sprintf(`%s > /tmp/log-%[2]d 2>&1 &
pid=$!
until python3 -c 'import socket; socket.create_connection(("localhost", %[2]d))' 2> /dev/null; do
  kill -0 $pid || { cat /tmp/log-%[2]d; exit 1; }
  sleep 0.2
done`, line, a.port))
}

// replace changes a text in a file of the app.
func (a *app) replace(file, old, text string) {
	a.t.Helper()
	ctx := a.t.Context()
	was, err := a.c.Files(a.id).Read(ctx, "app/"+file)
	if err != nil || !strings.Contains(string(was), old) {
		a.t.Fatalf("%s has no %q: %s, %v", file, old, was, err)
	}
	if _, err := a.c.Files(a.id).Write(ctx, "app/"+file, strings.NewReader(strings.Replace(string(was), old, text, 1)), sdk.WriteOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

func shows(text string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", text) }

// TestViteInABrowser uses a development server of Vite as it is in a real browser:
// changes of code, style and errors reach the page without a reload, and the page
// finds back after a sleep of the sandbox.
func TestViteInABrowser(t *testing.T) {
	t.Parallel()
	packages := appPackages(t, "vite")
	h := newReal(t, harness.Options{})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(url)
	b := browsertest.New(t)
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			a := newApp(t, c, isolation, "vite", packages, 5173)
			a.serve("npm run dev")
			b := b.Visitor(t)
			b.Open(a.address)
			b.Until(shows("Hello from Vite"))
			b.Picture("vite-" + isolation + "-1-before")
			b.Run("window.same = 1")
			for range 3 {
				b.Do(chromedp.Click("button"))
			}
			b.Until(shows("count is 3"))

			a.replace("src/App.jsx", "Hello from Vite", "Changed by an agent")
			b.Until(shows("Changed by an agent"))
			a.replace("src/style.css", "rgb(10, 20, 30)", "rgb(200, 20, 30)")
			b.Until("getComputedStyle(document.querySelector('h1')).color === 'rgb(200, 20, 30)'")
			b.Until("window.same === 1 && " + shows("count is 3"))
			b.Picture("vite-" + isolation + "-2-after")

			a.replace("src/App.jsx", "<main>", "<main")
			b.Until("document.querySelector('vite-error-overlay')?.shadowRoot.textContent.includes('App.jsx')")
			b.Picture("vite-" + isolation + "-3-overlay")
			a.replace("src/App.jsx", "<main", "<main>")
			b.Until("!document.querySelector('vite-error-overlay') && " + shows("Changed by an agent"))

			// The page asks for its server, which wakes the sandbox. What has memory
			// goes on; a container begins anew.
			slept, err := c.Sleep(t.Context(), a.id, true)
			if err != nil || slept.Status == sdk.Running {
				t.Fatalf("Sleep = %v, %v", slept, err)
			}
			if isolation == "container" {
				a.serve("npm run dev")
			}
			b.Until("window.same === undefined && " + shows("count is 0"))
			b.Run("window.same = 2")
			a.replace("src/App.jsx", "Changed by an agent", "Changed after a sleep")
			b.Until(shows("Changed after a sleep"))
			b.Until("window.same === 2") // it has not loaded anew

			// Somebody opens the page of a sandbox that sleeps.
			b.Open("about:blank")
			if slept, err = c.Sleep(t.Context(), a.id, true); err != nil || slept.Status == sdk.Running {
				t.Fatalf("Sleep = %v, %v", slept, err)
			}
			b.Open(a.address)
			if isolation == "container" {
				b.Until("document.title === 'Nothing is here yet'")
				a.serve("npm run dev")
			}
			b.Until(shows("Changed after a sleep"))
		})
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
