//go:build root

package walls_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/test/harness"
)

// What of a cell goes on when the cell is interrupted: the interpreter itself,
// which heeds no interrupt, or children of one that does. In gVisor the first
// ends the sandbox: it takes all of its memory. The limit leaves the children's
// own interpreter the time to start on a busy machine: what forks only after its
// cell was interrupted is what a cell left.
var cellStorms = []struct {
	name, language, code string
	limit                time.Duration
}{
	{"interpreter", "python", storm, time.Second},
	{"children", "javascript", "require('child_process').spawn('python3', ['-c', `" + storm + "`]); await new Promise(r => setTimeout(r, 100000))", 4 * time.Second},
}

// A fork storm that a cell had begun went on after the cell's time limit: only
// commands were ended by the host.
func TestForkStormOfACellEndsWithIt(t *testing.T) {
	sandboxesOf(t, 128, func(t *testing.T, c *client.Client, id string) {
		for _, s := range cellStorms {
			if s.name == "interpreter" && strings.HasSuffix(t.Name(), "/gvisor") {
				continue
			}
			x, err := c.RunCode(t.Context(), id, client.CodeRequest{Code: s.code, Language: s.language, Timeout: s.limit})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %s", s.name, x.Message)
			if x.Reason != "timeout" {
				t.Errorf("%s: it ended with %s: %s", s.name, x.Reason, x.Message)
			}
			none(t, c, id)
		}
	})
}

// The storm of a cell that had been told to end went on when the daemon was killed before
// its grace was over: the next one did not help the agent, which had no CPU time for it.
func TestForkStormOfACellThatIsToEndEndsAlthoughTheDaemonWasKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	d := harness.Start(t, harness.Options{})
	c := client.New(d.URL)
	const pids = 512
	b, err := c.Create(ctx, client.CreateOptions{Isolation: client.Container, Limits: &client.Limits{PIDs: pids, CPUs: 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.StartCode(ctx, b.ID, client.CodeRequest{Code: storm, Language: "python", Timeout: client.NoTimeout})
	if err != nil {
		t.Fatal(err)
	}
	err = poll.Until(ctx, 50*time.Millisecond, time.Second, func() (bool, error) {
		s, err := c.Stats(ctx, b.ID)
		return s.PIDs > pids/2, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(ctx, "KILL", false); err != nil {
		t.Fatal(err)
	}
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	c = client.New(d.MustStart())
	x, err := c.Process(b.ID, p.Seq).Wait(ctx)
	if err != nil || x.Reason != "killed" {
		t.Fatalf("the cell ended with %s: %s, %v", x.Reason, x.Message, err)
	}
	none(t, c, b.ID)
}

// What a cell leaves belongs to its kernel, and ends with it.
func TestForkStormThatACellLeftEndsWithItsKernel(t *testing.T) {
	sandboxes(t, func(t *testing.T, c *client.Client, id string) {
		code := "import subprocess; subprocess.Popen(['python3', '-c', \"\"\"" + storm + "\"\"\"]); 1"
		if x, err := c.RunCode(t.Context(), id, client.CodeRequest{Code: code, Language: "python"}); err != nil || x.Reason != "exited" {
			t.Fatalf("%+v, %v", x, err)
		}
		if err := c.DeleteKernel(t.Context(), id, "python"); err != nil {
			t.Errorf("delete the kernel: %v", err)
		}
		none(t, c, id)
	})
}
