//go:build root

package walls_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// When the host runs out of memory, it kills sandboxes before the daemon:
// whatever their limits, the daemon's own size does not matter then.
func TestTheHostKillsSandboxesForMemoryBeforeTheDaemon(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	c := client.New(d.URL)
	daemon, err := score("/proc/" + strconv.Itoa(d.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			b, err := c.Create(t.Context(), client.CreateOptions{Isolation: isolation})
			if err != nil {
				t.Fatal(err)
			}
			p, err := c.StartExec(t.Context(), b.ID, client.ExecOptions{Argv: []string{"sleep", "1000"}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Cancel(t.Context()) }()
			// Of this daemon, the only one that runs.
			runs, err := filepath.Glob(filepath.Join(d.Dir, "run/oci/*/run.json"))
			if err != nil || len(runs) != 1 {
				t.Fatalf("runs: %q, %v", runs, err)
			}
			uid := filepath.Base(filepath.Dir(runs[0]))
			defer func() {
				if _, err := c.Purge(t.Context(), b.ID); err != nil {
					t.Error(err)
				}
			}()
			var seen int
			dirs, err := filepath.Glob("/proc/[0-9]*")
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range dirs {
				group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
				if err != nil || !strings.Contains(string(group), uid) {
					continue
				}
				s, err := score(dir)
				if err != nil {
					continue // it has ended
				}
				seen++
				if s < daemon+200 {
					name, _ := os.ReadFile(filepath.Join(dir, "comm"))
					t.Errorf("process %s has the score %d, the daemon %d", strings.TrimSpace(string(name)), s, daemon)
				}
			}
			if seen == 0 {
				t.Error("no process of the sandbox was found")
			}
		})
	}
}

func score(dir string) (int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "oom_score_adj"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
