//go:build root

package oci

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// attacker is the program of the attacks.
var attacker = sync.OnceValues(func() ([]byte, error) {
	path := filepath.Join(os.TempDir(), "cubby-test-attack")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/attack")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// armed puts the attacker on the sandbox's disk.
func armed(t *testing.T, r *running) *running {
	t.Helper()
	program, err := attacker()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(driver.VolumeDir(r.spec.Volumes, driver.VolumeWorkspace), "attack"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// attack says how far an attack came and what it printed.
func (r *running) attack(user, name string, most int) (reached int, out string) {
	r.t.Helper()
	out, exit := r.exec(user, "/workspace/attack "+name+" "+strconv.Itoa(most))
	for line := range strings.Lines(out) {
		if count, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(count))
			if err != nil {
				r.t.Fatal(err)
			}
			return n, out
		}
	}
	r.t.Logf("%s ended with %v: %.300s", name, exit, out)
	return -1, out
}

// One container could take all 3072 pseudo-terminals of the host.
func TestTerminalsOfAContainerAreAShare(t *testing.T) {
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		t.Run(w.runtime, func(t *testing.T) {
			r := armed(t, start(t, w.runtime, testSpec(t, w.isolation)))
			for _, user := range []string{"sandbox", "root"} {
				if n, out := r.attack(user, "terminals", maxTerminals+16); n != maxTerminals {
					t.Errorf("as %s: %s, want %d terminals", user, out, maxTerminals)
				}
				r.alive()
			}
		})
	}
}

// One container could reserve every event of asynchronous I/O that the host
// has, and io_setup failed for all others. Programs that have another way take
// it when the call is not there.
func TestAsynchronousIOIsNotThere(t *testing.T) {
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		t.Run(w.runtime, func(t *testing.T) {
			r := armed(t, start(t, w.runtime, testSpec(t, w.isolation)))
			if n, out := r.attack("root", "aio", 1); n != 0 || !strings.Contains(out, "true") {
				t.Errorf("io_setup: %s, want ENOSYS", out)
			}
		})
	}
}

// The buffers of sockets that nobody reads could take more of the host than the
// sandbox's memory limit. (gVisor's sockets are memory of its own process.)
func TestSocketBuffersAreLimited(t *testing.T) {
	const most = 160 << 20 // of a sandbox with 256 MiB
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		for _, name := range []string{"tcp", "udp"} {
			t.Run(w.runtime+"/"+name, func(t *testing.T) {
				r := armed(t, start(t, w.runtime, testSpec(t, w.isolation)))
				n, out := r.attack("sandbox", name, most)
				if r.d.cgroups.v2 == "" && n > most/2 {
					t.Errorf("%s: %d MiB in buffers, although the limit is %d", name, n>>20, socketMemory(r.spec.Limits.MemoryBytes)>>20)
				}
				t.Logf("%s", out)
				r.alive()
			})
		}
	}
}

// A fork storm outlived the end of its command: hundreds of its processes lived
// on. The host ends them, and nothing else.
func TestForkStormIsEndedByTheHost(t *testing.T) {
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		for _, user := range []string{"sandbox", "root"} {
			t.Run(w.runtime+"/"+user, func(t *testing.T) {
				r := armed(t, start(t, w.runtime, testSpec(t, w.isolation))) // 128 pids
				// Ten minutes of forking, with nobody who waits for it.
				r.exec(user, "/workspace/attack storm 600000 >/dev/null 2>&1 & sleep 0.5")
				began := time.Now()
				if err := r.d.KillOthers(r.ctx, r.h, nil); err != nil {
					t.Fatal(err)
				}
				t.Logf("after %s", time.Since(began))
				// Its supervisors went too; the agent starts others.
				out, exit := r.exec("root", "ps -o comm | grep -c attack")
				if out != "0\n" {
					t.Errorf("%q processes of the storm are left, %v", out, exit)
				}
				r.alive()
			})
		}
	}
}
