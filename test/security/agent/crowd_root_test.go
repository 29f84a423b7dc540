//go:build root

package agent_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// crowd has 50 threads talk to the agent at once, the first of them with so many
// sandboxes. Each gets its own words back, and no others.
func crowd(t *testing.T, withSandboxes int) {
	const threads = 50
	d := start(t, newModel(t, obey), "--max-active-threads=0", "--max-thread-sandboxes=0", "--max-agent-runs-per-tenant=0", "--max-agent-runs=0")
	ids, words := make([]string, threads), make([]string, threads)
	var all sync.WaitGroup
	for i := range threads {
		ids[i], words[i] = d.thread(""), rand.Text()
	}
	for i := range threads {
		all.Go(func() {
			path := "/agent/threads/" + ids[i] + "/runs/wait"
			say, recall := "DO no_such_tool {}\nMy word is "+words[i], "RECALL"
			if i < withSandboxes {
				say = fmt.Sprintf(`DO execute_terminal {"command":"test ! -e word && echo %s >word && cat word"}`, words[i])
				recall = `DO execute_terminal {"command":"cat word"}`
			}
			for _, text := range []string{say, recall} {
				status, answer := d.do("", http.MethodPost, path, human(text))
				if status != http.StatusOK || !strings.Contains(string(answer), words[i]) || strings.Contains(string(answer), "__error__") {
					t.Errorf("thread %d: %d %.1000s", i, status, answer)
					return
				}
				for k, word := range words {
					if k != i && strings.Contains(string(answer), word) {
						t.Errorf("thread %d was told the word of thread %d", i, k)
					}
				}
			}
			// The newest message alone has it: it is not there from the first run.
			var o outcome
			d.must("", http.MethodGet, "/agent/threads/"+ids[i]+"/state", nil, &struct{ Values *outcome }{&o})
			if !strings.Contains(o.last(), words[i]) {
				t.Errorf("thread %d ends with %.300s", i, o.last())
			}
		})
	}
	all.Wait()
	d.bounded(fmt.Sprintf("%d runs at once, %d of them with sandboxes", threads, withSandboxes))

	for _, id := range ids {
		all.Go(func() { d.must("", http.MethodDelete, "/agent/threads/"+id, nil, nil) })
	}
	all.Wait()
	var left struct {
		Sandboxes []struct{ ID, State string } `json:"sandboxes"`
	}
	if !until(t, func() bool {
		d.must("", http.MethodGet, "/v1/sandboxes", nil, &left)
		return len(left.Sandboxes) == 0
	}) {
		t.Errorf("sandboxes are left: %+v", left.Sandboxes)
	}
	var found []object
	d.must("", http.MethodPost, "/agent/threads/search", object{"limit": 100}, &found)
	journals, err := os.ReadDir(filepath.Join(d.Dir, "agent"))
	if err != nil {
		t.Fatal(err)
	}
	journals = slices.DeleteFunc(journals, func(e os.DirEntry) bool { return e.Name() == "spare" }) // empty ones, for the next runs
	if len(found) > 0 || len(journals) > 0 {
		t.Errorf("%d threads and the journals %v are left", len(found), journals)
	}
}

// TestFiftyRunsAtOnce are not mixed up, and leave nothing when their threads are gone.
func TestFiftyRunsAtOnce(t *testing.T) { crowd(t, 6) }
