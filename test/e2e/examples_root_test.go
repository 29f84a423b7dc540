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

// nodeExamples are the programs of examples for Node, with their packages, and a
// model that answers them.
type nodeExamples struct {
	t        *testing.T
	packages string // has a directory with node_modules for each
	model    string // URL
}

func newNodeExamples(t *testing.T) nodeExamples {
	t.Helper()
	cmd := exec.Command("../../scripts/example-packages.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("fetch the packages of the examples: %v", err)
	}
	x := nodeExamples{t: t, packages: strings.TrimSpace(string(out))}
	x.model = x.startModel()
	return x
}

// install puts a program into a directory of its own, beside its packages.
func (x nodeExamples) install(program string) (dir string) {
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

func (x nodeExamples) startModel() (url string) {
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
func (x nodeExamples) run(dir, program, daemon, input string, args ...string) string {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{program}, args...)...)
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
	x := newNodeExamples(t)
	h := newReal(t, harness.Options{})
	url, err := h.start([]string{"--tokens", "me:s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	word := rand.Text()
	dir := x.install("../../examples/ai-sdk/analyst.mjs")
	printed := x.run(dir, "analyst.mjs", url, "", "Plot the digest of "+word)

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
	if printed := x.run(dir, "page.mjs", url, ""); !strings.Contains(printed, " printed 78498 and showed 0 plots.") {
		t.Errorf("what docs/mcp.md shows printed %q", printed)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}

// TestExampleLangGraph has the LangGraph SDK talk to cubby's agent, and a person say
// yes and no.
func TestExampleLangGraph(t *testing.T) {
	t.Parallel()
	x := newNodeExamples(t)
	h := newReal(t, harness.Options{Env: []string{"OPENAI_BASE_URL=" + x.model + "/v1", "OPENAI_API_KEY=none"}})
	url, err := h.start([]string{"--tokens", "me:s3cret", "--agent-model", "openai/gpt-5-mini"})
	if err != nil {
		t.Fatal(err)
	}
	word := rand.Text()
	dir := x.install("../../examples/langgraph/approval.mjs")
	file := filepath.Join(dir, "digest.txt")
	command := "pwd; printf %s " + word + " | sha256sum | tee digest.txt"
	asked := "> execute_terminal {\"command\":\"" + command + "\"}\n\nMay it use execute_terminal: " + command + "? [y/n] "
	exports := "\n\n> export_files {\"files\":[{\"source\":\"digest.txt\"}]}\n"

	printed := x.run(dir, "approval.mjs", url, "n\n", "Write the digest of "+word)
	want := "^" + regexp.QuoteMeta(asked) + "I was told: .*The user does not want this\\." + regexp.QuoteMeta(exports) + "There is none\\.\n\n$"
	if !regexp.MustCompile(want).MatchString(printed) {
		t.Errorf("rejected, it printed %q, want %s", printed, want)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rejected, it saved %s: %v", file, err)
	}

	digest := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(word)))
	printed = x.run(dir, "approval.mjs", url, "y\n", "Write the digest of "+word)
	want = asked + "/workspace\n" + digest + "It printed /workspace\n" + strings.TrimSpace(digest) + "." + exports + "Here it is.\n\n[saved digest.txt]\n"
	if printed != want {
		t.Errorf("approved, it printed %q, want %q", printed, want)
	}
	if saved, err := os.ReadFile(file); err != nil || string(saved) != digest {
		t.Errorf("approved, it saved %q, %v, want %q", saved, err, digest)
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
