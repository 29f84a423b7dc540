//go:build root && long

package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestBenchMeasures every section once.
func TestBenchMeasures(t *testing.T) {
	cmd := exec.Command(harness.Program(t), "bench", "--quick", "-n", "1", "--json", "--image-dir", harness.Images(t))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + harness.TempDir(t)}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bench: %v\n%s", err, &stderr)
	}
	var report struct {
		Sections []struct {
			Name string `json:"name"`
			Rows []struct {
				Name string  `json:"name"`
				P50  float64 `json:"p50"`
			} `json:"rows"`
		} `json:"sections"`
		Notes []string `json:"notes"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, s := range report.Sections {
		for _, r := range s.Rows {
			rows = append(rows, s.Name+"/"+r.Name)
		}
	}
	all := strings.Join(rows, "\n")
	for _, want := range []string{
		"create/runsc run", "create/crun run", "create/gvisor: create, first command", "create/container: create, first command",
		"exec/gvisor: exec", "exec/container: exec", "burst/gvisor × 10: succeeded", "burst/container × 10: succeeded",
		"transfer/gvisor: upload", "transfer/container: download", "stream/gvisor: line", "stream/container: line",
		"egress/gvisor: request", "egress/gvisor: tunnels that answer", "egress/container: new connection", "egress/container: upload",
		"sleep/sleep, 200 MB heap", "sleep/wake and a command, Python of 10 MB", "sleep/processes of the host, of all that sleep",
		"fork/fork 1 → ", "fork/rollback",
		"pool/runsc run", "pool/gvisor: create, first command", "pool/container: create, first cell",
		"memory/gvisor: PSS of an idle sandbox", "memory/container: PSS of an idle sandbox", "memory/daemon, resident, idle", "rows/exec, container, 10000 rows",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no figure %q; notes: %q; all:\n%s", want, report.Notes, all)
		}
	}
	for _, n := range report.Notes {
		if !strings.Contains(n, "docker") {
			t.Errorf("note: %s", n)
		}
	}
}
