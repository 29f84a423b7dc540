//go:build root

package walls_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/test/harness"
)

const (
	acme  = "web@acme:acme-secret-1234"
	other = "web2@other:other-secret-1234"
)

// tenants is a daemon with an attacker and a bystander, each with a sandbox.
type tenants struct {
	d                *harness.Daemon
	attacker, victim *client.Client
	box, bystander   string
}

// attacked runs a test in each isolation, under a daemon that has an attacker's
// tenant and another one.
func attacked(t *testing.T, o client.CreateOptions, test func(t *testing.T, w *tenants)) {
	t.Helper()
	d := harness.New(t, harness.Options{})
	// Only this start has tokens: the harness cleans up without one.
	d.MustStart("--tokens", strings.Join([]string{acme, other}, ","))
	as := func(token string) *client.Client {
		_, secret, _ := strings.Cut(token, ":")
		return client.New(d.URL, client.WithToken(secret))
	}
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			o.Isolation = isolation
			w := &tenants{d: d, attacker: as(acme), victim: as(other)}
			for c, id := range map[*client.Client]*string{w.attacker: &w.box, w.victim: &w.bystander} {
				b, err := c.Create(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				*id = b.ID
				t.Cleanup(func() {
					if _, err := c.Purge(context.Background(), b.ID); err != nil {
						t.Error(err)
					}
				})
			}
			test(t, w)
		})
	}
}

// goesOn is a cell that ends when it is told to.
const goesOn = `
import os, time
d, n = %q, 0
os.makedirs(d)
open(d + "/begun", "w").close()
while not os.path.exists(d + "/over"): n += 1; time.sleep(0.05)
print(n > 0)
`

// during runs an attack while the other tenant's cell goes on, and wants that
// cell's own end.
func (w *tenants) during(t *testing.T, attack func()) {
	t.Helper()
	// A tenant's sandboxes share this directory.
	dir := "/workspace/" + strings.ReplaceAll(t.Name(), "/", "-")
	files := w.victim.Files(w.bystander)
	cell := make(chan client.Execution, 1)
	go func() {
		x, err := w.victim.RunCode(t.Context(), w.bystander, client.CodeRequest{
			Language: "python", Code: fmt.Sprintf(goesOn, dir), Timeout: 5 * time.Minute,
		})
		if err != nil {
			t.Error("the other tenant's cell: ", err)
		}
		cell <- x
	}()
	begun := func() (bool, error) {
		_, err := files.Stat(t.Context(), dir+"/begun")
		if errors.Is(err, client.NotFound) {
			return false, nil
		}
		return err == nil, err
	}
	if err := poll.Until(t.Context(), 50*time.Millisecond, time.Second, begun); err != nil {
		t.Fatal("the other tenant's cell does not begin: ", err)
	}
	attack()
	if _, err := files.Write(t.Context(), dir+"/over", strings.NewReader("over"), client.WriteOptions{}); err != nil {
		t.Error("the other tenant's file: ", err)
	}
	if x := <-cell; x.Reason != "exited" || x.Stdout != "True\n" {
		t.Errorf("the other tenant's cell ended with %s, %q: %s", x.Reason, x.Stdout, x.Message)
	}
	if rss := resident(t, w.d); rss > 300<<20 {
		t.Errorf("the daemon has %d MiB", rss>>20)
	}
}

// resident is the memory of the daemon's process.
func resident(t *testing.T, d *harness.Daemon) (bytes int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(value, &bytes); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bytes << 10
}

// tiny installs kernels of the attacker's own: "dies" ends as it starts, "mute"
// never answers.
const tiny = `d=/home/sandbox/.local/share/jupyter/kernels
mkdir -p $d/dies $d/mute
echo '{"argv": ["/bin/false", "{connection_file}"], "display_name": "dies", "language": "dies"}' > $d/dies/kernel.json
echo '{"argv": ["/bin/sleep", "1000"], "display_name": "mute", "language": "mute"}' > $d/mute/kernel.json`

// storm asks for kernels, 32 at once, waits for each with some patience, and
// counts the answers by code.
func (w *tenants) storm(t *testing.T, n int, patience time.Duration, options func(i int) client.KernelOptions) map[string]int {
	t.Helper()
	var mu sync.Mutex
	codes := make(map[string]int)
	var all sync.WaitGroup
	var next atomic.Int64
	for range 32 {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, err := w.attacker.CreateKernel(ctx, w.box, options(i))
				cancel()
				code := "made"
				var e *client.Error
				if errors.As(err, &e) {
					code = string(e.Code)
				} else if err != nil {
					code = err.Error()
				}
				mu.Lock()
				codes[code]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return codes
}

// A tenant that starts kernels which die at once, in a loop, takes no cell of
// another tenant and leaves neither kernels nor processes.
func TestKernelsThatDieAtTheirStart(t *testing.T) {
	attacked(t, client.CreateOptions{Limits: &client.Limits{CPUs: 0.5, PIDs: 256}}, func(t *testing.T, w *tenants) {
		if x, err := w.attacker.Exec(t.Context(), w.box, client.ExecOptions{Shell: tiny}); err != nil || x.Reason != "exited" {
			t.Fatal(x.Stderr, err)
		}
		w.during(t, func() {
			codes := w.storm(t, 100, time.Minute, func(i int) client.KernelOptions {
				return client.KernelOptions{Name: fmt.Sprint("k", i), Language: "dies"}
			})
			t.Logf("%v", codes)
			if codes["made"] > 0 || codes["internal"] > 0 {
				t.Errorf("answers: %v", codes)
			}
		})
		kernels, _, err := w.attacker.Kernels(t.Context(), w.box)
		if err != nil || len(kernels) > 0 {
			t.Errorf("%d kernels are left, %v", len(kernels), err)
		}
	})
}

// Kernels that never answer are bounded in number, and go when they are deleted.
func TestKernelsThatNeverAnswer(t *testing.T) {
	attacked(t, client.CreateOptions{Limits: &client.Limits{CPUs: 0.5, PIDs: 512}}, func(t *testing.T, w *tenants) {
		if x, err := w.attacker.Exec(t.Context(), w.box, client.ExecOptions{Shell: tiny}); err != nil || x.Reason != "exited" {
			t.Fatal(x.Stderr, err)
		}
		w.during(t, func() {
			codes := w.storm(t, 100, 3*time.Second, func(i int) client.KernelOptions {
				return client.KernelOptions{Name: fmt.Sprint("k", i), Language: "mute"}
			})
			t.Logf("%v", codes)
			if codes["made"] > 0 || codes["internal"] > 0 {
				t.Errorf("answers: %v", codes)
			}
			kernels, _, err := w.attacker.Kernels(t.Context(), w.box)
			if err != nil || len(kernels) > 64 {
				t.Errorf("%d kernels, %v", len(kernels), err)
			}
			for _, k := range kernels {
				if err := w.attacker.DeleteKernel(t.Context(), w.box, k.Name); err != nil && !errors.Is(err, client.NotFound) {
					t.Errorf("delete: %v", err)
				}
			}
		})
		x, err := w.attacker.Exec(t.Context(), w.box, client.ExecOptions{Shell: "ps -e -o comm | grep -c '^sleep' || true", User: "root"})
		if err != nil || strings.TrimSpace(x.Stdout) != "0" {
			t.Errorf("%q processes of kernels are left, %v", x.Stdout, err)
		}
	})
}

// As many real kernels as there can be, in a sandbox whose memory has no room for
// them: the sandbox pays, and nobody else.
func TestMoreKernelsThanMemory(t *testing.T) {
	attacked(t, client.CreateOptions{Limits: &client.Limits{CPUs: 1, PIDs: 512, MemoryBytes: 256 << 20}}, func(t *testing.T, w *tenants) {
		w.during(t, func() {
			codes := w.storm(t, 24, 10*time.Second, func(i int) client.KernelOptions {
				return client.KernelOptions{Name: fmt.Sprint("k", i), Language: "python"}
			})
			t.Logf("%v", codes)
			if codes["internal"] > 0 {
				t.Errorf("answers: %v", codes)
			}
		})
	})
}

// floods are cells that try to fill what stands between a kernel and its
// clients, and how they may end.
var floods = []struct{ name, code string }{
	{"comms", "from comm import create_comm\nfor i in range(2000): create_comm(target_name='t%d' % i, data={'x': 'y' * 20000})"},
	{"displays", "from IPython.display import display, update_display\nd = display('x' * 1000000, display_id=True)\nfor i in range(100): update_display('x' * 1000000, display_id=d.display_id)"},
	{"a huge value", "'x' * 100000000"},
	{"a huge exception", "raise Exception('x' * 50000000)"},
	{"a huge repr of many", "[('x' * 1000,)] * 100000"},
	{"status and clear", "from IPython.display import clear_output\nfor i in range(2000): clear_output()"},
	{"deep data", "from IPython.display import display\nd = {}\nfor i in range(900): d = {'a': d}\ndisplay({'application/json': d}, raw=True)"},
}

// What a cell says without end is cut, and the answer is not larger than what
// the API promises; the kernel goes on.
func TestFloodsOfACell(t *testing.T) {
	attacked(t, client.CreateOptions{Limits: &client.Limits{CPUs: 1, PIDs: 256, MemoryBytes: 1 << 30}}, func(t *testing.T, w *tenants) {
		w.during(t, func() {
			for _, f := range floods {
				x, err := w.attacker.RunCode(t.Context(), w.box, client.CodeRequest{Language: "python", Code: f.code, Timeout: 30 * time.Second})
				if err != nil {
					t.Errorf("%s: %v", f.name, err)
					continue
				}
				size := len(x.Stdout) + len(x.Stderr) + len(fmt.Sprint(x.Result, x.Outputs, x.Error))
				t.Logf("%s: %s, %d bytes of answer, %s", f.name, x.Reason, size, x.Message[:min(len(x.Message), 100)])
				if size > 40<<20 {
					t.Errorf("%s: an answer of %d MiB", f.name, size>>20)
				}
			}
			x, err := w.attacker.RunCode(t.Context(), w.box, client.CodeRequest{Language: "python", Code: "print(6 * 7)", Timeout: time.Minute})
			if err != nil || x.Stdout != "42\n" {
				t.Errorf("after the floods: %+v, %v", x, err)
			}
		})
	})
}

// Names of kernels that are paths, terminals' codes, or longer than a name.
func TestNamesOfKernelsAsAttacks(t *testing.T) {
	attacked(t, client.CreateOptions{Limits: &client.Limits{CPUs: 0.5}}, func(t *testing.T, w *tenants) {
		for _, name := range []string{
			"..", "../../etc/passwd", "/etc/passwd", "a/b", "a%2fb", "a\x00b", "a\nb", "\x1b[2J", "a b", "-rf", "é", "ａ", "\u202ea",
			"$(id)", "`id`", "'; drop table execs; --", strings.Repeat("a", 65), strings.Repeat("a", 1<<20), "{connection_file}",
		} {
			for field, o := range map[string]client.KernelOptions{
				"name": {Name: name, Language: "python"}, "language": {Language: name},
			} {
				_, err := w.attacker.CreateKernel(t.Context(), w.box, o)
				if !errors.Is(err, client.InvalidRequest) && !errors.Is(err, client.NotFound) && !errors.Is(err, client.TooLarge) {
					t.Errorf("%s %.40q: %v", field, name, err)
				}
			}
			if err := w.attacker.DeleteKernel(t.Context(), w.box, name); err == nil {
				t.Errorf("a kernel %.40q was deleted", name)
			}
			if x, err := w.attacker.RunCode(t.Context(), w.box, client.CodeRequest{Kernel: name, Code: "1", Timeout: 20 * time.Second}); err == nil && x.Reason == "exited" {
				t.Errorf("a cell ran in %.40q", name)
			}
		}
		if x, err := w.attacker.RunCode(t.Context(), w.box, client.CodeRequest{Language: "python", Code: "print(1)", Timeout: time.Minute}); err != nil || x.Stdout != "1\n" {
			t.Errorf("after that: %+v, %v", x, err)
		}
	})
}
