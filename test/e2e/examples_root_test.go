//go:build root

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"image/png"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// examples are the programs of examples, with the packages of those for Node, and a
// model that answers them.
type examples struct {
	t        *testing.T
	packages string // has a directory with node_modules for each
	model    string // URL
}

func newExamples(t *testing.T) examples {
	t.Helper()
	cmd := exec.Command("../../scripts/example-packages.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("fetch the packages of the examples: %v", err)
	}
	x := examples{t: t, packages: strings.TrimSpace(string(out))}
	x.model = x.startModel()
	return x
}

// install puts a program into a directory of its own, beside its packages.
func (x examples) install(program string) (dir string) {
	x.t.Helper()
	dir = x.t.TempDir()
	text, err := os.ReadFile(program)
	if err != nil {
		x.t.Fatal(err)
	}
	name := filepath.Base(filepath.Dir(program))
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(program)), text, 0o600); err != nil {
		x.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(x.packages, name, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		x.t.Fatal(err)
	}
	return dir
}

func (x examples) startModel() (url string) {
	x.t.Helper()
	cmd := exec.Command("node", "model.mjs")
	cmd.Dir = x.install("testdata/model/model.mjs")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		x.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // says that it was killed
	})
	url, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		x.t.Fatalf("the model printed %q: %v", url, err)
	}
	return strings.TrimSpace(url)
}

// run runs a program of a directory to its end and returns what it printed.
func (x examples) run(interpreter, dir, program, daemon, input string, args ...string) string {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, append([]string{program}, args...)...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), "CUBBY_URL="+daemon, "CUBBY_TOKEN=s3cret", "OPENAI_BASE_URL="+x.model+"/v1", "OPENAI_API_KEY=none")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		x.t.Fatalf("%s: %v\n%s%s", program, err, out, stderr.String())
	}
	return string(out)
}

// TestExampleAISDK has the Vercel AI SDK run code over MCP, as a newcomer would.
func TestExampleAISDK(t *testing.T) {
	t.Parallel()
	x := newExamples(t)
	h := newReal(t, harness.Options{})
	url, err := h.start([]string{"--tokens", "me:s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	word := rand.Text()
	dir := x.install("../../examples/ai-sdk/analyst.mjs")
	printed := x.run("node", dir, "analyst.mjs", url, "", "Plot the digest of "+word)

	digest := fmt.Sprintf("/workspace %x", sha256.Sum256([]byte(word)))
	want := regexp.MustCompile(`(?s)^A session first\.
> create_session
\{"language":"python"\}

> execute_code
import hashlib, os
.*
` + digest + `
\[saved plot-1\.png\]
Session (\w+) printed ` + digest + ` and showed 1 plots\.
$`)
	match := want.FindStringSubmatch(printed)
	if match == nil {
		t.Fatalf("printed %q, want %s", printed, want)
	}
	checkPlot(t, filepath.Join(dir, "plot-1.png"))

	// The sandbox ran it, and is gone with the conversation.
	history, _, err := sdk.New(url, sdk.WithToken("s3cret")).Events(t.Context(), match[1], 0, 100, "code.run", "sandbox.destroyed")
	if err != nil {
		t.Fatal(err)
	}
	var happened []string
	for _, e := range history {
		happened = append(happened, fmt.Sprint(e.Kind, " ", e.Status))
	}
	if got, want := strings.Join(happened, ", "), "code.run running, code.run done, sandbox.destroyed done"; got != want {
		t.Errorf("the history of the session is %s, want %s", got, want)
	}

	page := strings.Replace(snippet(t, "../../docs/mcp.md", "Vercel AI SDK"), "http://127.0.0.1:9090", url, 1)
	if err := os.WriteFile(filepath.Join(dir, "page.mjs"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	if printed := x.run("node", dir, "page.mjs", url, ""); !strings.Contains(printed, " printed 78498 and showed 0 plots.") {
		t.Errorf("what docs/mcp.md shows printed %q", printed)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}

// TestExampleLangGraph has the LangGraph SDK talk to cubby's agent, and a person say
// no and yes.
func TestExampleLangGraph(t *testing.T) {
	t.Parallel()
	x := newExamples(t)
	x.approval("node", x.install("../../examples/langgraph/approval.mjs"), "approval.mjs")
}

// approval runs a program that asks a person before the agent runs a command.
func (x examples) approval(interpreter, dir, program string) {
	t := x.t
	t.Helper()
	h := newReal(t, harness.Options{Env: []string{"OPENAI_BASE_URL=" + x.model + "/v1", "OPENAI_API_KEY=none"}})
	url, err := h.start([]string{"--tokens", "me:s3cret", "--agent-model", "openai/gpt-5-mini"})
	if err != nil {
		t.Fatal(err)
	}
	word := rand.Text()
	digest := fmt.Sprintf("%x  -", sha256.Sum256([]byte(word)))
	file := filepath.Join(dir, "digest.txt")
	command := regexp.QuoteMeta("pwd; printf %s " + word + " | sha256sum | tee digest.txt")
	for _, tt := range []struct{ says, then, exports string }{
		{"n", `I was told: .*The user does not want this\.`, `There is none\.`},
		{"y", `/workspace\n` + digest + `\n+It printed /workspace\n` + digest + `\.`, `Here it is\.\n+\[saved digest\.txt\]`},
	} {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("there is a file before a person says yes: %v", err)
		}
		printed := x.run(interpreter, dir, program, url, tt.says+"\n", "Write the digest of "+word)
		want := `^> execute_terminal \{"command":"` + command + `"\}\n+` +
			`May it use execute_terminal: .*` + command + `.*\? \[y/n\] ` + tt.then +
			`\n+> export_files \{"files":\[\{"source":"digest\.txt"\}\]\}\n+` + tt.exports + `\n+$`
		if !regexp.MustCompile(want).MatchString(printed) {
			t.Errorf("after %s it printed %q, want %s", tt.says, printed, want)
		}
	}
	if saved, err := os.ReadFile(file); err != nil || string(saved) != digest+"\n" {
		t.Errorf("it saved %q, %v, want %q", saved, err, digest)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}

// snippet returns the JavaScript below a heading of a page.
func snippet(t *testing.T, page, heading string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### "+heading+"\n")
	_, code, _ := strings.Cut(section, "```js\n")
	code, _, ok := strings.Cut(code, "```\n")
	if !ok {
		t.Fatalf("%s has no JavaScript below %s", page, heading)
	}
	return code
}

// checkPlot checks that a file is a PNG with a figure of matplotlib in it.
func checkPlot(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	figure, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	colours := map[any]bool{}
	for y := range figure.Bounds().Dy() {
		for x := range figure.Bounds().Dx() {
			colours[figure.At(x, y)] = true
		}
	}
	if b := figure.Bounds(); b.Dx() < 300 || b.Dy() < 200 || len(colours) < 3 {
		t.Errorf("the figure of %v has %d colours", b, len(colours))
	}
}
