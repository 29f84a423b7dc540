//go:build root && long

package e2e_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/store/postgrestest"
	"github.com/cubbyhq/cubby/test/harness"
)

// earlierData is the last commit whose daemon kept why a sandbox rests in words
// alone, and named no driver and no volumes in what it kept of a run.
const earlierData = "4b2d337c4a01246a1728a74932654b92cbc41a21"

// TestDataOfAnEarlierDaemonIsTakenOver makes sandboxes in every state with the
// program of another commit, kills it, and goes on with this one.
func TestDataOfAnEarlierDaemonIsTakenOver(t *testing.T) {
	earlier := buildCommit(t, earlierData)
	for _, database := range []struct {
		name string
		url  func(testing.TB) string
	}{
		{"SQLite", func(testing.TB) string { return "" }},
		{"PostgreSQL", postgrestest.New},
	} {
		t.Run(database.name, func(t *testing.T) {
			h := newReal(t, harness.Options{Program: earlier, Database: database.url(t)})
			url, err := h.start(nil)
			if err != nil {
				t.Fatal(err)
			}
			var all []inherited
			for _, isolation := range []string{sdk.GVisor, sdk.Container} {
				all = append(all, bequeath(t, h, url, isolation))
			}
			if err := h.kill(); err != nil {
				t.Fatal(err)
			}

			h.Program = harness.Program(t)
			if url, err = h.start(nil); err != nil {
				t.Fatal(err)
			}
			for _, i := range all {
				t.Run(i.isolation, func(t *testing.T) { i.check(t, url) })
			}
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// inherited are the sandboxes of one isolation that a daemon left, whose ids are
// what became of them and the isolation.
type inherited struct {
	isolation string
	lasting   int64 // the command that runs in the one that runs
	found     map[string]sdk.Sandbox
}

func (i inherited) id(what string) string { return what + "-" + i.isolation }

// bequeath makes a sandbox in every state.
func bequeath(t *testing.T, h realHost, url, isolation string) inherited {
	t.Helper()
	c, ctx := clientOf(url), t.Context()
	i := inherited{isolation: isolation, found: make(map[string]sdk.Sandbox)}
	create := func(o sdk.CreateOptions) {
		t.Helper()
		o.ID, o.Isolation = i.id(o.ID), isolation
		if _, err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Exec(ctx, o.ID, sdk.Shell("echo precious > file; echo said")); err != nil {
			t.Fatal(err)
		}
	}
	soon := 1.0
	create(sdk.CreateOptions{ID: "idle", IdleTimeoutSeconds: &soon, IdlePolicy: "stop"})
	create(sdk.CreateOptions{ID: "stopped"})
	if _, err := c.Stop(ctx, i.id("stopped"), 0); err != nil {
		t.Fatal(err)
	}

	runs := filepath.Join(h.Dir, "run/oci/*/run.json")
	others := make(map[string]bool)
	for _, record := range matching(t, runs) {
		others[record] = true
	}
	create(sdk.CreateOptions{ID: "died"})
	for _, record := range matching(t, runs) {
		if !others[record] {
			victim{url: url, record: record}.signal(t, syscall.SIGKILL)
		}
	}

	if _, err := c.Create(ctx, sdk.CreateOptions{
		ID: i.id("failed"), Isolation: isolation, Network: &sdk.Network{Mode: "allowlist", Allow: []string{"example.org"}}, Dependencies: map[string]string{"no-such-package-at-all": ""},
	}); err == nil {
		t.Fatal("a sandbox was made with a package that does not exist")
	}

	kept := fmt.Sprintf(`{"id":%q,"isolation":%q,"external":{"user_id":"u1"}}`, i.id("kept"), isolation)
	must(t, http.StatusCreated, "POST", url+"/sandbox", kept)
	must(t, http.StatusOK, "POST", url+"/v1/sandboxes/"+i.id("kept")+"/exec", `{"cmd":"echo precious > /workspace/file"}`)
	if status, text := call(t, "DELETE", url+"/sandbox/"+i.id("kept"), ""); status >= 300 {
		t.Fatalf("destroy and keep the disk: %d %s", status, text)
	}

	create(sdk.CreateOptions{ID: "running"})
	runCells(t, c, i.id("running"), "python", []cell{{code: "kept = 41"}})
	lasting, err := c.StartExec(ctx, i.id("running"), sdk.Shell("n=0; while [ ! -e /workspace/go ]; do n=$((n+1)); echo $n; sleep 0.02; done; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	i.lasting = lasting.Seq

	for what, status := range map[string]sdk.Status{"idle": sdk.Stopped, "died": sdk.Stopped, "stopped": sdk.Stopped, "failed": sdk.Failed} {
		eventually(t, time.Minute, i.id(what)+" is "+string(status), func() bool {
			b, err := c.Get(ctx, i.id(what))
			i.found[what] = b
			return err == nil && b.Status == status
		})
	}
	return i
}

func matching(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// check looks whether everything is as it was.
func (i inherited) check(t *testing.T, url string) {
	c, ctx := clientOf(url), t.Context()
	for what, before := range i.found {
		b, err := c.Get(ctx, i.id(what))
		if err != nil || b.Status != before.Status || b.Reason != before.Reason {
			t.Errorf("%s, %v; it was %s", b, err, before)
		}
	}
	if died := i.found["died"]; !strings.HasPrefix(died.Reason, "CONTAINER_DIED: it was killed by SIGKILL") {
		t.Errorf("the dead one was %s", died)
	}
	if failed := i.found["failed"]; !strings.Contains(failed.Reason, "no-such-package-at-all") {
		t.Errorf("the failed one was %s", failed)
	}
	if status, text := call(t, "POST", url+"/v1/sandboxes/"+i.id("died")+"/exec", `{"cmd":"true"}`); status != http.StatusConflict || !strings.Contains(text, "CONTAINER_DIED") {
		t.Errorf("a command in the dead one: %d %s", status, text)
	}
	for _, what := range []string{"stopped", "idle", "died"} {
		if e, err := c.Process(i.id(what), 1).Wait(ctx); err != nil || e.Stdout != "said\n" {
			t.Errorf("%s: what it printed: %+v, %v", what, e, err)
		}
		if _, err := c.Start(ctx, i.id(what)); err != nil {
			t.Fatal(err)
		}
		if e, err := c.Exec(ctx, i.id(what), sdk.Shell("cat file")); err != nil || e.Stdout != "precious\n" {
			t.Errorf("%s: its file: %+v, %v", what, e, err)
		}
	}

	kept := fmt.Sprintf(`{"id":%q,"isolation":%q,"external":{"user_id":"u2"}}`, i.id("kept"), i.isolation)
	must(t, http.StatusConflict, "POST", url+"/sandbox", kept)
	must(t, http.StatusCreated, "POST", url+"/sandbox", strings.Replace(kept, "u2", "u1", 1))
	if e, err := c.Exec(ctx, i.id("kept"), sdk.Shell("cat /workspace/file")); err != nil || e.Stdout != "precious\n" {
		t.Errorf("the file on the disk that was kept: %+v, %v", e, err)
	}

	running := i.id("running")
	if b, err := c.Get(ctx, running); err != nil || b.Status != sdk.Running {
		t.Errorf("%s, %v", b, err)
	}
	runCells(t, c, running, "python", []cell{{code: "kept + 1", result: "42"}})
	if _, err := c.Files(running).Write(ctx, "/workspace/go", strings.NewReader("x"), sdk.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	ended, err := c.Process(running, i.lasting).Wait(ctx)
	if err != nil || ended.ExitCode == nil || *ended.ExitCode != 3 {
		t.Errorf("the command that went on: %+v, %v", ended, err)
	}
	n := 0
	for line := range strings.Lines(ended.Stdout) {
		if n++; line != fmt.Sprintln(n) {
			t.Fatalf("line %d of the command that went on is %q", n, line)
		}
	}
	if n == 0 {
		t.Error("the command that went on printed nothing")
	}
}
