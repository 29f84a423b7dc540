//go:build root

package oci

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// What root inside must not be able to do. Every script prints "escaped" when
// it can.
var escapes = map[string]string{
	"mount":               "mount -t tmpfs x /mnt && echo escaped",
	"mount of proc":       "mkdir -p /p && mount -t proc proc /p && echo escaped",
	"remount of sys":      "mount -o remount,rw /sys && echo escaped",
	"bind over proc":      "mount --bind / /proc && echo escaped",
	"umount":              "umount /proc/sys 2>/dev/null; umount /etc/hosts && echo escaped",
	"block device":        "mknod /d b 259 0 && dd if=/d of=/dev/null bs=1 count=1 && echo escaped; mknod /e b 254 0 && dd if=/e of=/dev/null bs=1 count=1 && echo escaped",
	"kernel memory":       "mknod /m c 1 1 && dd if=/m of=/dev/null bs=1 count=1 && echo escaped; dd if=/dev/mem of=/dev/null bs=1 count=1 && echo escaped",
	"user namespace":      "unshare -U true && echo escaped",
	"mount namespace":     "unshare -m true && echo escaped",
	"namespaces of pid 1": "nsenter -t 1 -m -n -u true && echo escaped",
	"core pattern":        "echo '|/x' > /proc/sys/kernel/core_pattern && echo escaped",
	"sysrq":               "[ -c /proc/sysrq-trigger ] || ! echo b > /proc/sysrq-trigger || echo escaped", // a device is /dev/null in its place
	"modprobe path":       "echo /x > /proc/sys/kernel/modprobe && echo escaped",
	"cgroup release":      "for f in $(find /sys/fs/cgroup -name release_agent); do echo /x > $f && echo escaped; done",
	"cgroup limits":       "for f in $(find /sys/fs/cgroup -name '*.max' -o -name memory.limit_in_bytes); do [ -w /proc/gvisor ] || echo 1000000000 > $f && echo escaped; done",
	"other cgroups":       "ls /sys/fs/cgroup/*/cubby-test 2>/dev/null && echo escaped",
	"hostname":            "hostname evil && echo escaped",
	"clock":               "date -s 2000-01-01; [ $(date +%Y) = 2000 ] && echo escaped",
	"chroot out":          "cd / && mkdir -p /c && chroot /c /bin/true; ls -d /proc/1/root/work 2>/dev/null && echo escaped",
	"agent's memory":      "cat /proc/1/environ && echo escaped; dd if=/proc/1/mem of=/dev/null bs=1 count=1 && echo escaped",
	"agent's program":     "echo evil > /sbin/cubby-init && echo escaped; echo evil > /proc/1/exe && echo escaped",
	"channel":             "touch /run/cubby/x && echo escaped; rm /run/cubby/host.sock && echo escaped",
	"host's processes":    "[ $(ls -d /proc/[0-9]* | wc -l) -gt 20 ] && echo escaped",
	"host's interfaces":   "ip link | grep -E 'eth|ens|docker|veth' && echo escaped",
	"host's loopback":     "wget -T 1 -O - http://127.0.0.1:2024/ && echo escaped",
	"host's sockets":      "ls /var/run/docker.sock /run/systemd/private 2>/dev/null && echo escaped",
	"reboot":              "reboot -f; sleep 0.2; true",
	"kill of pid 1":       "kill -9 1; kill -TERM 1; sleep 0.2; true",
	"kernel log":          "dmesg >/dev/null 2>&1 && [ ! -e /proc/gvisor ] && echo escaped",
	"swap":                "dd if=/dev/zero of=/s bs=1M count=1 && mkswap /s && swapon /s && echo escaped",
	"nice":                "nice -n -10 true && [ $(nice -n -10 nice) = -10 ] && [ ! -e /proc/gvisor ] && echo escaped",
}

// harmless in gVisor: it happens in gVisor's own kernel, not in the host's.
var harmless = map[string]bool{"user namespace": true}

func TestEscapes(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			r := start(t, w.runtime, testSpec(t, w.isolation))
			for name, script := range escapes {
				// Of all together an emulated machine makes minutes.
				var cancel context.CancelFunc
				r.ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				out, _ := r.exec("root", script)
				if strings.Contains(out, "escaped") && (w.isolation == sandbox.Container || !harmless[name]) {
					t.Errorf("%s: %s", name, out)
				}
				r.alive()
				cancel()
			}
		})
	}
}

// agentsOwn are capabilities that no command has.
const agentsOwn = 1<<unix.CAP_MKNOD | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_SYS_RESOURCE

// The promises about privileges hold for what a command is, not only for what
// the specification says.
func TestPrivileges(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			r := start(t, w.runtime, testSpec(t, w.isolation))
			status, _ := r.exec("sandbox", "cat /proc/self/status")
			for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000"} {
				if !strings.Contains(status, want) {
					t.Errorf("status of a command has no %q: %s", want, status)
				}
			}
			// Root among the commands neither has nor inherits what is the agent's.
			root, _ := r.exec("root", "cat /proc/self/status")
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd"} {
				_, hex, _ := strings.Cut(root, set+":")
				hex, _, _ = strings.Cut(strings.TrimSpace(hex), "\n")
				if bits, err := strconv.ParseUint(hex, 16, 64); err != nil || bits&agentsOwn != 0 || set == "CapInh" && bits != 0 {
					t.Errorf("%s of a command of root is %s, %v", set, hex, err)
				}
			}
			if w.isolation != sandbox.Container {
				return
			}
			if !strings.Contains(status, "Seccomp:\t2") {
				t.Errorf("a command runs without a seccomp filter: %s", status)
			}
			rec, _, err := r.d.box(r.spec.UID).record()
			if err != nil {
				t.Fatal(err)
			}
			host, err := os.ReadFile("/proc/" + itoa(rec.PID) + "/status")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(host), "Uid:\t0\t") {
				t.Errorf("the agent is the host's root: %s", host)
			}
		})
	}
}

// Files on the disk carry the ids that the sandbox sees.
func TestIDsOnDisk(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			r := start(t, w.runtime, testSpec(t, w.isolation))
			r.exec("sandbox", "touch /workspace/mine ~/mine")
			r.exec("root", "touch /workspace/roots; chown 1234:1234 /workspace/roots")
			for name, want := range map[string]uint32{"workspace/mine": 1000, "home/mine": 1000, "workspace/roots": 1234} {
				if got := owner(t, filepath.Join(filepath.Dir(driver.VolumeDir(r.spec.Volumes, driver.VolumeRoot)), name)); got != want {
					t.Errorf("%s belongs to %d on the host, want %d", name, got, want)
				}
			}
		})
	}
}

// The sandbox sees its own limits where its kernel can show them.
func TestLimitsAreShown(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			r := start(t, w.runtime, testSpec(t, w.isolation))
			script := "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null"
			want := "268435456"
			if w.isolation == sandbox.GVisor {
				script, want = "grep MemTotal /proc/meminfo", "262144 kB"
			}
			if out, _ := r.exec("sandbox", script); !strings.Contains(out, want) {
				t.Errorf("%s: %q, want %q", script, out, want)
			}
			if out, _ := r.exec("sandbox", "ulimit -n; ulimit -c"); out != "1024\n0\n" {
				t.Errorf("ulimit -n, -c = %q, want 1024 and 0", out)
			}
		})
	}
}
