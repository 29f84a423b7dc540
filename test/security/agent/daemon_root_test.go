//go:build root

// Package agent_test attacks the agent of a built cubby: by models that are hostile or
// do what a stranger's file says, by clients that read nothing, by other tenants, and
// by base URLs that lead where they may not. The models are servers of the tests.
package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/test/harness"
)

const (
	// mostMemory is what the daemon may take of the host whatever models and clients
	// do.
	mostMemory = 300 << 20
	acme       = "acme-secret-1234"
	other      = "other-secret-1234"
	operator   = "operator-secret-1234"
	tokens     = "web@acme:" + acme + ",web2@other:" + other + ",op:" + operator
	// envKey is the operator's key, in the environment of the daemon.
	envKey = "sk-env-0123456789abcdef"
)

// daemon is a cubby whose agent asks a model.
type daemon struct {
	*harness.Daemon

	t      *testing.T
	client *http.Client
}

// start starts a daemon with three tokens.
func start(t *testing.T, m *model, flags ...string) *daemon {
	t.Helper()
	d := harness.Start(t, harness.Options{
		// The harness cleans up without a token, so the operator's are of a flag that
		// only the first start has.
		Env: m.environment(envKey), Flags: flags,
	})
	return &daemon{d, t, &http.Client{Timeout: time.Minute}}
}

// startTenants is start of a daemon that knows tenants. The harness cleans up with one
// that asks for no tokens.
func startTenants(t *testing.T, m *model, flags ...string) *daemon {
	t.Helper()
	d := harness.New(t, harness.Options{Env: m.environment(envKey), Flags: flags})
	d.MustStart("--tokens", tokens)
	return &daemon{d, t, &http.Client{Timeout: time.Minute}}
}

// request sends a request. A body that is bytes is sent as it is.
func (d *daemon) request(token, method, path string, body any) *http.Response {
	d.t.Helper()
	raw, ok := body.([]byte)
	if !ok && body != nil {
		raw = encode(body)
	}
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.URL+path, bytes.NewReader(raw))
	if err != nil {
		d.t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := d.client.Do(r)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

// do sends a request and reads its answer.
func (d *daemon) do(token, method, path string, body any) (status int, answer []byte) {
	d.t.Helper()
	res := d.request(token, method, path, body)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, answer
}

// must is do of what works, and decodes its answer.
func (d *daemon) must(token, method, path string, body, into any) {
	d.t.Helper()
	status, answer := d.do(token, method, path, body)
	if status < 200 || status > 299 {
		d.t.Fatalf("%s %s: %d %.500s", method, path, status, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			d.t.Fatalf("%s %s: %v: %.500s", method, path, err, answer)
		}
	}
}

// thread makes a thread.
func (d *daemon) thread(token string) (id string) {
	d.t.Helper()
	var t struct {
		ID string `json:"thread_id"`
	}
	d.must(token, http.MethodPost, "/agent/threads", object{}, &t)
	return t.ID
}

// human is the body of a run in which a person says something.
func human(content any) object {
	return object{"assistant_id": "agent", "input": object{"messages": []object{{"role": "user", "content": content}}}}
}

// outcome is what a run leaves.
type outcome struct {
	Messages []struct {
		Type    string          `json:"type"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Error *struct {
		Error   string `json:"error"`
		Message string `json:"message"`
	} `json:"__error__"`
	Interrupts []json.RawMessage `json:"__interrupt__"`
}

// last is the text of the last message.
func (o outcome) last() string {
	if len(o.Messages) == 0 {
		return ""
	}
	return said{Content: o.Messages[len(o.Messages)-1].Content}.text()
}

// results are what tools gave since a person spoke.
func (o outcome) results() []string {
	var list []string
	for _, m := range o.Messages {
		switch m.Type {
		case "human":
			list = nil
		case "tool":
			list = append(list, said{Content: m.Content}.text())
		}
	}
	return list
}

// run has a run done to its end.
func (d *daemon) run(token, thread string, body object) outcome {
	d.t.Helper()
	var o outcome
	d.must(token, http.MethodPost, "/agent/threads/"+thread+"/runs/wait", body, &o)
	return o
}

// works fails unless the agent does what it is told, in a thread of its own.
func (d *daemon) works(token string) {
	d.t.Helper()
	id := d.thread(token)
	if o := d.run(token, id, human("SAY hello")); o.last() != "hello" {
		d.t.Errorf("another run meanwhile: %+v", o)
	}
	d.must(token, http.MethodDelete, "/agent/threads/"+id, nil, nil)
}

// memory is what the daemon takes of the host now, or with VmHWM at most has taken.
func (d *daemon) memory(field string) int {
	d.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(text)[0])
			if err != nil {
				d.t.Fatal(err)
			}
			return kib << 10
		}
	}
	d.t.Fatalf("no %s in %s", field, status)
	return 0
}

// bounded fails when the daemon has taken more than it may at any time.
func (d *daemon) bounded(after string) {
	d.t.Helper()
	most := d.memory("VmHWM")
	d.t.Logf("after %s: at most %d MiB", after, most>>20)
	if most > mostMemory {
		d.t.Errorf("%s: the daemon took %d MiB, want less than %d", after, most>>20, mostMemory>>20)
	}
}

// until waits until something holds, and reports whether it came to that.
func until(t *testing.T, holds func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return poll.Until(ctx, time.Millisecond, 100*time.Millisecond, func() (bool, error) { return holds(), nil }) == nil
}
