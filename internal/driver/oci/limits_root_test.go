//go:build root

package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// loopDisk is a disk with a hard size, as the daemon gives to sandboxes.
func loopDisk(t testing.TB, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	image, mnt := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(bytes); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-m", "0", image},
		{"mount", "-o", "loop,nosuid,nodev,noatime", image, mnt},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mnt).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	for _, name := range []string{"workspace", "home", "root"} {
		if err := os.Mkdir(filepath.Join(mnt, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if name != "root" {
			if err := os.Chown(filepath.Join(mnt, name), sandbox.UserID, sandbox.UserID); err != nil {
				t.Fatal(err)
			}
		}
	}
	return mnt
}

// running is a started sandbox.
type running struct {
	t    *testing.T
	ctx  context.Context
	m    *machine
	d    *Driver
	h    driver.Handle
	spec driver.Spec
}

func start(t *testing.T, runtime string, spec driver.Spec) *running {
	t.Helper()
	return startOn(t, newMachine(t, runtime), spec)
}

func startOn(t *testing.T, m *machine, spec driver.Spec) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	r := &running{t: t, ctx: ctx, m: m, d: m.open(t), spec: spec}
	var err error
	if r.h, err = r.d.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.d.Destroy(context.Background(), r.h); err != nil {
			t.Errorf("Destroy: %v", err)
		}
		m.left(t)
	})
	if err := r.d.Start(ctx, r.h); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) exec(user, script string) (string, *guestv1.ExecExit) {
	r.t.Helper()
	out, exit, err := drivertest.Exec(r.ctx, r.d, r.h, user, script)
	if err != nil {
		r.t.Fatalf("%s: %v", script, err)
	}
	return out, exit
}

// alive fails unless the sandbox still runs commands.
func (r *running) alive() {
	r.t.Helper()
	if out, exit := r.exec("sandbox", "echo alive"); exit.GetCode() != 0 || out != "alive\n" {
		r.t.Fatalf("after that: %q, %v", out, exit)
	}
}

// A full disk is ENOSPC inside, in every place that can be written, and no
// more than that.
func TestDiskFiller(t *testing.T) {
	places := []string{"/root", "/tmp", "/home/sandbox", "/workspace"}
	for _, w := range walls {
		for _, dir := range places {
			t.Run(w.runtime+dir, func(t *testing.T) {
				spec := testSpec(t, w.isolation)
				spec.Volumes = driver.DiskVolumes(loopDisk(t, 128<<20), "")
				spec.Limits.DiskBytes = 128 << 20
				r := start(t, w.runtime, spec)
				out, exit := r.exec("root", "dd if=/dev/zero of="+dir+"/fill bs=1M count=256")
				if exit.GetCode() == 0 || !strings.Contains(out, "No space left on device") {
					t.Errorf("filling %s: %v: %s", dir, exit, out)
				}
				r.alive()
				for _, other := range places {
					out, _ := r.exec("root", "dd if=/dev/zero of="+other+"/more bs=1M count=64; rm "+other+"/more")
					if !strings.Contains(out, "No space left on device") {
						t.Errorf("with %s full, writing to %s: %s", dir, other, out)
					}
					r.alive()
				}
				if err := r.d.Stop(r.ctx, r.h, time.Second); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// A memory bomb loses the bomb and not the sandbox, and nothing beyond it.
func TestMemoryBomb(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			r := start(t, w.runtime, testSpec(t, w.isolation)) // 256 MiB
			out, exit := r.exec("sandbox", "tail /dev/zero; echo survived with $?")
			t.Logf("%v: %s", exit, out)
			if exit.GetCode() == 0 && !strings.Contains(out, "survived with 137") {
				t.Errorf("the bomb ended with %v: %s, want SIGKILL", exit, out)
			}
			r.alive()
			// /dev/shm is memory too.
			r.exec("sandbox", "dd if=/dev/zero of=/dev/shm/fill bs=1M; rm /dev/shm/fill")
			r.alive()
		})
	}
}

// death waits for the sandbox's.
func (r *running) death(act func(ctx context.Context)) driver.Death {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	waited := make(chan driver.Death, 1)
	go func() {
		death, _ := r.d.Wait(ctx, r.h)
		waited <- death
	}()
	act(ctx)
	select {
	case death := <-waited:
		return death
	case <-ctx.Done():
		r.t.Fatal("it did not die")
		return driver.Death{}
	}
}

// A death for want of memory is named. In a container the kernel takes the
// commands first, and the sandbox goes on.
func TestOutOfMemoryIsNamed(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	group := r.d.cgroups.Group(r.spec.UID)
	death := r.death(func(ctx context.Context) {
		// The agent keeps the budget; take the room above it away. Part of what
		// is in use may be cache, which gives way.
		stats, err := group.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if err := group.Create(cgroup.Limits{Memory: min(stats.MemoryBytes+8<<20, 96<<20)}); err != nil {
			t.Fatal(err)
		}
		// The kernel chooses whom it kills. What a program takes may be counted to the
		// process in which gVisor runs it, but a file in memory is gVisor's own.
		for range 20 {
			if _, _, err := drivertest.Exec(ctx, r.d, r.h, "sandbox", "head -c 300000000 /dev/zero >/dev/shm/x"); err != nil {
				return
			}
		}
	})
	if death.Cause != driver.DeathOOM {
		t.Errorf("Wait = %+v, want oom", death)
	}
}

// The kernel's log names what it killed in a container, and a sandbox that is
// killed afterwards did not die of that.
func TestKillAfterOutOfMemoryIsAKill(t *testing.T) {
	forgets := forgetsDeaths(t)
	for _, w := range walls {
		if w.isolation != sandbox.Container {
			continue
		}
		t.Run(w.runtime, func(t *testing.T) {
			r := start(t, w.runtime, testSpec(t, w.isolation))
			since := time.Now()
			if kills, err := r.d.OOMKills(r.ctx, r.h, since); err != nil || len(kills) != 0 {
				t.Errorf("OOMKills before = %+v, %v, want none", kills, err)
			}
			r.exec("sandbox", "tail /dev/zero")
			kills, err := r.d.OOMKills(r.ctx, r.h, since)
			if err != nil || len(kills) != 1 || kills[0].Process != "tail" || kills[0].Bytes < 128<<20 {
				t.Errorf("OOMKills = %+v, %v, want tail", kills, err)
			}
			if kills, err := r.d.OOMKills(r.ctx, r.h, time.Now().Add(time.Minute)); err != nil || len(kills) != 0 {
				t.Errorf("OOMKills since later = %+v, %v, want none", kills, err)
			}
			death := r.death(func(context.Context) { r.m.crash(t, r.spec.UID) })
			if forgotten := forgets && death.Cause == driver.DeathUnknown; !forgotten && (death.Cause != driver.DeathSignal || death.Signal != "SIGKILL") {
				t.Errorf("Wait = %+v, want SIGKILL", death)
			}
		})
	}
}

// The host bounds gVisor's tasks, far above what all processes that a sandbox
// may have need.
func TestTasksOfGVisor(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor)) // 128 pids
	pids := r.d.cgroups.V1["pids"]
	if pids == "" {
		pids = r.d.cgroups.V2
	}
	dir := filepath.Join(pids, r.d.cgroups.Group(r.spec.UID).Path)
	limit, err := cgroup.Number(filepath.Join(dir, "pids.max"))
	if err != nil {
		t.Fatal(err)
	}
	out, _ := r.exec("sandbox", "i=0; while test $i -lt 120; do sleep 600 & i=$((i+1)); done; ls / > /dev/null; echo $i")
	if out != "120\n" {
		t.Errorf("with all processes: %q", out)
	}
	now, err := cgroup.Number(filepath.Join(dir, "pids.current"))
	if err != nil || now*2 > limit {
		t.Errorf("there are %d tasks, %v, with a limit of %d; want twice the room", now, err, limit)
	}
	t.Logf("%d tasks of %d", now, limit)
}

// A fork bomb meets its limit, the sandbox stays usable, and a tree kill gets
// rid of it.
func TestForkBomb(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			r := start(t, w.runtime, testSpec(t, w.isolation)) // 128 pids
			ctx, cancel := context.WithTimeout(r.ctx, 3*time.Second)
			defer cancel()
			_, _, _ = drivertest.Exec(ctx, r.d, r.h, "sandbox", "bomb() { bomb | bomb & }; bomb; wait")
			stats, err := r.d.Stats(r.ctx, r.h)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", stats)
			if status, err := r.d.Inspect(r.ctx, r.h); err != nil || status.Phase != driver.PhaseRunning {
				t.Errorf("Inspect = %+v, %v; want running", status, err)
			}
			if err := r.d.Destroy(r.ctx, r.h); err != nil {
				t.Errorf("Destroy: %v", err)
			}
		})
	}
}

// The image is shared: nothing that root inside does changes it.
func TestImageIsNeverWritten(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			spec := testSpec(t, w.isolation)
			before := digest(t, spec.Image.Dir)
			r := start(t, w.runtime, spec)
			r.exec("root", "rm -rf /bin/ls /etc/passwd; echo x >> /etc/group; echo x > /bin/busybox2; chmod 777 /etc; touch /sbin/x /workspace/x; chown 1000 /root; echo evil > /sbin/cubby-init")
			if err := r.d.Stop(r.ctx, r.h, 0); err != nil {
				t.Fatal(err)
			}
			if err := r.d.Start(r.ctx, r.h); err != nil {
				t.Fatal(err)
			}
			if after := digest(t, spec.Image.Dir); after != before {
				t.Error("the image's tree changed")
			}
		})
	}
}

// digest covers names, types, modes, owners, times and contents.
func digest(t testing.TB, root string) string {
	t.Helper()
	out, err := exec.Command("tar", "--sort=name", "--numeric-owner", "-C", root, "-cf", "-", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(out)
	return hex.EncodeToString(sum[:])
}

// A stop saves the system files although the disk has no room for a second
// copy of them.
func TestStopWithFullDisk(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			spec := testSpec(t, w.isolation)
			spec.Volumes = driver.DiskVolumes(loopDisk(t, 128<<20), "")
			spec.Limits.DiskBytes = 128 << 20
			r := start(t, w.runtime, spec)
			for round := range 3 {
				out, exit := r.exec("root", "dd if=/dev/urandom of=/root/big bs=1M count=70; md5sum /root/big | cut -c1-32")
				if exit.GetCode() != 0 {
					t.Fatalf("round %d: %v: %s", round, exit, out)
				}
				want := out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]
				if err := r.d.Stop(r.ctx, r.h, time.Second); err != nil {
					t.Fatal(err)
				}
				if err := r.d.Start(r.ctx, r.h); err != nil {
					t.Fatal(err)
				}
				if got, _ := r.exec("root", "md5sum /root/big | cut -c1-32"); got != want {
					t.Errorf("round %d: the file has digest %q, want %q", round, got, want)
				}
			}
		})
	}
}
