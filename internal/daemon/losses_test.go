package daemon_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/errs"
)

const lossHeader = "Cubby-Restore-Incomplete"

// TestEveryActSaysThatAMemoryWasLost: whatever wakes a sandbox says in the header of
// its answer what is lost, and nothing when it woke whole or ran.
func TestEveryActSaysThatAMemoryWasLost(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	c := client.New(d.URL)
	box, err := c.Create(t.Context(), client.CreateOptions{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	send := func(t *testing.T, method, path, body string, header ...string) (lost, answer string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for _, name := range header {
			req.Header.Set(name, "x")
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(res.Body); err != nil || res.StatusCode >= 300 && res.StatusCode != http.StatusNotFound {
			t.Fatalf("%s %s = %d %s, %v", method, path, res.StatusCode, &b, err)
		}
		return res.Header.Get(lossHeader), b.String()
	}
	over := func(method, path, body string, header ...string) func(*testing.T) (string, string) {
		return func(t *testing.T) (string, string) { t.Helper(); return send(t, method, path, body, header...) }
	}
	const v1 = "/v1/sandboxes/a"
	acts := []struct {
		name  string
		field bool // the answer has it too
		act   func(*testing.T) (lost, answer string)
	}{
		{"exec", true, over("POST", v1+"/exec", `{"cmd":"true"}`)},
		{"exec that is not waited for", true, over("POST", v1+"/exec", `{"cmd":"true","wait":false}`)},
		{"exec as a stream", true, over("POST", v1+"/exec", `{"cmd":"true","stream":true}`)},
		{"exec of a session", true, over("POST", v1+"/exec", `{"cmd":"true","session":"s"}`)},
		{"file", false, over("PUT", v1+"/files?path=f", `x`)},
		{"listing of files", false, over("GET", v1+"/files?path=.", ``)},
		{"file that is not there", false, over("GET", v1+"/files/content?path=nothing", ``)},
		{"wake", false, over("POST", v1+"/wake", ``)},
		{"start", false, over("POST", v1+"/start", ``)},
		{"ecs exec", false, over("POST", "/sandbox/a/exec", `{"cmd":"true","sync":true}`)},
		{"ecs file", false, over("GET", "/sandbox/a/fs/list?path=.", ``)},
		{"sandboxed exec", false, over("POST", "/sandbox/a/exec", `{"cmd":["true"]}`)},
		{"sandboxed stream", false, over("POST", "/sandbox/a/exec", `{"cmd":["true"],"stream":true}`)},
		{"sandboxed wake", false, over("POST", "/wake/a", ``)},
		{"terminal", false, func(t *testing.T) (string, string) {
			t.Helper()
			conn, res, err := websocket.Dial(t.Context(), d.URL+v1+"/terminal?cmd=true", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.CloseNow()
			return res.Header.Get(lossHeader), ""
		}},
	}
	for _, a := range acts {
		t.Run(a.name, func(t *testing.T) {
			for _, tt := range []struct {
				name  string
				sleep bool
				fault error
			}{
				{"its memory is lost", true, errs.E(errs.NotFound, "the memory is damaged")},
				{"it runs", false, nil},
				{"it wakes whole", true, nil},
			} {
				if tt.sleep {
					if _, err := c.Sleep(t.Context(), box.ID, true); err != nil {
						t.Fatal(err)
					}
				}
				d.Faults.SetFail("Wake", tt.fault)
				lost, answer := a.act(t)
				if (lost != "") != (tt.fault != nil) || lost != "" && !strings.Contains(lost, "memory") {
					t.Errorf("%s: the header is %q", tt.name, lost)
				}
				said, err := json.Marshal(lost)
				if err != nil {
					t.Fatal(err)
				}
				if has := strings.Contains(answer, `"restore_incomplete":`+string(said)); a.field && has != (lost != "") {
					t.Errorf("%s: the answer is %s", tt.name, answer)
				}
			}
		})
	}
}

// TestLookingSaysNothingOfLosses: who asks about a sandbox that another woke is not
// told by the header, but by what the sandbox and the command say.
func TestLookingSaysNothingOfLosses(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	var told []string
	c := client.New(d.URL, client.WithRestoreNotice(func(id, lost string) { told = append(told, id+": "+lost) }))
	ctx := t.Context()
	if _, err := c.Create(ctx, client.CreateOptions{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sleep(ctx, "a", true); err != nil {
		t.Fatal(err)
	}
	d.Faults.SetFail("Wake", errs.E(errs.NotFound, "the memory is damaged"))
	p, err := c.StartExec(ctx, "a", client.Command("true"))
	if err != nil {
		t.Fatal(err)
	}
	x, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	box, err := c.Get(ctx, "a")
	if err != nil || !box.RestoreIncomplete {
		t.Errorf("the sandbox says %v, %v", box.RestoreIncomplete, err)
	}
	if next, err := c.Exec(ctx, "a", client.Command("true")); err != nil || next.RestoreIncomplete != "" {
		t.Errorf("the next command says %q, %v", next.RestoreIncomplete, err)
	}
	if len(told) != 1 || told[0] != "a: "+x.RestoreIncomplete || x.RestoreIncomplete != box.Reason {
		t.Errorf("told %q; the command says %q, the sandbox %q", told, x.RestoreIncomplete, box.Reason)
	}
}
