//go:build root && long

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// imageDev builds the image of coding agents unless it is there.
func imageDev(t *testing.T) {
	t.Helper()
	program, images := harness.Program(t), harness.Images(t)
	if out, err := exec.Command(program, "image", "ls", "--json", "--image-dir", images).Output(); err == nil && strings.Contains(string(out), `"dev"`) {
		return
	}
	if out, err := exec.Command(program, "image", "build", "dev", "--image-dir", images).CombinedOutput(); err != nil {
		t.Fatalf("build the image dev: %v\n%s", err, out)
	}
}

// modelsOf has what the models of all agents answer, for work in a directory that
// ends in a server.
func modelsOf(t *testing.T, cwd string) string {
	t.Helper()
	names, err := filepath.Glob("../agents/fixtures/*.json")
	if err != nil || len(names) == 0 {
		t.Fatal(err, names)
	}
	var all []json.RawMessage
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Fixtures []json.RawMessage }
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		all = append(all, file.Fixtures...)
	}
	text, err := json.Marshal(map[string]any{"fixtures": all})
	if err != nil {
		t.Fatal(err)
	}
	const serve = "setsid python3 -m http.server 3000 > /dev/null 2>\\u00261 < /dev/null \\u0026 until curl -sf localhost:3000 > /dev/null; do sleep 0.1; done;"
	return strings.NewReplacer("@CWD@", cwd, "echo made", serve+" echo made").Replace(string(text))
}

// TestAgentsOfImageDev has each agent of the image dev write a file, run a command
// that serves it, and show its preview; and cancels one half-way.
func TestAgentsOfImageDev(t *testing.T) {
	packages := appPackages(t, "opencode")
	imageDev(t)
	h := newReal(t, harness.Options{})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, isolation := range []string{"gvisor", "container"} {
		for _, agent := range []string{"opencode", "claude", "codex", "gemini"} {
			t.Run(isolation+"/"+agent, func(t *testing.T) {
				c := &coder{t: t, h: h, url: url, id: agent + "-" + isolation}
				succeed(t, "POST", url+"/v1/sandboxes", fmt.Sprintf(
					`{"id":%q,"image":"dev","isolation":%q,"ports":[3000],"visibility":"public","limits":{"memory_bytes":3221225472,"cpus":2,"disk_bytes":4294967296}}`, c.id, isolation), nil)
				defer call(t, "DELETE", url+"/v1/sandboxes/"+c.id, "")
				c.furnish(packages, modelsOf(t, "/workspace/app"))
				begin := func(prompt string) aTask {
					body, err := json.Marshal(map[string]any{
						"prompt": prompt, "agent": agent, "model": agent + "-model", "cwd": "app",
						"env": map[string]string{
							"OPENAI_API_KEY": key, "OPENAI_BASE_URL": "http://127.0.0.1:4010/v1", "ANTHROPIC_API_KEY": key,
							"ANTHROPIC_BASE_URL": "http://127.0.0.1:4010", "GEMINI_API_KEY": key, "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:4010",
						},
					})
					if err != nil {
						t.Fatal(err)
					}
					return c.start(string(body))
				}
				task := begin("Please do the cubby-work.")
				events := c.follow(task, "", toTheEnd)
				c.checkIDs(events)
				done := c.end(task)
				if done.Status != "succeeded" || !slices.Equal(done.FilesChanged, []string{"hello.txt", "made.txt"}) || done.Preview != "ready" {
					t.Fatalf("the task ended so: %+v\n%s", done, events)
				}
				if strings.Contains(fmt.Sprint(events), key) {
					t.Errorf("the key is in %s", events)
				}
				var port struct{ URL string }
				succeed(t, "GET", url+"/v1/sandboxes/"+c.id+"/ports/3000", "", &port)
				if page := c.visit(port.URL + "hello.txt"); !strings.Contains(page, "hello.txt") {
					t.Errorf("the preview shows %s", page)
				}
				slow := begin("cubby-slow")
				c.follow(slow, "", func(events []anEvent) bool { return events[len(events)-1].name == "delta" })
				succeed(t, "POST", url+"/v1/sandboxes/"+c.id+"/tasks/"+slow.ID+"/cancel", "", nil)
				if done := c.end(slow); done.Status != "cancelled" {
					t.Errorf("the cancelled task ended so: %+v", done)
				}
			})
		}
	}
}
