//go:build root

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cubbyhq/cubby/internal/store/postgrestest"
	"github.com/cubbyhq/cubby/test/harness"
)

// TestScriptsOnPostgreSQL runs scripts of the API once more on the other
// database. What it keeps does not depend on what runs the sandboxes.
func TestScriptsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	postgrestest.New(t) // keeps the server for all scripts
	p := params([]string{"api", "isolation"}, func(env *testscript.Env) host {
		t := env.T().(testing.TB)
		return &fakeHost{t: t, database: postgrestest.New(t)}
	}, "fake", "container")
	p.Files = slices.DeleteFunc(p.Files, func(file string) bool { return !onPostgreSQL(file) })
	testscript.Run(t, p)
}

// askUntil repeats a request until its answer is as wanted.
func askUntil(t *testing.T, method, url, body string, want func(status int, text string) bool) string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		status, text := call(t, method, url, body)
		if want(status, text) {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s %s is still %d %s", method, url, status, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestPostgreSQLGoneAndBack kills the database server under a whole daemon: a
// sandbox and its commands go on, requests are refused and say so, nothing is
// reaped, and after the server's return everything is as if it had been there.
func TestPostgreSQLGoneAndBack(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	h := newReal(t, harness.Options{Database: server.NewDatabase(t)})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.stop() }) // it reports
	box := url + "/v1/sandboxes/a"
	for _, id := range []string{"a", "b"} {
		if status, text := call(t, "POST", url+"/v1/sandboxes", fmt.Sprintf(`{"id":%q,"isolation":"container"}`, id)); status != http.StatusCreated {
			t.Fatalf("create = %d %s", status, text)
		}
	}
	if status, text := call(t, "POST", url+"/v1/sandboxes/b/stop", ""); status != http.StatusOK {
		t.Fatalf("stop = %d %s", status, text)
	}
	// One ends while the server is away, one after its return.
	for _, cmd := range []string{
		`until [ -e away ]; do sleep 0.1; done; seq 10000; exit 3`, `until [ -e back ]; do sleep 0.1; done; echo late`,
	} {
		if status, text := call(t, "POST", box+"/exec", fmt.Sprintf(`{"cmd":%q,"wait":false}`, cmd)); status != http.StatusAccepted {
			t.Fatalf("exec = %d %s", status, text)
		}
	}
	askUntil(t, "GET", box+"/execs/2", "", func(_ int, text string) bool { return strings.Contains(text, `"status":"running"`) })
	askUntil(t, "GET", box+"/events", "", func(_ int, text string) bool { return strings.Count(text, `"status":"running"`) >= 2 })
	follow := followEvents(t, box)
	if status, text := call(t, "PUT", box+"/files?path=mark", "here"); status >= 300 {
		t.Fatalf("write a file = %d %s", status, text)
	}
	found, err := filepath.Glob(filepath.Join(h.Dir, "disks", "*", "*", "*", "mark"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the sandbox's disk: %q, %v", found, err)
	}
	workspace := filepath.Dir(found[0])

	server.Kill()
	for _, try := range []struct{ method, path, body string }{
		{"GET", "/v1/sandboxes", ""}, {"GET", "/v1/sandboxes/a", ""}, {"POST", "/v1/sandboxes", `{"id":"c"}`},
		{"POST", "/v1/sandboxes/a/exec", `{"cmd":"true"}`}, {"DELETE", "/v1/sandboxes/a", ""}, {"POST", "/v1/sandboxes/b/start", ""},
	} {
		status, text := call(t, try.method, url+try.path, try.body)
		if status != http.StatusServiceUnavailable || !strings.Contains(text, `"code":"unavailable"`) || !strings.Contains(text, `"retryable":true`) {
			t.Errorf("%s %s without a database = %d %s", try.method, try.path, status, text)
		}
	}
	if status, text := call(t, "GET", url+"/readyz", ""); status != http.StatusServiceUnavailable || !strings.Contains(text, "store") {
		t.Errorf("readyz = %d %s", status, text)
	}
	if status, _ := call(t, "GET", url+"/healthz", ""); status != http.StatusOK {
		t.Errorf("healthz = %d", status)
	}
	// There is no way into the sandbox but its disk.
	touch(t, workspace, "away")

	server.Restart(t)
	askUntil(t, "GET", url+"/readyz", "", func(status int, _ string) bool { return status == http.StatusOK })
	text := askUntil(t, "GET", box+"/execs/1?wait_seconds=60", "", func(status int, text string) bool {
		return status == http.StatusOK && strings.Contains(text, `"finished_at"`)
	})
	var x struct {
		Stdout   string `json:"stdout"`
		Reason   string `json:"reason"`
		ExitCode int    `json:"exit_code"`
	}
	if err := json.Unmarshal([]byte(text), &x); err != nil || x.Reason != "exited" || x.ExitCode != 3 || strings.Count(x.Stdout, "\n") != 10000 {
		t.Errorf("the command that ended meanwhile: %v, %d bytes, %s %d", err, len(x.Stdout), x.Reason, x.ExitCode)
	}
	touch(t, workspace, "back")
	askUntil(t, "GET", box+"/execs/2?wait_seconds=60", "", func(_ int, text string) bool {
		return strings.Contains(text, `late\n`) && strings.Contains(text, `"reason":"exited"`)
	})
	if status, text := call(t, "POST", url+"/v1/sandboxes/b/start", ""); status != http.StatusOK {
		t.Errorf("start = %d %s", status, text)
	}
	if status, text := call(t, "POST", url+"/v1/sandboxes/b/exec", `{"cmd":"echo works"}`); !strings.Contains(text, "works") {
		t.Errorf("exec = %d %s", status, text)
	}
	for _, id := range []string{"a", "b"} {
		if status, text := call(t, "DELETE", url+"/v1/sandboxes/"+id, ""); status != http.StatusNoContent {
			t.Errorf("destroy = %d %s", status, text)
		}
	}
	// A stream that waited all the time has seen the ends of both. The first
	// was tried again for a while, so it may come after the second.
	var ends []string
	for e := range follow {
		if e.kind == "exec.finished" {
			ends = append(ends, fmt.Sprint(e.seq))
		}
	}
	slices.Sort(ends)
	if got := strings.Join(ends, " "); got != "1 2" {
		t.Errorf("the stream of events had the ends of %q, want 1 2", got)
	}
}

func touch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

type followed struct {
	kind string
	seq  int64
}

// followEvents reads a stream of events to its end. It returns when the stream
// has begun.
func followEvents(t *testing.T, box string) <-chan followed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, box+"/events?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	all, begun := make(chan followed, 1000), make(chan struct{})
	go func() {
		defer cancel()
		defer close(all)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		first := true
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var e struct {
				Kind string `json:"kind"`
				Seq  int64  `json:"seq"`
			}
			if err := json.Unmarshal([]byte(data), &e); err == nil && e.Kind != "" {
				all <- followed{e.Kind, e.Seq}
			}
			if first {
				close(begun)
				first = false
			}
		}
		if first {
			close(begun)
		}
	}()
	<-begun
	return all
}
