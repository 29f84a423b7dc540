//go:build root

package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/git/gittest"
)

// TestTaskPush: a task that succeeds is pushed to the project's remote with the
// operator's token. An agent that plants hooks, settings and a program that watches
// the environment of every process does not see it.
func TestTaskPush(t *testing.T) {
	t.Parallel()
	const user, token = "x-access-token", "ghp_s3cr3t-t0ken"
	inIsolations(t, []string{"gvisor", "container"}, sdk.CreateOptions{}, func(t *testing.T, h realHost, c *sdk.Client) {
		server := gittest.New(t, gittest.Options{Address: elsewhere + ":0", Username: user, Password: token})
		url := server.Repo(t, "app.git")
		succeed(t, "PUT", h.URL+"/v1/secrets/GIT_TOKEN", fmt.Sprintf(`{"value":%q}`, token), nil)
		succeed(t, "PATCH", h.URL+"/v1/sandboxes/a", fmt.Sprintf(`{"git_remote_url":%q}`, url), nil)
		if _, err := c.GitClone(t.Context(), "a", sdk.GitCloneOptions{URL: url, Dest: "app", GitLogin: sdk.GitLogin{Token: token}}); err != nil {
			t.Fatal(err)
		}
		const agent = `echo '{"type":"text","part":{"id":"p","text":"made"}}'
echo made > made.txt
for hook in pre-push pre-commit reference-transaction; do printf '#!/bin/sh\nenv >> /tmp/seen\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook; done
git config credential.helper '!env >> /tmp/seen; cat >> /tmp/seen; :'
git config core.fsmonitor 'env >> /tmp/seen'
setsid sh -c 'echo $$ > /tmp/watcher; while :; do cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; sleep 0.02; done >> /tmp/seen 2> /dev/null' > /dev/null 2>&1 < /dev/null &`
		body, err := json.Marshal(map[string]any{"prompt": "x", "command": []string{"sh", "-c", agent, "agent"}, "protocol": "json-lines", "cwd": "app"})
		if err != nil {
			t.Fatal(err)
		}
		var task aTask
		succeed(t, "POST", h.URL+"/v1/sandboxes/a/tasks", string(body), &task)
		var done struct {
			Status string
			Push   struct {
				OK      bool
				Commit  string
				Message string
			}
		}
		succeed(t, "GET", h.URL+"/v1/sandboxes/a/tasks/"+task.ID+"?wait_seconds=120", "", &done)
		if done.Status != "succeeded" || !done.Push.OK {
			t.Fatalf("the task ended so: %+v", done)
		}
		if got := strings.TrimSpace(server.Git(t, "app.git", "log", "-1", "--format=%H %s", "main")); got != done.Push.Commit+" task "+task.ID {
			t.Errorf("the remote has %q, the task pushed %s", got, done.Push.Commit)
		}
		if text := sh(t, c, "cat /tmp/seen | tr '\\0' '\\n' | sort -u"); !strings.Contains(text.Stdout, "PATH=") || strings.Contains(text.Stdout, token) {
			t.Errorf("what the agent left saw the token, or nothing: %d bytes, %v", len(text.Stdout), strings.Contains(text.Stdout, token))
		}
		// The watcher would see what is looked for.
		sh(t, c, "kill $(cat /tmp/watcher); rm /tmp/seen")
		if found := sh(t, c, "grep -rlF "+token+" /workspace /home /tmp /root /etc 2> /dev/null"); found.Stdout != "" {
			t.Errorf("the token is in %s", found.Stdout)
		}

		// A remote that does not take it is no failure of the task.
		succeed(t, "DELETE", h.URL+"/v1/secrets/GIT_TOKEN", "", nil)
		succeed(t, "POST", h.URL+"/v1/sandboxes/a/tasks", string(body), &task)
		succeed(t, "GET", h.URL+"/v1/sandboxes/a/tasks/"+task.ID+"?wait_seconds=120", "", &done)
		if done.Status != "succeeded" || done.Push.OK || done.Push.Message == "" {
			t.Errorf("without a token it ended so: %+v", done)
		}
	})
}

// TestTaskSleepsWithItsSandbox: a task goes on where it was when its sandbox wakes,
// and who follows it sees no gap.
func TestTaskSleepsWithItsSandbox(t *testing.T) {
	t.Parallel()
	inIsolations(t, []string{"gvisor"}, sdk.CreateOptions{}, func(t *testing.T, h realHost, _ *sdk.Client) {
		c := &coder{t: t, h: h, url: h.URL, id: "a"}
		const agent = `echo one; until [ -e /tmp/go ]; do sleep 0.1; done; echo two`
		task := c.start(fmt.Sprintf(`{"prompt":"x","command":["sh","-c",%q],"protocol":"json-lines"}`, agent))
		c.follow(task, "", func(events []anEvent) bool { return strings.Contains(events[len(events)-1].data, `"text":"one"`) })
		slept := make(chan struct{})
		var events []anEvent
		go func() {
			defer close(slept)
			events = c.follow(task, "", toTheEnd)
		}()
		var state struct{ Status string }
		succeed(t, "POST", h.URL+"/v1/sandboxes/a/sleep", `{"force":true}`, &state)
		if state.Status != "sleeping" {
			t.Fatalf("the sandbox is %s", state.Status)
		}
		c.sh("touch /tmp/go") // which wakes it
		<-slept
		c.checkIDs(events)
		var texts []string
		for _, e := range events {
			var m struct{ Text string }
			if e.name == "message" && json.Unmarshal([]byte(e.data), &m) == nil {
				texts = append(texts, m.Text)
			}
		}
		if got := strings.Join(texts, " "); got != "one two" {
			t.Errorf("messages %s", got)
		}
		if done := c.end(task); done.Status != "succeeded" || done.FinalMessage != "two" {
			t.Errorf("the task ended so: %+v", done)
		}
	})
}
