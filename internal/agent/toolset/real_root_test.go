//go:build root

package toolset_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"image"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/agent/toolset"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/driver/oci"
	"github.com/cubbyhq/cubby/internal/front/displays"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	images "github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
	"github.com/cubbyhq/cubby/internal/tools"
)

// realWorld is a world with gVisor and the images of the host.
func realWorld(t *testing.T, edit ...func(*core.Config)) *world {
	t.Helper()
	store, err := images.Open(os.Getenv("CUBBY_TEST_IMAGE_DIR"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("%v: run make test, or build the image base and name its directory by CUBBY_TEST_IMAGE_DIR", err)
	}
	dir := t.TempDir()
	d, err := oci.New(oci.Config{
		StateDir: filepath.Join(dir, "run"), RuntimesDir: filepath.Join(dir, "runtimes"), DiskReserve: 1,
		CgroupParent: "cubby-test-" + strings.ToLower(rand.Text()[:8]), Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return startWorld(t, d, store, edit...)
}

// TestOneConversationMore: one that cannot keep its memory is stopped, as idle ones are.
func TestOneConversationMore(t *testing.T) {
	for isolation, rests := range map[sandbox.Isolation]sandbox.State{sandbox.GVisor: sandbox.Sleeping, sandbox.Container: sandbox.Stopped} {
		t.Run(string(isolation), func(t *testing.T) {
			w := realWorld(t, func(c *core.Config) {
				c.Sandboxes.Caps.InThreads, c.Sandboxes.Defaults.Isolation = 2, isolation
			})
			end := w.turn("0")
			w.thread("0").good("execute_code", object{"code": "kept = 41"})
			end()
			testOneConversationMore(t, w, 2, rests)
			out, _ := w.thread("0").call("execute_code", object{"code": "kept + 1"})
			if result, _ := out["result"].(map[string]any); isolation == sandbox.GVisor && result["text/plain"] != "42" {
				t.Errorf("after the wake: %v", out)
			}
		})
	}
}

// What models do in real sandboxes, with real kernels.
func TestToolsInGVisor(t *testing.T) {
	w := realWorld(t)
	c := w.thread("a")
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			if out, r := c.call("execute_code", object{"code": "n = globals().get('n', 0) + 1\nn"}); r.Failed {
				t.Error(out)
			}
		})
	}
	calls.Wait()
	ids := w.sessions("a")
	if out := c.good("execute_code", object{"code": "n"}); len(ids) != 1 || out["result"].(map[string]any)["text/plain"] != "4" {
		t.Fatalf("%q, %v", ids, out)
	}
	own := ids[0]

	t.Run("plots are seen and shown", func(t *testing.T) {
		out, r := c.call("execute_code", object{"code": `
import matplotlib.pyplot as plt
from IPython.display import HTML, Image, display
plt.plot([1, 2, 3]); plt.show()
display(HTML('<b>small</b>'))
display(HTML('<b>' + 'x' * 20000 + '</b>'))
display(Image(data=b'\x89PNG\r\n\x1a\nbroken', format='png'))
`})
		a := artifactOf(t, r)
		if r.Failed || len(a.Displays) != 4 || len(r.Images) != 1 {
			t.Fatalf("%d images, %s, %s", len(r.Images), r.Artifact, r.Content)
		}
		if _, kind, err := image.Decode(bytes.NewReader(r.Images[0].Data)); err != nil || kind != "png" {
			t.Errorf("the plot is %s, %v", kind, err)
		}
		want := []any{"[image/png image displayed to user]", "[text/html output displayed to user]", "[text/html output displayed to user]", "[image/png image displayed to user]"}
		if got, _ := out["display_outputs_summary"].([]any); !slices.Equal(got, want) || out["display_outputs"] != nil {
			t.Errorf("the model reads %s", r.Content)
		}
		for i, d := range a.Displays {
			if !strings.HasPrefix(d.URL, "http://api.test/v1/sandboxes/"+own+"/execs/") || !strings.HasSuffix(d.URL, "/displays/"+string(rune('0'+i))) {
				t.Errorf("display %d is at %s", i, d.URL)
			}
			if (d.Data != "") != (i == 1) {
				t.Errorf("display %d comes with %.20q", i, d.Data)
			}
		}

		// What clients get there.
		api := httpapi.New(httpapi.Config{Core: w.Service, Log: slog.New(slog.DiscardHandler), Metrics: telemetry.NewMetrics("test")}, displays.Register)
		get := func(who auth.Principal, url string) *httptest.ResponseRecorder {
			res := httptest.NewRecorder()
			req := httptest.NewRequestWithContext(auth.WithPrincipal(w.ctx, who), http.MethodGet, strings.TrimPrefix(url, "http://api.test"), nil)
			api.ServeHTTP(res, req)
			return res
		}
		for i, want := range []string{"image/png", "text/html; charset=utf-8", "text/html; charset=utf-8", "image/png"} {
			res := get(me, a.Displays[i].URL)
			if res.Code != http.StatusOK || res.Header().Get("Content-Type") != want || !strings.Contains(res.Header().Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("display %d is %d %v", i, res.Code, res.Header())
			}
			if i == 0 && !bytes.HasPrefix(res.Body.Bytes(), []byte("\x89PNG")) || i == 1 && res.Body.String() != "<b>small</b>" || i == 2 && res.Body.Len() != 20_007 {
				t.Errorf("display %d is %.40q", i, res.Body)
			}
			if res := get(auth.Principal{Name: "x", Tenant: "others"}, a.Displays[i].URL); res.Code != http.StatusNotFound {
				t.Errorf("another tenant gets %d", res.Code)
			}
		}
		for _, url := range []string{tools.DisplayPath(own, a.Exec, 4), tools.DisplayPath(own, a.Exec+100, 0), tools.DisplayPath("none", 1, 0)} {
			if res := get(me, url); res.Code != http.StatusNotFound {
				t.Errorf("%s is %d %s", url, res.Code, res.Body)
			}
		}
		if res := get(me, "/v1/sandboxes/"+own+"/execs/x/displays/0"); res.Code != http.StatusBadRequest {
			t.Errorf("no number is %d %s", res.Code, res.Body)
		}
	})

	t.Run("much output", func(t *testing.T) {
		out := c.good("execute_code", object{"code": "import sys\nprint('x' * 10_000_000)\nprint('FAILED')\nprint('y' * 100_000, file=sys.stderr)"})
		for stream, want := range map[string][2]string{
			"stdout": {"10000008 chars total, showing first 25000 and last 25000]", "x\nFAILED\n"},
			"stderr": {"100001 chars total, showing first 10000 and last 10000]", "y\n"},
		} {
			if got := out[stream].(string); !strings.Contains(got, want[0]) || !strings.HasSuffix(got, want[1]) || strings.Count(got, "truncated") != 1 {
				t.Errorf("%s ends with %q", stream, got[max(0, len(got)-100):])
			}
		}
	})

	t.Run("searches with ripgrep", func(t *testing.T) {
		c.good("execute_terminal", object{"command": "git init -q . && mkdir -p src .git/x out && echo 'def find_me():' > src/m.py && cp src/m.py out/ && cp src/m.py .git/x/ && echo out > .gitignore"})
		out := c.good("search_files", object{"pattern": `def\s+find_\w+`})
		if m := out["matches"].([]any); len(m) != 1 || m[0].(map[string]any)["path"] != "/workspace/src/m.py" {
			t.Errorf("found %v", out)
		}
		c.bad("search_files", object{"pattern": "("}, "regex parse error")
		c.good("edit_file", object{"path": "src/m.py", "old_string": "find_me", "new_string": "found"})
		if out := c.good("execute_terminal", object{"command": "cat src/m.py; ls -a src"}); !strings.HasPrefix(out["stdout"].(string), "def found():\n.\n..\nm.py\n") {
			t.Errorf("after the edit: %v", out)
		}
	})

	t.Run("output comes live", func(t *testing.T) {
		var mu sync.Mutex
		told, asked := "", false
		_, r := c.do(w.ctx, "execute_code", object{"code": "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('last')"}, func(session, stream, text string) {
			mu.Lock()
			defer mu.Unlock()
			told += stream + " " + text
			if session != own {
				t.Errorf("it is told of %q", session)
			}
			if !asked {
				asked = true
				go c.call("write_file", object{"path": "go", "content": ""})
			}
		})
		if r.Failed || told != "stdout first\nstdout last\n" {
			t.Errorf("told %q, %s", told, r.Content)
		}
	})

	t.Run("a call that is given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(w.ctx)
		out, r := c.do(ctx, "execute_code", object{"code": "m = 1\nprint('began', flush=True)\nimport time; time.sleep(1000)", "timeout": 300}, func(string, string, string) { cancel() })
		if !r.Failed || out["stdout"] != "began\n" || out["error"] == nil {
			t.Errorf("it was %s", r.Content)
		}
		if out := c.good("execute_code", object{"code": "m"}); out["success"] != true {
			t.Errorf("after it: %v", out)
		}
	})

	t.Run("languages", func(t *testing.T) {
		if out := c.good("execute_code", object{"code": "[1,2].map(x => x + 1)", "language": "node"}); !strings.Contains(out["result"].(map[string]any)["text/plain"].(string), "2") {
			t.Errorf("node: %v", out)
		}
		if out := c.good("execute_code", object{"code": "sum(c(1, 2))", "language": "r"}); !strings.Contains(out["result"].(map[string]any)["text/plain"].(string), "3") {
			t.Errorf("R: %v", out)
		}
		if ids := w.sessions("a"); len(ids) != 3 {
			t.Errorf("there are %q", ids)
		}
		c.bad("create_session", object{}, "stop_session")
		text, err := w.Thread(auth.Principal{Name: "me", Tenant: "mine"}, "a", toolset.Options{}).Environment(w.ctx)
		if err != nil || !strings.Contains(text, "in it: Python, JavaScript (Node.js).") || !strings.Contains(text, `R runs in a session of its own (language "r")`) {
			t.Errorf("%v\n%s", err, text)
		}
	})

	t.Run("nothing of the daemon's environment", func(t *testing.T) {
		t.Setenv("OPENAI_API_KEY", "sk-secret")
		if out := c.good("execute_terminal", object{"command": "env; cat /proc/*/environ | tr '\\0' '\\n'"}); strings.Contains(out["stdout"].(string), "sk-secret") {
			t.Errorf("the sandbox knows %v", out["stdout"])
		}
	})
}
