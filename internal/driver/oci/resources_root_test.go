//go:build root

package oci

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// attacker is the program of the attacks.
var attacker = sync.OnceValues(func() ([]byte, error) {
	// Where there is no Go it was built before.
	if program, err := os.ReadFile("testdata/attack/attack"); err == nil {
		return program, nil
	}
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
	// A process that is forked in this moment would hold the file open for writing,
	// and then the sandbox cannot execute it.
	syscall.ForkLock.RLock()
	err = os.WriteFile(filepath.Join(driver.VolumeDir(r.spec.Volumes, driver.VolumeWorkspace), "attack"), program, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
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
				if r.d.cgroups.V2 == "" && n > most/2 {
					t.Errorf("%s: %d MiB in buffers, although the limit is %d", name, n>>20, cgroup.SocketMemory(r.spec.Limits.MemoryBytes)>>20)
				}
				t.Logf("%s", out)
				r.alive()
			})
		}
	}
}

// held starts an attack that keeps what it took, and says how far it came.
func (r *running) held(name string, most int) (n int) {
	r.t.Helper()
	out, _ := r.exec("sandbox", "sleep 1000 | /workspace/attack "+name+" "+itoa(most)+` hold > /tmp/held 2>&1 &
		until grep -q '^`+name+` ' /tmp/held || ! kill -0 $! ; do sleep 0.1; done; cat /tmp/held`)
	for line := range strings.Lines(out) {
		if count, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ = strconv.Atoi(strings.TrimSpace(count))
		}
	}
	if n == 0 {
		r.t.Fatalf("%s took nothing: %q", name, out)
	}
	return n
}

// Buffers of sockets are memory of the sandbox: on cgroup version 2 all of them,
// on version 1 those of UNIX sockets, and the others have a limit of their own.
func TestSocketBuffersAreCharged(t *testing.T) {
	const most = 64 << 20 // of a sandbox with 256 MiB
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		for _, name := range []string{"tcp", "udp", "unix"} {
			t.Run(w.runtime+"/"+name, func(t *testing.T) {
				r := armed(t, start(t, w.runtime, testSpec(t, w.isolation)))
				if r.d.cgroups.V2 == "" && name != "unix" {
					r.heldWithin(name, most, int(cgroup.SocketMemory(r.spec.Limits.MemoryBytes))*2)
					return
				}
				before, err := r.d.Stats(r.ctx, r.h)
				if err != nil {
					t.Fatal(err)
				}
				n := r.held(name, most)
				after, err := r.d.Stats(r.ctx, r.h)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %d MiB in buffers, %d charged", name, n>>20, (after.MemoryBytes-before.MemoryBytes)>>20)
				if grown := after.MemoryBytes - before.MemoryBytes; grown < int64(n)*3/4 {
					t.Errorf("%s: of %d MiB in buffers %d are charged", name, n>>20, grown>>20)
				}
				r.alive()
			})
		}
	}
}

// heldWithin wants an attack to come no farther than within.
func (r *running) heldWithin(name string, most, within int) {
	r.t.Helper()
	if n := r.held(name, most); n > within {
		r.t.Errorf("%s: %d MiB in buffers, want at most %d", name, n>>20, within>>20)
	}
	r.alive()
}

// Buffers beyond the memory of the sandbox end in its limit: sending fails or
// waits, or the kernel kills who sends, and the sandbox goes on.
func TestSocketBuffersBeyondTheMemory(t *testing.T) {
	const most = 400 << 20
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		for _, name := range []string{"tcp", "udp", "unix"} {
			t.Run(w.runtime+"/"+name, func(t *testing.T) {
				spec := testSpec(t, w.isolation)
				spec.Limits.OpenFiles = 4096
				r := armed(t, start(t, w.runtime, spec))
				n, out := r.attack("sandbox", name, most)
				if n > int(spec.Limits.MemoryBytes) {
					t.Errorf("%s: %d MiB in the buffers of a sandbox with 256", name, n>>20)
				}
				t.Logf("%d MiB, %s", n>>20, out)
				r.alive()
			})
		}
	}
}

// File locks took memory of the host that no cgroup counts, without an end.
func TestFileLocksAreBound(t *testing.T) {
	const many = 2_000_000
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		t.Run(w.runtime, func(t *testing.T) {
			r := armed(t, start(t, w.runtime, testSpec(t, w.isolation)))
			began := time.Now()
			out, exit := r.exec("sandbox", "mkfifo /tmp/never; /workspace/attack locks "+itoa(many)+" hold <>/tmp/never")
			kills, err := r.d.OOMKills(r.ctx, r.h, began)
			if err != nil || len(kills) != 1 || kills[0].Process != "attack" || kills[0].Locks <= MaxFileLocks {
				t.Errorf("%+v, %v, want one kill for file locks; %q, %v", kills, err, out, exit)
			}
			t.Logf("%+v after %s", kills, time.Since(began))
			r.alive()
		})
	}
}

// A daemon that finds a container goes on to bound its locks.
func TestFileLocksAreBoundAfterARestart(t *testing.T) {
	r := armed(t, start(t, crun, testSpec(t, sandbox.Container)))
	r.d = r.m.open(t)
	if err := r.d.Adopt(r.ctx, r.h); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.exec("sandbox", "mkfifo /tmp/never; /workspace/attack locks 2000000 hold <>/tmp/never")
	if kills, err := r.d.OOMKills(r.ctx, r.h, began); err != nil || len(kills) != 1 {
		t.Errorf("%+v, %v", kills, err)
	}
}

// One container could hold all signals of the host that wait: the kernel counts
// them for the owner of the user namespace, which each run has for itself.
func TestContainersHaveSignalsOfTheirOwn(t *testing.T) {
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		t.Run(w.runtime, func(t *testing.T) {
			m := newMachine(t, w.runtime)
			first := armed(t, startOn(t, m, testSpec(t, w.isolation)))
			second := &running{t: t, ctx: first.ctx, m: m, d: first.d, spec: testSpec(t, w.isolation)}
			var err error
			if second.h, err = second.d.Create(second.ctx, second.spec); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := second.d.Destroy(second.ctx, second.h); err != nil {
					t.Errorf("Destroy: %v", err)
				}
			}()
			if err := second.d.Start(second.ctx, second.h); err != nil {
				t.Fatal(err)
			}
			armed(t, second)
			const most = 1 << 20
			held := first.held("signals", most)
			got, _ := second.attack("sandbox", "signals", most)
			t.Logf("one container holds %d, another one gets %d", held, got)
			if got < held/2 {
				t.Errorf("one container holds %d signals, and another one gets %d", held, got)
			}
		})
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

// What the host cannot end either is an error: whoever cancels a command is not told
// that it is over.
func TestWhatTheHostCannotEnd(t *testing.T) {
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		t.Run(w.runtime, func(t *testing.T) {
			r := start(t, w.runtime, testSpec(t, w.isolation))
			group := r.d.cgroups.Group(r.spec.UID)
			// Nobody knows whose it is, so nobody ends it.
			foreign := exec.Command("sleep", "1000")
			dir, err := group.Open()
			r.do("Open", err)
			if dir != nil {
				defer dir.Close()
				foreign.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
			}
			r.do("Start", foreign.Start())
			end := sync.OnceFunc(func() {
				_ = foreign.Process.Kill()
				_ = foreign.Wait()
			})
			defer end()
			r.do("Enter", group.Enter(foreign.Process.Pid))
			ctx, cancel := context.WithTimeout(r.ctx, 200*time.Millisecond)
			defer cancel()
			err = r.d.KillOthers(ctx, r.h, nil)
			if !errors.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "processes of the sandbox do not end") {
				t.Errorf("KillOthers = %v, want that some do not end", err)
			}
			end()
			r.do("KillOthers of what ends", r.d.KillOthers(r.ctx, r.h, nil))
			r.alive()
		})
	}
}
