package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/google/uuid"
)

// agentStub is a daemon whose agent knows a few words: what it tells depends on what it
// is asked.
type agentStub struct {
	*httptest.Server
	mu       sync.Mutex
	requests []map[string]any // of runs
	threads  []string         // theirs
	canceled chan struct{}
	cancels  int
	status   string // of the newest run
	waiting  string // the interrupts of the thread, as JSON
}

const approval = `{"action_requests":[{"name":"execute_terminal","args":{"command":"rm -r /tmp/x"},"description":"The agent wants to run a \u001b[2Jcommand."}],` +
	`"review_configs":[{"action_name":"execute_terminal","allowed_decisions":["approve","edit","reject"]}]}`

func newAgentStub(t *testing.T) *agentStub {
	k := &agentStub{canceled: make(chan struct{}, 8)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /agent/threads/{t}/runs/stream", k.run)
	mux.HandleFunc("GET /agent/threads/{t}/runs/r", func(w http.ResponseWriter, _ *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		fmt.Fprintf(w, `{"run_id":"r","status":%q}`, k.status)
	})
	mux.HandleFunc("POST /agent/threads/{t}/runs/r/cancel", func(w http.ResponseWriter, _ *http.Request) {
		k.mu.Lock()
		k.cancels++
		k.mu.Unlock()
		k.canceled <- struct{}{}
		_, _ = io.WriteString(w, `{"run_id":"r"}`)
	})
	mux.HandleFunc("GET /agent/threads/{t}", func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.threads) == 0 && k.waiting == "" {
			w.WriteHeader(404)
			_, _ = io.WriteString(w, `{"error":"not_found","message":"no thread","detail":"no thread"}`)
			return
		}
		interrupts := k.waiting
		if interrupts == "" {
			interrupts = "{}"
		}
		fmt.Fprintf(w, `{"thread_id":%q,"status":"idle","values":{"messages":[{"type":"human","content":"earlier\u001b[2J"}]},"interrupts":%s}`, r.PathValue("t"), interrupts)
	})
	mux.HandleFunc("POST /agent/threads/search", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[{"thread_id":"t-one","status":"idle","updated_at":"2026-01-02T03:04:05Z","values":{"messages":[{"type":"human","content":"about one"}]}},
{"thread_id":"t-two","status":"idle","updated_at":"2026-01-02T03:04:05Z"}]`)
	})
	mux.HandleFunc("GET /v1/settings", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"effective":{"model":"p/big"}}`)
	})
	mux.HandleFunc("GET /v1/settings/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"models":[{"id":"p/big","name":"Big"},{"id":"p/small","name":"Small"}],"errors":{"q":"no key"}}`)
	})
	mux.HandleFunc("GET /v1/sandboxes", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"sandboxes":[{"id":"box-1","status":"running","image":"base","isolation":"gvisor","thread":%q}]}`, r.URL.Query().Get("thread"))
	})
	mux.HandleFunc("GET /v1/sandboxes/box-1/files", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"entries":[{"path":"/workspace/fib.py","name":"fib.py","type":"file","size":120,"mode":"0644"}]}`)
	})
	mux.HandleFunc("GET /v1/plot", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a picture") })
	k.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		k.CloseClientConnections()
		k.Close()
	})
	return k
}

// waits sets what the thread waits with.
func (k *agentStub) waits(interrupts string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = interrupts
}

// asked is the text of a run's message, with what comes beside it.
func asked(body map[string]any) string {
	var r struct {
		Input struct {
			Messages []struct{ Content json.RawMessage }
		}
		Command struct{ Resume json.RawMessage }
	}
	raw, _ := json.Marshal(body)
	_ = json.Unmarshal(raw, &r)
	if len(r.Input.Messages) == 0 {
		return "resume " + string(r.Command.Resume)
	}
	var text string
	if json.Unmarshal(r.Input.Messages[0].Content, &text) != nil {
		return string(r.Input.Messages[0].Content)
	}
	return text
}

func (k *agentStub) run(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	text := asked(body)
	k.mu.Lock()
	k.requests, k.threads, k.status = append(k.requests, body), append(k.threads, r.PathValue("t")), "success"
	k.mu.Unlock()
	if text == "no model" {
		w.WriteHeader(503)
		_, _ = io.WriteString(w, `{"error":"unavailable","message":"the agent has no model","detail":"the agent has no model"}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	n := 0
	send := func(event, data string) {
		fmt.Fprintf(w, "event: %s\ndata: %s\nid: %d\n\n", event, data, n)
		n++
		w.(http.Flusher).Flush()
	}
	say := func(id, text string) {
		data, _ := json.Marshal(text)
		send("messages", fmt.Sprintf(`[{"type":"ai","id":%q,"content":%s},{"langgraph_node":"agent"}]`, id, data))
	}
	ended := func(status string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.status = status
	}
	send("metadata", `{"run_id":"r","attempt":1}`)
	switch {
	case text == "tools":
		say("m1", "I'll **run** it.")
		send("messages", `[{"type":"ai","id":"m1","content":"","tool_call_chunks":[{"index":0,"id":"c1","name":"execute_code","args":"{\"language\":\"python\",\"code\":\"print(1)\\nprint(2)\"}"}]},{}]`)
		send("custom", `{"type":"tool_output","tool_call_id":"c1","stream":"stdout","text":"one\u001b[2J\n"}`)
		send("messages", `[{"type":"tool","id":"m2","tool_call_id":"c1","name":"execute_code","content":"{\"success\":true,\"stdout\":\"1\\n2\\u001b[2J\\n\"}","status":"success","artifact":`+
			`{"display_outputs":[{"type":"image/png","url":"http://elsewhere.example/v1/plot"}]}},{}]`)
		say("m3", "It printed `1` and\x1b[2J `2`.")
		send("custom", `{"type":"usage","tokens":42,"cost_usd":0.001}`)
	case text == "fail":
		say("m1", "half an ans")
		ended("error")
		send("error", `{"error":"RateLimit","message":"the provider said no"}`)
	case text == "slow":
		say("m1", "begun ")
		select {
		case <-k.canceled:
		case <-r.Context().Done():
			return
		}
		ended("interrupted")
	case text == "danger":
		send("updates", `{"__interrupt__":[{"id":"i1","value":`+approval+`}]}`)
		ended("interrupted")
	case strings.HasPrefix(text, "resume "):
		if !strings.Contains(text, "reject") {
			send("messages", fmt.Sprintf(`[{"type":"tool","id":"m8","tool_call_id":"c-%s","name":"execute_terminal","content":"{\"exit_code\":0}","status":"success"},{}]`, uuid.NewString()))
		}
		say("m9", "decided: "+text)
	default:
		say("m1", "you said ")
		say("m1", text)
	}
}

func TestChatOnce(t *testing.T) {
	dir := t.TempDir()
	image, notImage := filepath.Join(dir, "a.gif"), filepath.Join(dir, "b.txt")
	for name, text := range map[string]string{image: "GIF89a\x01\x00\x01\x00", notImage: "text"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hint := "  for example: cubby settings set model anthropic/claude-sonnet-4-5, or start the daemon with\n" +
		"  CUBBY_AGENT_MODEL and the key of its provider, such as ANTHROPIC_API_KEY\n"
	tests := []struct {
		name, stdin    string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"a question", "", []string{"hi *you*"}, 0, "you said hi *you*\n", ""},
		{"with the input", "a log\n", []string{"why?"}, 0, "you said why?\n\na log\n", ""},
		{"of the input", "what?\n", nil, 0, "you said what?\n", ""},
		{"the answer alone", "", []string{"tools"}, 0, "It printed `1` and\x1b[2J `2`.\n", ""},
		{"it fails", "", []string{"fail"}, 1, "half an ans\n", "cubby: the provider said no\n"},
		{"no model", "", []string{"no model"}, 1, "", "cubby: the agent has no model\n" + hint},
		{"nobody allows it", "", []string{"danger", "--thread", "t-one"}, 3, "",
			"cubby: there is no thread t-one yet: it begins now\ncubby: the agent waits for leave to use a tool: see --yes and --no, or go on with cubby chat --thread t-one\n"},
		{"all is allowed", "", []string{"danger", "--yes"}, 0, `decided: resume {"decisions":[{"type":"approve"}]}` + "\n", ""},
		{"nothing is allowed", "", []string{"danger", "--no"}, 0, `decided: resume {"decisions":[{"type":"reject"}]}` + "\n", ""},
		{"an image", "", []string{"look", "--image", image}, 0,
			`you said [{"text":"look","type":"text"},{"data":"R0lGODlhAQABAA==","mimeType":"image/gif","type":"image"}]` + "\n", ""},
		{"no image", "", []string{"look", "--image", notImage}, 2, "", "cubby: " + notImage + " is no image\n  cubby chat --help\n"},
		{"no prompt", "", nil, 2, "", "cubby: give a prompt\n  cubby chat --help\n"},
		{"no text", "\xff\xfe", []string{"x"}, 2, "", "cubby: the input is no text\n  cubby chat --help\n"},
		{"nothing to go on with", "", []string{"-c", "x"}, 2, "", "cubby: there was no thread yet\n  cubby chat --help\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := newAgentStub(t)
			res := cubby(t, k.URL, strings.NewReader(tt.stdin), append([]string{"chat"}, tt.args...)...)
			if want := (result{tt.stdout, tt.stderr, tt.code}); res != want {
				t.Errorf("got %+v\nwant %+v", res, want)
			}
		})
	}

	k := newAgentStub(t)
	res := cubby(t, k.URL, nil, "chat", "tools", "-v", "--model", "p/m", "--sandbox", "box-1")
	if res.code != 0 || !strings.Contains(res.stderr, "I'll **run** it.\n▸ execute_code  python  ") || !strings.Contains(res.stderr, " s  ok\n") {
		t.Errorf("verbose: %+v", res)
	}
	config, _ := json.Marshal(k.requests[0]["config"])
	if string(config) != `{"configurable":{"model":"p/m","sandbox_id":"box-1"}}` {
		t.Errorf("asked with %s", config)
	}
	res = cubby(t, k.URL, nil, "chat", "hi", "--json")
	want := `{"event":"metadata","id":"0","data":{"run_id":"r","attempt":1}}
{"event":"messages","id":"1","data":[{"type":"ai","id":"m1","content":"you said "},{"langgraph_node":"agent"}]}
{"event":"messages","id":"2","data":[{"type":"ai","id":"m1","content":"hi"},{"langgraph_node":"agent"}]}
{"event":"end","id":"2","data":{"status":"success"}}
`
	if res.code != 0 || res.stdout != want {
		t.Errorf("json: %+v", res)
	}
}

// TestChatIsInterrupted: a signal cancels the run at the daemon.
func TestChatIsInterrupted(t *testing.T) {
	k := newAgentStub(t)
	signals := make(chan os.Signal)
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- Main(t.Context(), Env{
			Args: []string{"chat", "slow", "--json"}, Environ: []string{"CUBBY_URL=" + k.URL}, Stdout: w, Stderr: io.Discard, Signals: signals,
		})
		w.Close()
	}()
	text := ""
	for buf := make([]byte, 1024); !strings.Contains(text, "begun"); {
		n, err := r.Read(buf)
		if text += string(buf[:n]); err != nil {
			t.Fatalf("%v after %q", err, text)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	signals <- syscall.SIGINT
	if code := <-done; code != 130 || k.cancels != 1 {
		t.Errorf("exit code %d after %d cancels", code, k.cancels)
	}
}

// sitAndChat begins a conversation on a terminal.
func sitAndChat(t *testing.T, k *agentStub, state string, environ []string, args ...string) *seat {
	t.Helper()
	user, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	if err := pty.Setsize(user, &pty.Winsize{Cols: 60, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	s := &seat{newScreen(t, user), user, make(chan int, 1)}
	go func() {
		code := Main(t.Context(), Env{
			Args: append([]string{"chat"}, args...), Environ: append(environ, "CUBBY_URL="+k.URL, "XDG_STATE_HOME="+state), Stdin: tty, Stdout: tty, Stderr: tty,
		})
		_ = tty.Close() // the reader sees the end
		s.done <- code
	}()
	return s
}

func TestChatConversation(t *testing.T) {
	k := newAgentStub(t)
	state, files := t.TempDir(), t.TempDir()
	s := sitAndChat(t, k, state, nil, "--files", files)
	s.wait("a new thread")
	s.wait("> ")
	s.enter("hello **you**\r", "you said hello \x1b[1myou\x1b[0m\r\n", "> ")

	// Several lines, typed and pasted.
	s.enter("one\\\r", "… ")
	s.enter("two\r", "you said one\r\ntwo\r\n", "> ")
	s.enter("\x1b[200~a\rb\x1b[201~", "b")
	s.enter("\r", "you said a\r\nb\r\n", "> ")

	// Tools, what they print and show.
	s.enter("tools\r", "I'll \x1b[1mrun \x1b[0mit.\r\n", "▸ execute_code  python  ", " s  ok", filepath.Join(files, "1.png"), "It printed \x1b[36m1 \x1b[0mand[2J \x1b[36m2\x1b[0m.\r\n",
		"42 tokens, $0.0010", "> ")
	if got, err := os.ReadFile(filepath.Join(files, "1.png")); string(got) != "a picture" {
		t.Errorf("the image is %q, %v", got, err)
	}
	s.enter("/show\r", "input:", "language: python", "code:\r\n    print(1)\r\n    print(2)", "output:", "stdout:\r\n    1\r\n    2?[2J", "> ")
	s.enter("\x0f", "print(1)", "> ")

	// Ctrl-C ends the turn and not the chat.
	s.enter("slow\r", "begun")
	s.enter("\x03", "cancelling", "the turn was cancelled", "> ")
	if k.cancels != 1 {
		t.Errorf("%d cancels", k.cancels)
	}
	s.enter("\x03", "Ctrl-D or /exit leaves", "> ")
	s.enter("fail\r", "half an ans", "cubby: the provider said no", "> ")

	// What the agent may not do unasked.
	s.enter("danger\r", "The agent wants to run a ?[2Jcommand.", "command: rm -r /tmp/x", "approve, edit, reject? ")
	s.enter("a\r", `decided: resume {"decisions":[{"type":"approve"}]}`, "> ")
	s.enter("danger\r", "reject? ")
	s.enter("what\r", "reject? ")
	s.enter("n\r", "why, for the agent")
	s.enter("too much\r", `{"message":"too`, "> ")
	s.enter("danger\r", "reject? ")
	s.enter("edit\r", `arguments as JSON: {"command":"rm -r /tmp/x"}`)
	s.enter("{oops\r", "that is no JSON object", "reject? ")
	s.enter("e\r", `arguments as JSON: {"command":"rm -r /tmp/x"}`)
	s.enter("\x15{\"command\":\"ls\"}\r", "▸ execute_terminal  ls  ", " s  ok", `"edited_action":{"args":{"command":"ls"},"name":"execute_`, "> ")
	s.enter("danger\r", "reject? ")
	s.enter("\x03", "the question stays open: /answer asks it again", "> ")
	s.enter("/answer\r", "the agent has asked nothing", "> ") // it is answered elsewhere meanwhile
	k.waits(`{"task":[{"id":"i1","value":` + approval + `}]}`)
	s.enter("/answer\r", "approve, edit, reject? ")
	s.enter("\x04", "the question stays open", "> ")
	s.enter("/answer\r", "approve, edit, reject? ")
	s.enter("y\r", "▸ execute_terminal  rm -r /tmp/x  ", "decided: resume", "> ")
	k.waits("")

	// Commands.
	s.enter("/he\t\r", "/threads", "> ")
	s.enter("/model\r", "p/big*", "p/small", "no key", "p/big answers", "> ")
	s.enter("/model p/small\r", "p/small answers from now on", "> ")
	s.enter("/sandbox\r", "box-1", "running", "> ")
	s.enter("/files\r", "fib.py", "> ")
	s.enter("/nonsense\r", "no command /nonsense", "> ")
	s.enter("/etc/passwd what is it\r", "you said /etc/passwd", "> ")
	s.enter("/threads\r", "about one", "number, or nothing to stay: ")
	s.typed("\x04") // closes the list
	if got := s.wait("> "); strings.Contains(got, "EOF") {
		t.Errorf("Ctrl-D in the list of threads shows %q", got)
	}
	s.enter("/threads\r", "about one", "number, or nothing to stay: ")
	s.enter("2\r", "thread t-two", "> ")
	s.enter("x\r", "you said x", "> ")
	s.typed("\x04")
	if code := s.exit(); code != 0 {
		t.Errorf("Ctrl-D exits with %d", code)
	}
	if last := k.threads[len(k.threads)-1]; last != "t-two" || k.threads[0] == "t-two" {
		t.Errorf("the threads were %q", k.threads)
	}

	// It goes on where it was, with its history; /new begins another.
	s = sitAndChat(t, k, state, nil)
	s.wait("thread t-two: “earlier?[2J”, 1 message")
	s.wait("> ")
	s.enter("\x1b[A", "x")
	s.enter("\r", "you said x", "> ")
	s.enter("/new\r", "a new thread", "> ")
	s.enter("y\r", "you said y", "> ")
	s.enter("/exit\r")
	s.exit()
	last := k.threads[len(k.threads)-1]
	text, err := os.ReadFile(filepath.Join(state, "cubby", "cli-thread.json"))
	if want := fmt.Sprintf("{\"thread_id\":%q}\n", last); string(text) != want || last == "t-two" {
		t.Errorf("the state is %q, %v, want %q", text, err, want)
	}
}

// TestChatOnceOnATerminal answers one question, asks back, and ends.
func TestChatOnceOnATerminal(t *testing.T) {
	k := newAgentStub(t)
	dir := t.TempDir()
	editor := filepath.Join(dir, "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\necho editing\nread answer\necho \"{\\\"command\\\":\\\"$answer\\\"}\" > \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := sitAndChat(t, k, dir, []string{"EDITOR=" + editor, "PATH=" + os.Getenv("PATH")}, "danger")
	s.wait("reject? ")
	s.enter("edit\r", "editing") // what is typed before the editor runs is for the chat
	s.typed("from the editor\n")
	s.wait(`{"command":"from`)
	if code := s.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	s = sitAndChat(t, k, dir, nil, "slow")
	s.wait("begun")
	s.typed("\x03")
	if code := s.exit(); code != 130 {
		t.Errorf("Ctrl-C exits with %d", code)
	}

	// A thread that waits is asked about when it is opened.
	k.waiting = `{"task":[{"id":"i1","value":` + approval + `}]}`
	s = sitAndChat(t, k, dir, nil, "--thread", "t-one")
	s.wait("approve, edit, reject? ")
	s.enter("y\r", "decided: resume", "> ")
	s.typed("\x04")
	if code := s.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestChatAsksBeforeItBeginsANamedThread: an id that is mistyped is no new thread.
func TestChatAsksBeforeItBeginsANamedThread(t *testing.T) {
	k := newAgentStub(t)
	dir := t.TempDir()
	for _, leave := range []string{"n\r", "\r", "\x03", "\x04"} {
		s := sitAndChat(t, k, dir, nil, "--thread", "t-oen")
		s.wait("there is no thread t-oen; begin it? (y/n) ")
		s.typed(leave)
		if code := s.exit(); code != 0 || len(k.threads) > 0 {
			t.Errorf("after %q: exit code %d, threads %q", leave, code, k.threads)
		}
	}
	s := sitAndChat(t, k, dir, nil, "--thread", "t-new", "hello")
	s.wait("begin it? (y/n) ")
	s.enter("y\r", "you said hello")
	if code := s.exit(); code != 0 || len(k.threads) != 1 || k.threads[0] != "t-new" {
		t.Errorf("exit code %d, threads %q", code, k.threads)
	}
}

// TestChatIsDrawnAgainOnANarrowerTerminal: lines that were set for a wide one would break
// within words.
func TestChatIsDrawnAgainOnANarrowerTerminal(t *testing.T) {
	k := newAgentStub(t)
	s := sitAndChat(t, k, t.TempDir(), nil)
	s.wait("> ")
	words := strings.TrimSpace(strings.Repeat("seventeen ", 12))
	s.enter(words+"\r", "seventeen\r\n", "> ")
	narrow := func() {
		if err := pty.Setsize(s.user, &pty.Winsize{Cols: 25, Rows: 20}); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
			t.Fatal(err)
		}
	}
	narrow()
	s.wait("\x1b[H\x1b[2J")
	s.wait("you said seventeen\r\nseventeen seventeen\r\nseventeen seventeen\r\n")
	s.wait("> ")
	// The answer that comes is drawn again with what came before.
	s.enter("slow\r", "begun")
	narrow()
	s.wait("\x1b[2J")
	s.wait("begun")
	s.enter("\x03", "the turn was cancelled", "> ")
	s.typed("\x04")
	s.exit()
}
