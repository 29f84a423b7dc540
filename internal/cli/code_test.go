package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
)

// pixel is the smallest PNG.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// kernelStub is a daemon whose sandbox "box" has a kernel that knows a few
// words.
type kernelStub struct {
	*httptest.Server
	mu       sync.Mutex
	requests []map[string]any
	cells    []*stubCell
	// questions answers those about code that is not run; nil: the daemon knows
	// none.
	questions func(kind string, asked map[string]any) string
}

type stubCell struct {
	code     string
	canceled chan struct{}
	stdin    chan string
}

func newKernelStub(t *testing.T) *kernelStub {
	k := &kernelStub{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sandboxes/box/code", k.start)
	mux.HandleFunc("GET /v1/sandboxes/box/code/{seq}", func(w http.ResponseWriter, r *http.Request) {
		k.answer(w, k.cell(r), r.PathValue("seq"))
	})
	mux.HandleFunc("GET /v1/sandboxes/box/execs/{seq}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"seq":%s,"status":"done"}`, r.PathValue("seq"))
	})
	mux.HandleFunc("GET /v1/sandboxes/box/execs/{seq}/stream", k.stream)
	mux.HandleFunc("POST /v1/sandboxes/box/execs/{seq}/cancel", func(w http.ResponseWriter, r *http.Request) {
		close(k.cell(r).canceled)
		_, _ = io.WriteString(w, `{}`)
	})
	mux.HandleFunc("POST /v1/sandboxes/box/execs/{seq}/stdin", func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		k.cell(r).stdin <- string(data)
		fmt.Fprintf(w, `{"offset":%d}`, len(data))
	})
	mux.HandleFunc("POST /v1/sandboxes/box/kernels/main/{question}", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		answer := ""
		if k.questions != nil {
			answer = k.questions(r.PathValue("question"), body)
		}
		if answer == "" {
			w.WriteHeader(404)
			answer = `{"error":{"code":"not_found","message":"no such endpoint"}}`
		}
		_, _ = io.WriteString(w, answer)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(404)
		_, _ = io.WriteString(w, `{"error":{"code":"not_found","message":"no such sandbox"}}`)
	})
	k.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		k.CloseClientConnections()
		k.Close()
	})
	return k
}

func (k *kernelStub) cell(r *http.Request) *stubCell {
	var seq int
	_, _ = fmt.Sscan(r.PathValue("seq"), &seq)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cells[seq-1]
}

func (k *kernelStub) start(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	c := &stubCell{code: body["code"].(string), canceled: make(chan struct{}), stdin: make(chan string, 1)}
	k.mu.Lock()
	k.requests, k.cells = append(k.requests, body), append(k.cells, c)
	seq := len(k.cells)
	k.mu.Unlock()
	if body["wait"] == true {
		k.answer(w, c, fmt.Sprint(seq))
		return
	}
	w.WriteHeader(202)
	fmt.Fprintf(w, `{"seq":%d,"status":"pending"}`, seq)
}

func (k *kernelStub) answer(w io.Writer, c *stubCell, seq string) {
	language := "python"
	k.mu.Lock()
	if l, ok := k.requests[0]["language"].(string); ok {
		language = l
	}
	k.mu.Unlock()
	end := `"status":"done","success":true,"reason":"exited"`
	switch c.code {
	case "boom":
		end = `"status":"done","success":false,"reason":"exited","error":{"type":"E","message":"v"}`
	case "slow":
		end = `"status":"error","success":false,"reason":"killed","error":{"type":"KeyboardInterrupt"}`
	case "late":
		end = `"status":"error","success":false,"reason":"timeout","error":{"type":"TimeoutError","message":"Execution timed out"}`
	case "none":
		end = `"status":"error","success":false,"reason":"not_started","error":{"type":"NotStartedError","message":"no kernel for \"r\""}`
	}
	fmt.Fprintf(w, `{"seq":%s,%s,"kernel":"main","language":%q,"outputs":[]}`, seq, end, language)
}

func (k *kernelStub) stream(w http.ResponseWriter, r *http.Request) {
	at := 0
	send := func(event, data string) {
		at += 10
		fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", at, event, data)
		w.(http.Flusher).Flush()
	}
	text := func(stream, s string) {
		data, _ := json.Marshal(map[string]any{"data": s, "encoding": "utf-8", "offset": at})
		at += len(s) - 10
		send(stream, string(data))
	}
	c := k.cell(r)
	switch c.code {
	case "boom":
		text("stderr", "warning\n")
		send("rich", `{"error":{"ename":"E","evalue":"v","traceback":["\u001b[31mTraceback\u001b[0m","E: v"]}}`)
	case "slow":
		text("stdout", "begun\n")
		select {
		case <-c.canceled:
		case <-r.Context().Done():
			return
		}
		send("rich", `{"error":{"ename":"KeyboardInterrupt","evalue":"","traceback":[]}}`)
	case "ask", "secret":
		send("rich", fmt.Sprintf(`{"input":{"prompt":"name? ","password":%v}}`, c.code == "secret"))
		select {
		case line := <-c.stdin:
			text("stdout", fmt.Sprintf("got %q\n", line))
		case <-c.canceled:
			text("stdout", "no answer\n")
		case <-r.Context().Done():
			return
		}
	case "impatient": // its time is up while it asks
		send("rich", `{"input":{"prompt":"quick? "}}`)
	case "plot":
		send("rich", `{"display":{"data":{"image/png":"`+pixel+`","text/plain":"<Figure>"}}}`)
	case "partial":
		text("stdout", "no end")
	case "6*7":
		send("rich", `{"kernel":{"restarted":true,"reason":"it was killed"}}`)
		send("rich", `{"result":{"execution_count":1,"data":{"text/plain":"42","text/html":"<b>42</b>"}}}`)
	case "progress":
		for _, step := range []string{"one\n", "two\n", "three\n"} {
			text("stdout", step)
			send("rich", `{"clear":{"wait":true}}`)
		}
	case "late", "none", "":
	default:
		text("stdout", fmt.Sprintf("ran %q\n", c.code))
	}
	send("exit", `{"seq":1,"status":"done"}`)
}

func (k *kernelStub) last() map[string]any {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.requests[len(k.requests)-1]
}

func TestCode(t *testing.T) {
	k := newKernelStub(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "cell.py")
	if err := os.WriteFile(file, []byte("x = 1\nx"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name           string
		stdin          string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"a result", "", []string{"-c", "6*7"}, 0, "42\n", "cubby: the kernel began anew, what cells before had defined is gone: it was killed\n"},
		{"text as it is", "", []string{"-c", "partial"}, 0, "no end", ""},
		{"a file", "", []string{file}, 0, `ran "x = 1\nx"` + "\n", ""},
		{"the input", "y = 2\n", []string{"-"}, 0, `ran "y = 2\n"` + "\n", ""},
		{"the input without being asked", "y = 3\n", nil, 0, `ran "y = 3\n"` + "\n", ""},
		{"it raises", "", []string{"-c", "boom"}, 1, "", "warning\nTraceback\nE: v\n"},
		{"its time is up", "", []string{"-c", "late"}, 1, "", "cubby: the time of the cell was up, and the kernel kept its state; --timeout sets another limit, 0 none\n"},
		{"no kernel", "", []string{"-c", "none"}, 125, "", "cubby: no kernel for \"r\"\n"},
		{"it asks", "Ada\nGrace\n", []string{"-c", "ask"}, 0, `name? got "Ada\n"` + "\n", ""},
		{"it asks nobody", "", []string{"-c", "ask"}, 0, `name? got ""` + "\n", ""},
		{"an image", "", []string{"--files", dir, "-c", "plot"}, 0, filepath.Join(dir, "box-11-1.png") + "\n", ""},
		{"what it takes back", "", []string{"-c", "progress"}, 0, "one\ntwo\nthree\n", ""},
		{"two sources", "", []string{"-c", "1", file}, 125, "", "cubby: give a file or -c, not both\n  cubby code --help\n"},
		{"no file", "", []string{file + "x"}, 125, "", "cubby: open " + file + "x: no such file or directory\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := cubby(t, k.URL, strings.NewReader(tt.stdin), append([]string{"code", "box"}, tt.args...)...)
			if want := (result{tt.stdout, tt.stderr, tt.code}); res != want {
				t.Errorf("got %+v\nwant %+v", res, want)
			}
		})
	}
	want, _ := base64.StdEncoding.DecodeString(pixel)
	if got, err := os.ReadFile(filepath.Join(dir, "box-11-1.png")); !bytes.Equal(got, want) {
		t.Errorf("the image is %q, %v", got, err)
	}

	res := cubby(t, k.URL, nil, "code", "box", "-c", "1", "--language", "r", "--kernel", "k", "--timeout", "0", "--json")
	if body := k.last(); body["language"] != "r" || body["kernel"] != "k" || body["timeout_seconds"] != 0.0 || body["stdin"] != nil {
		t.Errorf("asked for %v", body)
	}
	if res.code != 0 || !strings.Contains(res.stdout, `"kernel": "main"`) {
		t.Errorf("got %+v", res)
	}
	if res := cubby(t, k.URL, nil, "code", "nobody", "-c", "1"); res.code != 125 || res.stderr != "cubby: no such sandbox\n" {
		t.Errorf("got %+v", res)
	}
}

// sitDown begins a prompt on a terminal.
func sitDown(t *testing.T, k *kernelStub, state string, environ ...string) *seat {
	user, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	s := &seat{newScreen(t, user), user, make(chan int, 1)}
	go func() {
		code := Main(t.Context(), Env{
			Args: []string{"code", "box"}, Environ: append(environ, "CUBBY_URL="+k.URL, "XDG_STATE_HOME="+state), Stdin: tty, Stdout: tty, Stderr: tty,
		})
		_ = tty.Close() // the reader sees the end
		s.done <- code
	}()
	return s
}

// TestCodePrompt sits before a terminal.
func TestCodePrompt(t *testing.T) {
	k := newKernelStub(t)
	k.questions = func(kind string, asked map[string]any) string {
		code := asked["code"].(string)
		switch block := strings.HasSuffix(code, ":") || strings.Contains(code, ":\n"); {
		case kind != "is-complete":
			return ""
		case block && !strings.HasSuffix(code, "\n"): // an empty line ends a block
			return `{"status":"incomplete","indent":"    "}`
		}
		return `{"status":"complete","indent":""}`
	}
	state := t.TempDir()
	s := sitDown(t, k, state, "TERM=xterm-kitty")
	s.wait("python, kernel main of box")
	s.wait(">>> ")
	s.enter("6*7\r", "42\r\n", ">>> ")
	s.enter("partial\r", "no end\r\n>>> ")

	// Several lines, typed and pasted.
	s.enter("def f():\r", "... ")
	s.enter("\treturn 1\r", "... ")
	s.enter("\r", `ran "def f():\n    return 1\n"`, ">>> ")
	s.enter("\x1b[200~if x:\r\ty()\r\r\tz()\x1b[201~", "z()")
	s.enter("\r", "... ")
	s.enter("\r", `ran "if x:\n\ty()\n\n\tz()\n"`, ">>> ")

	// Ctrl-C takes back a line and interrupts a cell; the prompt stays.
	s.enter("nonsense\x03", ">>> ")
	s.enter("slow\r", "begun")
	s.enter("\x03", "KeyboardInterrupt", ">>> ")

	s.enter("progress\r", "one\r\n\x1b[1A\r\x1b[Jtwo\r\n\x1b[1A\r\x1b[Jthree\r\n>>> ")

	// Questions.
	s.enter("ask\r", "name? ")
	s.enter("Ada\r", `got "Ada\n"`, ">>> ")
	s.enter("secret\r", "name? ")
	s.enter("hunter2\r", `got "hunter2\n"`, ">>> ")
	s.enter("ask\r", "name? ")
	s.enter("\x03", "no answer", ">>> ")
	s.enter("impatient\r", "quick? ", ">>> ")

	s.enter("plot\r", "\x1b_Ga=T,f=100,m=0;"+pixel+"\x1b\\", ">>> ")
	s.typed("\x04")
	if code := s.exit(); code != 0 {
		t.Errorf("Ctrl-D exits with %d", code)
	}

	// The history is that of last time, without answers.
	s = sitDown(t, k, state)
	s.wait(">>> ")
	s.enter("\x1b[A", "plot")
	s.typed("\x1b[A\x1b[A") // impatient, ask
	s.enter("\r", "name? ")
	s.enter("\x03", ">>> ")
	s.typed("\x04")
	s.exit()
	if text, err := os.ReadFile(filepath.Join(state, "cubby", "code_history")); err != nil || strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "Ada") {
		t.Errorf("the history is %q, %v", text, err)
	}
}
