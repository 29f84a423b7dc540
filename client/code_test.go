package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
)

func TestRunCode(t *testing.T) {
	var body map[string]any
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if r.URL.Path != "/v1/sandboxes/a/code" {
				t.Errorf("POST %s", r.URL.Path)
			}
			_ = json.NewDecoder(r.Body).Decode(&body)
			answer(w, 202, `{"seq":4,"status":"running","kernel":"k","stdout":"","stderr":"","result":null,"outputs":[],"error":null}`)
			return
		}
		if got := r.URL.String(); got != "/v1/sandboxes/a/code/4?wait_seconds=50" {
			t.Errorf("GET %s", got)
		}
		answer(w, 200, `{"seq":4,"status":"done","success":true,"kernel":"k","language":"python","stdout":"hi\n","stderr":"","execution_count":2,
			"result":{"text/plain":"2","application/json":{"a":[1]},"text/html":["<b>","2</b>"]},
			"outputs":[{"data":{"image/png":"AAEC\n"},"display_id":"d"}],"error":null,"reason":"exited","truncated":{"stdout":60000},"duration_ms":3}`)
	})
	e, err := c.RunCode(t.Context(), "a", client.CodeRequest{
		Code: "1+1", Kernel: "k", Language: "python", Timeout: 1500 * time.Millisecond, Cwd: "/tmp", Env: map[string]string{"A": "1"}, Stdin: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"code": "1+1", "kernel": "k", "language": "python", "timeout_seconds": 1.5, "cwd": "/tmp", "env": map[string]any{"A": "1"},
		"stdin": true, "wait": true, "wait_seconds": 50.0,
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if e.Err() != nil || e.Text() != "2" || e.Result.HTML() != "<b>2</b>" || string(e.Result.JSON()) != `{"a":[1]}` ||
		!cmp.Equal(e.PNG(), []byte{0, 1, 2}) || e.ExecutionCount != 2 || e.Truncated["stdout"] != 60000 || e.Outputs[0].ID != "d" {
		t.Errorf("got %+v", e)
	}
	if got := strings.Join(e.Result.Types(), " "); got != "application/json text/html text/plain" {
		t.Errorf("types %s", got)
	}
	if e.Result.PNG() != nil || e.Result.SVG() != "" || e.Result.Bytes("text/plain") != nil || (client.Bundle)(nil).Text() != "" {
		t.Error("there is what is not there")
	}
}

func TestExecutionErr(t *testing.T) {
	raised := &client.CodeError{Type: "ValueError", Message: "no"}
	tests := []struct {
		e    client.Execution
		want string
	}{
		{client.Execution{Status: client.ExecDone, Success: true}, "<nil>"},
		{client.Execution{Status: client.ExecDone, Error: raised, Reason: "exited"}, "ValueError: no"},
		{client.Execution{Status: client.ExecDone, Error: &client.CodeError{Type: "KeyboardInterrupt"}}, "KeyboardInterrupt"},
		{client.Execution{Status: client.ExecError, Reason: "oom", Message: "out of memory"}, "out of memory"},
		{client.Execution{Status: client.ExecError, Reason: "lost"}, "the cell was ended: lost"},
		{client.Execution{Seq: 3, Status: client.ExecRunning}, "cell 3 has not ended"},
	}
	for _, tt := range tests {
		err := tt.e.Err()
		if got := fmt.Sprint(err); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.e, got, tt.want)
		}
		var code *client.CodeError
		if errors.As(err, &code) != (tt.e.Error != nil) {
			t.Errorf("%+v unwraps to %v", tt.e, code)
		}
	}
}

// TestStreamCode cuts the connection after a rich line: what was shown is not
// shown again.
func TestStreamCode(t *testing.T) {
	var afters []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			answer(w, 202, `{"seq":7,"status":"pending"}`)
		case r.URL.Path == "/v1/sandboxes/a/code/7":
			answer(w, 200, `{"seq":7,"status":"done","success":true,"result":{"text/plain":"3"}}`)
		case len(afters) == 0:
			afters = append(afters, r.URL.Query().Get("after"))
			sse(w, 20, "rich", `{"kernel":{"restarted":true,"reason":"it was killed"}}`)
			sse(w, 24, "stdout", outputEvent(20, "out\n"))
			sse(w, 50, "rich", `{"display":{"data":{"text/plain":"d"},"display_id":"x","update":true}}`)
			panic(http.ErrAbortHandler)
		default:
			afters = append(afters, r.URL.Query().Get("after"))
			sse(w, 50, "rich", `{"display":{"data":{"text/plain":"again"}}}`) // a daemon that says it again
			sse(w, 60, "rich", `{"error":{"ename":"E","evalue":"v","traceback":["a","b"]}}`)
			sse(w, 61, "rich", `{"unheard":{"of":1}}`)
			sse(w, 70, "rich", `{"input":{"prompt":"? ","password":true}}`)
			sse(w, 80, "rich", `{"clear":{"wait":true}}`)
			sse(w, 90, "rich", `{"result":{"execution_count":1,"data":{"text/plain":"3"}}}`)
			sse(w, 90, "exit", `{"seq":7,"status":"done","exit_code":0,"reason":"exited"}`)
		}
	})
	var got []string
	for o, err := range c.StreamCode(t.Context(), "a", client.CodeRequest{Code: "x"}) {
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%d ", o.Next)
		switch {
		case o.Done != nil:
			text += "done " + o.Done.Text()
		case o.Kernel != nil:
			text += fmt.Sprint("kernel ", o.Kernel.Restarted, " ", o.Kernel.Reason)
		case o.Display != nil:
			text += fmt.Sprint("display ", o.Display.Data.Text(), o.Display.ID, o.Update)
		case o.Error != nil:
			text += fmt.Sprintf("error %v %q", o.Error, o.Error.Traceback)
		case o.Input != nil:
			text += fmt.Sprint("input ", *o.Input)
		case o.Clear != nil:
			text += fmt.Sprint("clear ", o.Clear.Wait)
		case o.Result != nil:
			text += "result " + o.Result.Text()
		default:
			text += o.Stream + " " + o.Text
		}
		got = append(got, text)
	}
	want := []string{
		"20 kernel true it was killed", "24 stdout out\n", "50 display dxtrue", `60 error E: v "a\nb"`, "70 input {?  true}",
		"80 clear true", "90 result 3", "90 done 3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"", "50"}, afters); diff != "" {
		t.Errorf("offsets (-want +got):\n%s", diff)
	}
}

func TestCopyLeavesRichOut(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, 20, "rich", `{"clear":{"wait":false}}`)
		sse(w, 23, "stdout", outputEvent(20, "out"))
		sse(w, 23, "exit", `{"seq":1,"status":"done","exit_code":0,"reason":"exited"}`)
	})
	var stdout strings.Builder
	if _, err := c.Process("a", 1).Copy(t.Context(), &stdout, io.Discard); err != nil || stdout.String() != "out" {
		t.Errorf("Copy = %q, %v", stdout.String(), err)
	}
}

func TestKernelRequests(t *testing.T) {
	type m = map[string]any
	const kernel = `{"name":"k","language":"python","status":"idle","created_at":"2026-01-02T03:04:05Z"}`
	testRequests(t, []requestTest{
		{"create", func(ctx context.Context, c *client.Client) error {
			k, err := c.CreateKernel(ctx, "a", client.KernelOptions{Name: "k", Language: "python", User: "root"})
			if err == nil && (k.Name != "k" || k.Status != "idle" || k.CreatedAt.IsZero()) {
				err = fmt.Errorf("%+v", k)
			}
			return err
		}, 201, kernel, request{"POST", "/v1/sandboxes/a/kernels", "", m{"name": "k", "language": "python", "user": "root"}}},
		{"list", func(ctx context.Context, c *client.Client) error {
			kernels, kinds, err := c.Kernels(ctx, "a")
			if err == nil && (len(kernels) != 1 || len(kinds) != 1 || kinds[0].Spec != "ir") {
				err = fmt.Errorf("%+v %+v", kernels, kinds)
			}
			return err
		}, 200, `{"kernels":[` + kernel + `],"available":[{"spec":"ir","language":"r","display_name":"R"}]}`, request{"GET", "/v1/sandboxes/a/kernels", "", nil}},
		{"get", func(ctx context.Context, c *client.Client) error {
			_, err := c.Kernel(ctx, "a", "k/x")
			return err
		}, 200, kernel, request{"GET", "/v1/sandboxes/a/kernels/k%2Fx", "", nil}},
		{"interrupt", func(ctx context.Context, c *client.Client) error {
			_, err := c.InterruptKernel(ctx, "a", "k")
			return err
		}, 200, kernel, request{"POST", "/v1/sandboxes/a/kernels/k/interrupt", "", nil}},
		{"restart", func(ctx context.Context, c *client.Client) error {
			_, err := c.RestartKernel(ctx, "a", "k")
			return err
		}, 200, kernel, request{"POST", "/v1/sandboxes/a/kernels/k/restart", "", nil}},
		{"delete", func(ctx context.Context, c *client.Client) error { return c.DeleteKernel(ctx, "a", "k") },
			204, "", request{"DELETE", "/v1/sandboxes/a/kernels/k", "", nil}},
		{"code", func(ctx context.Context, c *client.Client) error {
			_, err := c.Code(ctx, "a", 3)
			return err
		}, 200, `{"seq":3}`, request{"GET", "/v1/sandboxes/a/code/3", "", nil}},
	})
}

// TestSchemas: the SDK's types have every field that the API documents, and no
// other.
func TestSchemas(t *testing.T) {
	text, err := os.ReadFile("../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for schema, v := range map[string]any{
		"Execution": client.Execution{}, "DisplayOutput": client.Display{}, "CodeError": client.CodeError{}, "Truncated": client.Truncated{},
		"Kernel": client.Kernel{}, "KernelKind": client.KernelKind{}, "KernelInput": client.KernelOptions{},
	} {
		want, got := map[string]bool{}, map[string]bool{}
		for name := range doc.Components.Schemas[schema].Properties {
			want[name] = true
		}
		for f := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(f).Tag.Get("json"), ",")
			got[name] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-API +SDK):\n%s", schema, diff)
		}
	}
}
