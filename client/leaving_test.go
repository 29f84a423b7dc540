package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/task"
)

// TestExecLeft: what becomes of a command whose caller leaves, at every moment.
func TestExecLeft(t *testing.T) {
	for _, tt := range []struct {
		name  string
		when  string // the request during which the context ends
		kill  bool
		wants []string
	}{
		{"while it starts", "POST exec", true, []string{"POST exec", "POST execs/1/cancel"}},
		{"while it runs", "GET execs/1", true, []string{"POST exec", "GET execs/1", "POST execs/1/cancel"}},
		{"while it runs, unasked", "GET execs/1", false, []string{"POST exec", "GET execs/1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var asked []string
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				what := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/a/")
				asked = append(asked, what)
				if what == tt.when {
					cancel()
					if what != "POST exec" {
						<-r.Context().Done()
						return
					}
				}
				answer(w, 200, `{"seq":1,"status":"running"}`)
			})
			o := client.Shell("sleep 600")
			o.KillOnCancel = tt.kill
			if _, err := c.Exec(ctx, "a", o); !errors.Is(err, client.Canceled) {
				t.Errorf("Exec = %v, want canceled", err)
			}
			if diff := cmp.Diff(tt.wants, asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExecWriters: what is printed comes while the command runs, and a writer
// that fails ends the command where that was asked for.
func TestExecWriters(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/a/")
		asked = append(asked, what)
		switch what {
		case "POST exec":
			answer(w, 202, `{"seq":1,"status":"running"}`)
		case "GET execs/1/stream":
			sse(w, 2, "stdout", outputEvent(0, "ab"))
			sse(w, 4, "stderr", outputEvent(2, "cd"))
			sse(w, 4, "exit", `{"seq":1,"status":"done","exit_code":0,"reason":"exited"}`)
		default:
			answer(w, 200, `{"seq":1,"status":"done","exit_code":0,"reason":"exited","stdout":"ab","stderr":"cd"}`)
		}
	})
	var stdout, stderr strings.Builder
	o := client.Shell("x")
	o.Stdout, o.Stderr = &stdout, &stderr
	e, err := c.Exec(t.Context(), "a", o)
	if err != nil || stdout.String() != "ab" || stderr.String() != "cd" || e.Stdout != "ab" || e.Err() != nil {
		t.Errorf("Exec = %v, %v; heard %q and %q", e, err, stdout.String(), stderr.String())
	}
	asked = nil
	full := errors.New("full")
	o.Stdout, o.KillOnCancel = failing{full}, true
	if _, err := c.Exec(t.Context(), "a", o); !errors.Is(err, full) {
		t.Errorf("Exec = %v, want the writer's error", err)
	}
	if diff := cmp.Diff([]string{"POST exec", "GET execs/1/stream", "POST execs/1/cancel"}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestRunCodeWriters: what a cell prints and shows comes while it runs, and what
// ends the call ends the cell where that was asked for.
func TestRunCodeWriters(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/a/")
		asked = append(asked, what)
		switch what {
		case "POST code":
			answer(w, 202, `{"seq":1,"status":"running"}`)
		case "GET execs/1/stream":
			sse(w, 2, "stdout", outputEvent(0, "ab"))
			sse(w, 4, "stderr", outputEvent(2, "cd"))
			sse(w, 20, "rich", `{"display":{"data":{"text/plain":"d"}}}`)
			sse(w, 20, "exit", `{"seq":1,"status":"done","exit_code":0,"reason":"exited"}`)
		default:
			answer(w, 200, `{"seq":1,"status":"done","success":true,"stdout":"ab","stderr":"cd"}`)
		}
	})
	var stdout, stderr, shown strings.Builder
	r := client.CodeRequest{Code: "x", Stdout: &stdout, Stderr: &stderr, Shown: func(o client.CodeOutput) error {
		shown.WriteString(o.Display.Data.Text())
		return nil
	}}
	e, err := c.RunCode(t.Context(), "a", r)
	if err != nil || stdout.String() != "ab" || stderr.String() != "cd" || shown.String() != "d" || e.Stdout != "ab" || e.Err() != nil {
		t.Errorf("RunCode = %v, %v; heard %q, %q and %q", e, err, stdout.String(), stderr.String(), shown.String())
	}
	full := errors.New("full")
	for name, r := range map[string]client.CodeRequest{
		"stdout": {Code: "x", Stdout: failing{full}, KillOnCancel: true},
		"stderr": {Code: "x", Stderr: failing{full}, KillOnCancel: true},
		"shown":  {Code: "x", Shown: func(client.CodeOutput) error { return full }, KillOnCancel: true},
	} {
		asked = nil
		if _, err := c.RunCode(t.Context(), "a", r); !errors.Is(err, full) {
			t.Errorf("%s: RunCode = %v, want the error of who hears", name, err)
		}
		if diff := cmp.Diff([]string{"POST code", "GET execs/1/stream", "POST execs/1/cancel"}, asked); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
	}
	asked = nil
	ctx, cancel := context.WithCancel(t.Context())
	r = client.CodeRequest{Code: "x", KillOnCancel: true, Shown: func(client.CodeOutput) error { cancel(); return ctx.Err() }}
	if _, err := c.RunCode(ctx, "a", r); !errors.Is(err, context.Canceled) || asked[len(asked)-1] != "POST execs/1/cancel" {
		t.Errorf("RunCode = %v after %v, want canceled and a cancel", err, asked)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestShortTexts: what is logged stays short, however much there is.
func TestShortTexts(t *testing.T) {
	code := 2
	e := client.Exec{
		Seq: 7, Status: client.ExecDone, Cmd: client.Cmd{Argv: []string{"make", "a b", "it's"}}, ExitCode: &code, Reason: "exited",
		Stdout: strings.Repeat("o", 1<<20), Stderr: strings.Repeat("line\n", 1000) + "last\n",
	}
	if got, want := e.String(), `exec 7: exit code 2: make 'a b' 'it'"'"'s'`; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
	if got := fmt.Sprint(e.Err()); !strings.HasPrefix(got, "exit code 2: make") || !strings.HasSuffix(got, "line\nlast") || len(got) > 2300 {
		t.Errorf("Err() = %s", got)
	}
	e.Cmd = client.Cmd{Shell: strings.Repeat("echo é\n", 1000)}
	if got := e.String(); len([]rune(got)) > 150 || strings.Contains(got, "\n") {
		t.Errorf("String() = %q", got)
	}
	box := client.Sandbox{ID: "a", Status: client.Failed, Reason: "oom", Labels: map[string]string{"x": strings.Repeat("y", 1000)}}
	if got := fmt.Sprint(box); got != "sandbox a: failed (oom)" {
		t.Errorf("String() = %s", got)
	}
}

// TestShortTextsOfLargeThings: so does everything else that can be large, also with
// every verb that is used for logs.
func TestShortTextsOfLargeThings(t *testing.T) {
	long := strings.Repeat("é\n", 100<<10)
	raw, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	plot := client.Bundle{"image/png": raw, "text/plain": raw}
	many := client.Bundle{}
	for i := range 1000 {
		many[fmt.Sprintf("text/x-%d-%s", i, long[:100])] = raw
	}
	size := fmt.Sprint(len(raw))
	cell := client.Execution{Seq: 3, Status: client.ExecDone, Success: true, Stdout: long, Stderr: long, Result: plot, Outputs: []client.Display{{Data: plot, Metadata: raw}}}
	failed := cell
	failed.Success, failed.Error = false, &client.CodeError{Type: "E", Message: long, Traceback: long}
	ended := client.Exec{Seq: 7, Status: client.ExecError, Message: "it was killed", Stdout: long}
	for _, tt := range []struct {
		value any
		want  string // its beginning
	}{
		{cell, "cell 3: done"}, {&cell, "cell 3: done"}, {failed, "cell 3: E: é é "},
		{client.Execution{Seq: 3, Status: client.ExecRunning}, "cell 3: running"},
		{client.Execution{Seq: 3, Status: client.ExecError, Reason: "timeout"}, "cell 3: the cell was ended: timeout"},
		{plot, "image/png (" + size + " bytes), text/plain (" + size + " bytes)"}, {many, "text/x-0-é"}, {client.Bundle(nil), ""},
		{client.Display{Data: plot, Metadata: raw}, "image/png ("},
		{client.CodeOutput{Stream: "stdout", Text: long}, fmt.Sprintf("stdout: %d bytes", len(long))},
		{client.CodeOutput{Display: &client.Display{Data: plot}}, "display: image/png ("}, {client.CodeOutput{Result: plot}, "result: image/png ("},
		{client.CodeOutput{Error: failed.Error}, "error: E: é"}, {client.CodeOutput{Input: &client.InputRequest{Prompt: long}}, "input: é"},
		{client.CodeOutput{Kernel: &client.KernelNotice{Reason: "oom"}}, "kernel: oom"}, {client.CodeOutput{Clear: &client.ClearOutput{}}, "clear"},
		{client.CodeOutput{Done: &cell}, "cell 3: done"},
		{client.CodeInspection{Found: true, Data: map[string]string{"text/plain": long}}, fmt.Sprintf("known, in %d bytes", len(long))},
		{client.Output{Stream: "stderr", Data: []byte(long)}, fmt.Sprintf("stderr: %d bytes", len(long))}, {client.Output{Exit: &ended}, "exec 7: it was killed"},
		{client.Event{Cursor: 9, Kind: "exec.finished", Seq: 2, Status: client.ExecDone, Payload: raw, Result: raw}, "event 9: exec.finished 2: done"},
		{client.GitChanges{Files: make([]client.GitFileDiff, 1000), Additions: 5, Deletions: 6, Patch: long}, "1000 files, 5 lines added, 6 deleted"},
		{client.GitCommitted{GitRevision: client.GitRevision{Commit: "abc", Subject: long, Body: long}, Changes: client.GitChanges{Patch: long}}, "commit abc: é"},
		{task.Event{ID: 4, Type: task.MessageEvent, Data: raw}, "event 4: message, "},
	} {
		for _, verb := range []string{"%v", "%+v", "%s"} {
			if got := fmt.Sprintf(verb, tt.value); !strings.HasPrefix(got, tt.want) || len(got) > 500 || strings.Contains(got, "\n") {
				t.Errorf("%T as %s: %.300q of %d bytes, want %s", tt.value, verb, got, len(got), tt.want)
			}
		}
	}
}

// TestOneLine: a sandbox of the environment's daemon, without a client.
func TestOneLine(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case strings.HasSuffix(r.URL.Path, "/exec"):
			answer(w, 200, `{"seq":1,"status":"done","exit_code":0,"stdout":"hi"}`)
		default:
			var o map[string]any
			if json.NewDecoder(r.Body).Decode(&o) != nil || o["isolation"] != "container" || r.Header.Get("Authorization") != "Bearer t" {
				t.Errorf("asked for %v with %q", o, r.Header.Get("Authorization"))
			}
			answer(w, 201, `{"id":"a","status":"running"}`)
		}
	}))
	defer s.Close()
	t.Setenv("CUBBY_URL", s.URL)
	t.Setenv("CUBBY_TOKEN", "t")
	ctx, cancel := context.WithCancel(t.Context())
	box, err := client.Create(ctx, client.CreateOptions{Isolation: client.Container})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := box.Exec(ctx, client.Shell("x")); err != nil || e.Stdout != "hi" {
		t.Errorf("Exec = %v, %v", e, err)
	}
	cancel()
	if err := box.Close(ctx); err != nil {
		t.Errorf("Close after the context's end = %v", err)
	}
	if diff := cmp.Diff([]string{"POST /v1/sandboxes", "POST /v1/sandboxes/a/exec", "DELETE /v1/sandboxes/a"}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
