//go:build root

package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/cubbyhq/cubby/internal/llm/llmtest"
	"github.com/cubbyhq/cubby/test/harness"
)

// models is what the agent's model answers: it is a program of others that speaks its
// provider's protocol.
const models = `[
{"match":{"userMessage":"fibonacci","hasToolResult":false},"response":{"content":"I'll write a **script** and run it.","toolCalls":[{"id":"call_1","name":"execute_code",
"arguments":"{\"code\":\"a, b = 0, 1\\nfor _ in range(20):\\n    print(a)\\n    a, b = b, a + b\"}"}]}},
{"match":{"userMessage":"fibonacci","hasToolResult":true},"response":{"content":"They are **0 to 4181**."}},
{"match":{"userMessage":"wait","hasToolResult":false},"response":{"toolCalls":[{"id":"call_2","name":"execute_terminal",
"arguments":"{\"command\":\"for i in $(seq 600); do echo line $i; sleep 0.2; done\"}"}]}},
{"match":{"userMessage":"plot","hasToolResult":false},"response":{"toolCalls":[{"id":"call_3","name":"execute_code",
"arguments":"{\"code\":\"import matplotlib.pyplot as plt\\nplt.plot([1, 2]); plt.show()\"}"}]}},
{"match":{"userMessage":"plot","hasToolResult":true},"response":{"content":"Here it is."}},
{"match":{"userMessage":"after"},"response":{"content":"I am still here."}}
]`

// startModel starts the program that is the model, and returns its address.
func startModel(t *testing.T) string {
	t.Helper()
	return llmtest.Aimock(t, appPackages(t, "opencode"), json.RawMessage(models), "-c", "4")
}

// chatting is a terminal in which cubby chat runs.
type chatting struct {
	t    *testing.T
	user *os.File
	text string // that was shown and not waited for
}

func (c *chatting) wait(text string) {
	c.t.Helper()
	buf := make([]byte, 4096)
	for !strings.Contains(c.text, text) {
		n, err := c.user.Read(buf)
		if c.text += string(buf[:n]); err != nil {
			c.t.Fatalf("%v before %q came; the screen shows %q", err, text, c.text)
		}
	}
	_, c.text, _ = strings.Cut(c.text, text)
}

func (c *chatting) enter(keys string, shown ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c.user, keys); err != nil {
		c.t.Fatal(err)
	}
	for _, text := range shown {
		c.wait(text)
	}
}

// TestChat asks the agent as people do: its model is asked, and what that calls runs in a
// sandbox.
func TestChat(t *testing.T) {
	t.Parallel()
	h := newReal(t, harness.Options{Env: []string{"ANTHROPIC_API_KEY=" + key, "ANTHROPIC_BASE_URL=" + startModel(t), "CUBBY_AGENT_MODEL=anthropic/claude-sonnet-4-5"}})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	cubby := func(args ...string) *exec.Cmd {
		cmd := exec.Command(h.Program, append([]string{"chat"}, args...)...)
		cmd.Env = append(os.Environ(), "CUBBY_URL="+url, "CUBBY_TOKEN=", "XDG_STATE_HOME="+state)
		return cmd
	}
	run := func(stdin string, args ...string) (stdout, stderr string, err error) {
		var out, errOut bytes.Buffer
		cmd := cubby(args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
		err = cmd.Run()
		return out.String(), errOut.String(), err
	}
	out, errOut, err := run("", "-v", "Write a Python script that prints the first 20 fibonacci numbers")
	if err != nil || out != "They are **0 to 4181**.\n" || !strings.Contains(errOut, "▸ execute_code  ") || !strings.Contains(errOut, " s  ok\n") {
		t.Errorf("a question: %q, %q, %v", out, errOut, err)
	}
	out, _, err = run("fibonacci, please", "--json")
	if err != nil || !strings.Contains(out, `2584\\n4181`) || !strings.HasSuffix(out, "\"data\":{\"status\":\"success\"}}\n") {
		t.Errorf("as JSON: %v, %s", err, out)
	}

	user, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	files := t.TempDir()
	cmd := cubby("--files", files)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	limit := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // then the terminal ends
	defer limit.Stop()
	c := &chatting{t: t, user: user}
	c.wait("> ") // it goes on with the thread of the last question
	c.enter("/new\r", "a new thread", "> ")
	c.enter("fibonacci, please\r", "I'll write a \x1b[1mscript \x1b[0mand run it.", "▸ execute_code  ", " s  ok", "They are \x1b[1m0 to 4181\x1b[0m.", "> ")
	c.enter("/show\r", "for _ in range(20):", "2584\r\n    4181\r\n", "> ")
	c.enter("/sandbox\r", "running", "> ")
	c.enter("plot\r", filepath.Join(files, "1.png"), "Here it is.", "> ")
	if image, err := os.ReadFile(filepath.Join(files, "1.png")); err != nil || !bytes.HasPrefix(image, []byte("\x89PNG")) {
		t.Errorf("the image has %d bytes, %v", len(image), err)
	}
	c.enter("wait\r", "line 2")
	c.enter("\x03", "the turn was cancelled", "> ")
	c.enter("are you there after that?\r", "I am still here.", "> ")
	c.enter("\x04")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the chat ended with %v", err)
	}
}
