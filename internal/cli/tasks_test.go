package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// taskStub is a daemon whose sandbox "box" has a task t1 with some events.
type taskStub struct {
	*httptest.Server
	events    []string // of the stream, whole
	status    string   // how the task ends
	wait      int      // of that many events on it waits for a cancel or an answer
	mu        sync.Mutex
	started   map[string]any
	asked     []string // since of each stream
	goOn      chan struct{}
	answered  string
	cancelled int
}

func newTaskStub(t *testing.T, status string, events ...string) *taskStub {
	k := &taskStub{events: events, status: status, wait: -1, goOn: make(chan struct{}, 8)}
	mux := http.NewServeMux()
	task := func(status string) string {
		return `{"id":"t1","sandbox_id":"box","status":"` + status + `","agent":"claude","prompt":"do\u001b[2J it","cwd":"/workspace","created_at":"2026-01-02T03:04:05Z",
"files_changed":["a\u001b.txt"],"build_ok":true,"checkpoint_id":"c0ffee","duration_ms":1234,"tokens":{"total":12,"cost":0.5}}`
	}
	mux.HandleFunc("POST /v1/sandboxes/box/tasks", func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		_ = json.NewDecoder(r.Body).Decode(&k.started)
		w.WriteHeader(202)
		_, _ = io.WriteString(w, task("running"))
	})
	mux.HandleFunc("GET /v1/sandboxes/box/tasks", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"tasks":[`+task(k.status)+`]}`)
	})
	mux.HandleFunc("GET /v1/sandboxes/box/tasks/t1", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, task(k.status))
	})
	mux.HandleFunc("GET /v1/sandboxes/box/tasks/t1/events", k.stream)
	mux.HandleFunc("POST /v1/sandboxes/box/tasks/t1/cancel", func(w http.ResponseWriter, _ *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.cancelled++
		k.goOn <- struct{}{}
		_, _ = io.WriteString(w, `{"id":"t1","status":"cancelling","task_status":"running"}`)
	})
	mux.HandleFunc("POST /v1/sandboxes/box/tasks/t1/permissions/{q}", func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		var body map[string]string
		_ = json.NewDecoder(r.Body).Decode(&body)
		k.answered += r.PathValue("q") + "=" + body["option"] + " "
		k.goOn <- struct{}{}
		w.WriteHeader(204)
	})
	mux.HandleFunc("POST /v1/sandboxes/box/tasks/t1/restore", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"restored":true,"files":["a\u001b.txt"]}`)
	})
	mux.HandleFunc("GET /v1/sandboxes/box/ports", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"ports":[{"port":3000,"listening":true,"declared":true,"url":"http://s-box-3000.localhost/"}]}`)
	})
	mux.HandleFunc("GET /v1/sandboxes/box/ports/3000", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"port":3000,"listening":true,"declared":true,"url":"http://s-box-3000.localhost/"}`)
	})
	mux.HandleFunc("GET /v1/sandboxes/box", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":"box","status":"running","visibility":"public"}`)
	})
	k.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		k.CloseClientConnections()
		k.Close()
	})
	return k
}

// stream sends the events in connections of three at most.
func (k *taskStub) stream(w http.ResponseWriter, r *http.Request) {
	since := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("since"), &since)
	if r.Header.Get("Accept") == "application/json" {
		list := make([]string, 0, len(k.events))
		for i, e := range k.events[min(since, len(k.events)):] {
			kind, data, _ := strings.Cut(e, " ")
			list = append(list, fmt.Sprintf(`{"id":%d,"type":%q,"time":"2026-01-02T03:04:05Z","data":%s}`, since+i, kind, data))
		}
		fmt.Fprintf(w, `{"events":[%s],"next":%d}`, strings.Join(list, ","), len(k.events))
		return
	}
	k.mu.Lock()
	k.asked = append(k.asked, fmt.Sprint(since))
	k.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	for i := since; i < min(since+3, len(k.events)); i++ {
		if i == k.wait {
			_ = http.NewResponseController(w).Flush()
			select {
			case <-k.goOn:
			case <-r.Context().Done():
				return
			}
		}
		kind, data, _ := strings.Cut(k.events[i], " ")
		fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", i, kind, data)
	}
}

var taskEvents = []string{
	`status {"phase":"starting"}`,
	`status {"phase":"agent_running","checkpoint_id":"c0ffee"}`,
	`delta {"of":"thought","message_id":"h","text":"hm\u001b[31m"}`,
	`thought {"text":"hm\u001b[31m","message_id":"h"}`,
	`delta {"of":"message","message_id":"m","text":"Hel"}`,
	`delta {"of":"message","message_id":"m","text":"lo\n\u009b2J\r\nyou"}`,
	`message {"role":"agent","text":"Hello\n\u009b2J\r\nyou","message_id":"m"}`,
	`message {"role":"agent","text":"second"}`,
	`plan {"entries":[{"content":"look","status":"completed"},{"content":"wri\u001bte","status":"in_progress"},{"content":"rest","status":"pending"}]}`,
	`plan {"entries":[{"content":"look","status":"completed"},{"content":"wri\u001bte","status":"in_progress"},{"content":"rest","status":"pending"}]}`,
	`tool {"name":"edit","status":"running","path":"a.txt","tool_call_id":"1"}`,
	`tool {"name":"edit","status":"completed","path":"a\u001b.txt","tool_call_id":"1"}`,
	`tool {"name":"bash","status":"error","path":"make","tool_call_id":"2","output":"1\n2\n3\n4\n5\nno rule\u0007\n"}`,
	`something {"of":"a newer daemon"}`,
	`usage {"total":"not a number"}`,
	`diff {"path":"b.txt","status":"added","patch":"diff --git a/b.txt b/b.txt\n--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1,3 @@\n+one\n+++two\n+\u001b]0;x\n"}`,
	`diff {"path":"c.png","status":"modified","binary":true}`,
	`build {"build_ok":false,"build_error_message":"x\ny"}`,
	`push {"ok":true,"commit":"0123456789abcdef","branch":"main"}`,
	`done {"id":"t1","status":"succeeded","files_changed":["b.txt","c.png","d.txt"],"build_ok":true,"checkpoint_id":"c0ffee","duration_ms":1234,"tokens":{"total":12,"cost":0.5}}`,
}

// TestTaskIsShown: over broken connections, each thing once, and nothing of it can
// move a terminal's cursor.
func TestTaskIsShown(t *testing.T) {
	k := newTaskStub(t, "succeeded", taskEvents...)
	res := cubby(t, k.URL, nil, "task", "run", "box", "do it", "--agent", "claude", "--model", "m", "-w", "app", "-e", "A=b", "--secret", "S", "--timeout", "0", "--diff")
	if res.code != 0 || res.stderr != "" {
		t.Fatalf("run: %+v", res)
	}
	golden(t, "task.txt", res.stdout)
	if strings.ContainsAny(res.stdout, "\x1b\u009b\r\a") {
		t.Errorf("the terminal is sent %q", res.stdout)
	}
	want := `{"agent":"claude","cwd":"app","env":{"A":"b"},"model":"m","prompt":"do it","secrets":["S"],"timeout_seconds":0}`
	if got, _ := json.Marshal(k.started); string(got) != want {
		t.Errorf("started %s, want %s", got, want)
	}
	if got := strings.Join(k.asked, " "); got != "0 3 6 9 12 15 18" {
		t.Errorf("streams from %s", got)
	}
	// The same of a task that has ended.
	for _, args := range [][]string{{"task", "logs", "box", "t1", "--diff"}, {"task", "logs", "-f", "box", "--diff"}} {
		again := cubby(t, k.URL, nil, args...)
		if without := strings.TrimSuffix(res.stdout, "http://s-box-3000.localhost/\n"); again.code != 0 || again.stdout != without {
			t.Errorf("%q: %+v", args, again)
		}
	}
	lines := cubby(t, k.URL, nil, "task", "logs", "box", "--json")
	if n := strings.Count(lines.stdout, "\n"); lines.code != 0 || n != len(taskEvents) || !strings.Contains(lines.stdout, `"type":"something"`) {
		t.Errorf("JSON: %+v", lines)
	}
}

func TestTaskExitCodes(t *testing.T) {
	for status, code := range map[string]int{"succeeded": 0, "failed": 1, "cancelled": 130} {
		k := newTaskStub(t, status, `done {"id":"t1","status":"`+status+`","build_ok":true,"error_message":"why"}`)
		if res := cubby(t, k.URL, nil, "task", "run", "box", "x"); res.code != code || !strings.HasPrefix(res.stdout, status) {
			t.Errorf("%s: %+v", status, res)
		}
		res := cubby(t, k.URL, nil, "task", "run", "box", "x", "--json")
		if res.code != code || !json.Valid([]byte(res.stdout)) || !strings.Contains(res.stdout, `"status": "`+status+`"`) {
			t.Errorf("%s as JSON: %+v", status, res)
		}
	}
	k := newTaskStub(t, "failed")
	for _, tt := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"box"}, 125, "give a sandbox's id and a prompt"},
		{[]string{"box", "make", "it"}, 125, "in quotes"},
		{[]string{"box", "--", "sh"}, 125, "give a sandbox's id and a prompt"},
		{[]string{"box", "-", "--ask"}, 125, "the input cannot have both"},
		{[]string{"box", "x", "--env-file", "/nowhere"}, 125, "/nowhere"},
		{[]string{"none", "x"}, 125, ""},
	} {
		if res := cubby(t, k.URL, strings.NewReader("x"), append([]string{"task", "run"}, tt.args...)...); res.code != tt.code || !strings.Contains(res.stderr, tt.stderr) {
			t.Errorf("%q: %+v", tt.args, res)
		}
	}
}

func TestTaskOfACommandFromTheInput(t *testing.T) {
	k := newTaskStub(t, "running")
	res := cubby(t, k.URL, strings.NewReader("long\nprompt\n"), "task", "run", "--detach", "--ask", "box", "-", "--protocol", "json-lines", "--", "sh", "-c", "true")
	if res.code != 0 || res.stdout != "t1\n" {
		t.Fatalf("run: %+v", res)
	}
	want := `{"command":["sh","-c","true"],"permissions":"ask","prompt":"long\nprompt\n","protocol":"json-lines"}`
	if got, _ := json.Marshal(k.started); string(got) != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

const question = `permission {"id":"q1","status":"pending","tool":{"name":"bash","path":"rm -rf \u001b/"},"options":[{"id":"yes","name":"Allow","kind":"allow_once"},{"id":"no","name":"Rej\u001bect","kind":"reject_once"}]}`

// TestTaskAsks: the answer is a number, an id or a word; what is none asks again.
func TestTaskAsks(t *testing.T) {
	for typed, want := range map[string]string{"2\n": "q1=no ", "yes\n": "q1=yes ", "7\nN\n": "q1=no "} {
		k := newTaskStub(t, "succeeded", question, `permission {"id":"q1","status":"resolved","outcome":"no","options":[{"id":"no","name":"Reject"}]}`,
			`done {"id":"t1","status":"succeeded","build_ok":true}`)
		k.wait = 1
		res := cubby(t, k.URL, strings.NewReader(typed), "task", "run", "box", "x", "--ask")
		if res.code != 0 || k.answered != want || !strings.Contains(res.stdout, "1  Allow   [yes]") || strings.Contains(res.stdout, "\x1b") {
			t.Errorf("%q: answered %q, %+v", typed, k.answered, res)
		}
	}
	k := newTaskStub(t, "succeeded", question)
	if res := cubby(t, k.URL, nil, "task", "answer", "box", "t1", "q1", "yes"); res.code != 0 || k.answered != "q1=yes " {
		t.Errorf("answer: %q, %+v", k.answered, res)
	}
}

// TestTaskThatNobodyAnswers says how it can be answered, and goes on.
func TestTaskThatNobodyAnswers(t *testing.T) {
	k := newTaskStub(t, "failed", question, `done {"id":"t1","status":"failed","build_ok":true}`)
	res := cubby(t, k.URL, strings.NewReader(""), "task", "run", "box", "x", "--ask")
	if res.code != 1 || !strings.Contains(res.stdout, "failed in") {
		t.Errorf("%+v", res)
	}
}

// TestTaskIsCancelledBySignal: one cancels, another one leaves it.
func TestTaskIsCancelledBySignal(t *testing.T) {
	run := func(k *taskStub, signals chan os.Signal) chan result {
		done := make(chan result, 1)
		go func() {
			done <- cubbyEnv(t, []string{"CUBBY_URL=" + k.URL}, nil, signals, "task", "run", "box", "x")
		}()
		return done
	}
	k := newTaskStub(t, "cancelled", `status {"phase":"starting"}`, `done {"id":"t1","status":"cancelled","build_ok":true}`)
	k.wait = 1
	signals := make(chan os.Signal)
	done := run(k, signals)
	k.follows(t)
	signals <- syscall.SIGINT
	if res := <-done; res.code != 130 || k.cancelled != 1 || !strings.Contains(res.stderr, "again to leave it running") {
		t.Errorf("%+v, cancelled %d times", res, k.cancelled)
	}

	k = newTaskStub(t, "running", `status {"phase":"starting"}`, `status {"phase":"starting"}`, `status {"phase":"starting"}`)
	k.wait = 1
	k.goOn = make(chan struct{}, 8)
	done = run(k, signals)
	k.follows(t)
	signals <- syscall.SIGINT
	signals <- syscall.SIGINT
	if res := <-done; res.code != 130 || !strings.Contains(res.stderr, "cubby task logs -f box t1") {
		t.Errorf("%+v", res)
	}
}

// follows waits until the events are followed.
func (k *taskStub) follows(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		k.mu.Lock()
		n := len(k.asked)
		k.mu.Unlock()
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody follows the events")
		}
	}
}

func TestTasksAreListedAndUndone(t *testing.T) {
	k := newTaskStub(t, "succeeded")
	res := cubby(t, k.URL, nil, "task", "ls", "box")
	if res.code != 0 || strings.Contains(res.stdout, "\x1b") || !strings.Contains(res.stdout, "do?[2J it") || !strings.Contains(res.stdout, "1.2s") {
		t.Errorf("ls: %+v", res)
	}
	res = cubby(t, k.URL, nil, "task", "get", "box")
	if res.code != 0 || !strings.Contains(res.stdout, "c0ffee") || !strings.Contains(res.stdout, "12 tokens, $0.50") || strings.Contains(res.stdout, "\x1b") {
		t.Errorf("get: %+v", res)
	}
	if res = cubby(t, k.URL, nil, "task", "restore", "box", "t1"); res.code != 0 || res.stdout != "a?.txt\n" {
		t.Errorf("restore: %+v", res)
	}
	if res = cubby(t, k.URL, nil, "task", "cancel", "box", "t1"); res.code != 0 || k.cancelled != 1 {
		t.Errorf("cancel: %+v", res)
	}
	for _, args := range [][]string{{"ls", "box", "--json"}, {"get", "box", "t1", "--json"}, {"restore", "box", "t1", "--json"}} {
		if res := cubby(t, k.URL, nil, append([]string{"task"}, args...)...); res.code != 0 || !json.Valid([]byte(res.stdout)) {
			t.Errorf("%q: %+v", args, res)
		}
	}
	if res := cubby(t, k.URL, nil, "__complete", "task", "get", "box", ""); !strings.Contains(res.stdout, "t1\tsucceeded do?[2J it") {
		t.Errorf("completion: %+v", res)
	}
}
