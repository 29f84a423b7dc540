//go:build root

package guest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/guest"
)

// These tests run the agent as PID 1 of real sandboxes, with a bundle as small
// as can be: busybox and the agent. The driver has its own tests of its own
// bundles.

const (
	busybox = "/bin/busybox"
	// memory and processes of the test sandboxes.
	testMemory = 256 << 20
	testPIDs   = 100
)

// runscBinary builds runsc once; CUBBY_TEST_RUNSC names a built one.
var runscBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CUBBY_TEST_RUNSC"); path != "" {
		return path, nil
	}
	init, err := agentBinary()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(init), "runsc")
	patch := exec.Command("../../scripts/gvisor.sh")
	patch.Stderr = os.Stderr
	modfile, err := patch.Output()
	if err != nil {
		return "", fmt.Errorf("patch gVisor: %w", err)
	}
	cmd := exec.Command("go", "build", "-modfile="+strings.TrimSpace(string(modfile)), "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/runsc")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build runsc: %s", out)
	}
	return path, nil
})

// box is a real sandbox.
type box struct {
	host
	pid   int // of the runtime's process that waits for it
	ready time.Duration
	log   string
}

// everySandbox runs a test in a gVisor sandbox and in a crun container.
func everySandbox(t *testing.T, test func(t *testing.T, b box)) {
	t.Run("gvisor", func(t *testing.T) { test(t, startBox(t, true, nil)) })
	t.Run("container", func(t *testing.T) { test(t, startBox(t, false, nil)) })
}

func inSandboxes(t *testing.T, test func(t *testing.T, h host)) {
	everySandbox(t, func(t *testing.T, b box) { test(t, b.host) })
}

var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETUID", "CAP_SETGID",
	"CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_NET_ADMIN",
}

func startBox(t testing.TB, gvisor bool, change func(*guestv1.Boot), mounts ...map[string]any) box {
	t.Helper()
	dir := t.TempDir()
	rootfs := filepath.Join(dir, "rootfs")
	for _, d := range []string{"bin", "sbin", "proc", "sys", "dev", "dev/pts", "tmp", "run/cubby", "etc", "workspace", "home/sandbox", "root"} {
		must(t, os.MkdirAll(filepath.Join(rootfs, d), 0o755))
	}
	must(t, os.Chmod(filepath.Join(rootfs, "tmp"), 0o777))
	must(t, os.Chown(filepath.Join(rootfs, "workspace"), 1000, 1000))
	copyFile(t, busybox, filepath.Join(rootfs, "bin/busybox"))
	copyFile(t, mustAgentBinary(t), filepath.Join(rootfs, "sbin/cubby-init"))
	applets, err := exec.Command(busybox, "--list").Output()
	must(t, err)
	for _, a := range bytes.Fields(applets) {
		_ = os.Symlink("busybox", filepath.Join(rootfs, "bin", string(a)))
	}
	must(t, os.WriteFile(filepath.Join(rootfs, "etc/passwd"), []byte("root:x:0:0:root:/root:/bin/sh\ndaemon:x:7:8:d:/:/bin/sh\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(rootfs, "etc/group"), []byte("extra:x:55:daemon\n"), 0o644))

	boot := &guestv1.Boot{
		Secret: secret, Socket: "/run/cubby/host.sock", Hostname: "boxy", OpenFiles: 1024,
		EgressListen: "127.0.0.1:3128", InSandboxCgroup: gvisor,
	}
	caps := capabilities
	if gvisor {
		boot.MemoryBytes, boot.Pids = testMemory, testPIDs
		caps = append(caps[:len(caps):len(caps)], "CAP_SYS_ADMIN", "CAP_SYS_RESOURCE")
	}
	if change != nil {
		change(boot)
	}

	chanDir := filepath.Join(dir, "c")
	must(t, os.Mkdir(chanDir, 0o755))
	b := box{host: host{path: filepath.Join(chanDir, "host.sock")}, log: filepath.Join(dir, "log")}
	b.channel = listen(t, b.path)

	writeBundle(t, dir, chanDir, caps, gvisor, mounts...)
	began := time.Now()
	b.pid = runBox(t, dir, b.log, gvisor, boot)
	b.Client = guest.New(b.channel.Dial)
	t.Cleanup(func() { b.Close() })
	ctx := testContext(t)
	if _, err := b.Hello(ctx); err != nil {
		text, _ := os.ReadFile(b.log)
		t.Fatalf("Hello = %v\n%s", err, text)
	}
	b.ready = time.Since(began)
	return b
}

func writeBundle(t testing.TB, dir, chanDir string, caps []string, gvisor bool, more ...map[string]any) {
	t.Helper()
	mounts := []map[string]any{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
		{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": []string{"newinstance", "ptmxmode=0666", "mode=0620"}},
		{"destination": "/run/cubby", "type": "bind", "source": chanDir, "options": []string{"rbind", "ro"}},
	}
	mounts = append(mounts, more...)
	resources := map[string]any{}
	if !gvisor {
		resources["pids"] = map[string]any{"limit": testPIDs}
	}
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]any{"uid": 0, "gid": 0}, "args": []string{"/sbin/cubby-init"}, "cwd": "/",
			"env":             []string{"PATH=/bin"},
			"noNewPrivileges": true,
			"capabilities":    map[string]any{"bounding": caps, "effective": caps, "permitted": caps},
		},
		"root": map[string]any{"path": "rootfs", "readonly": false}, "hostname": "boxy", "mounts": mounts,
		"annotations": map[string]string{"dev.cubby.shield": "true"}, // see cmd/runsc
		"linux": map[string]any{
			"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}},
			"resources":  resources,
		},
	}
	body, err := json.Marshal(spec)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "config.json"), body, 0o644))
}

// runBox runs the bundle in the foreground of a process of its own and
// returns that process's pid. It is gone at the end of the test.
func runBox(t testing.TB, dir, log string, gvisor bool, boot *guestv1.Boot) int {
	t.Helper()
	text, err := protojson.Marshal(boot)
	must(t, err)
	out, err := os.Create(log)
	must(t, err)
	defer out.Close()
	id := fmt.Sprintf("guest%d%d", os.Getpid(), time.Now().UnixNano())
	state := filepath.Join(dir, "state")
	var cmd *exec.Cmd
	if gvisor {
		runsc, err := runscBinary()
		must(t, err)
		upper := filepath.Join(dir, "upper")
		must(t, os.Mkdir(upper, 0o755))
		cmd = exec.Command(runsc, "--root="+state, "--network=none", "--host-uds=open", "--overlay2=root:dir="+upper,
			"--platform=systrap", "--ignore-cgroups", "--in-sandbox-cgroup=v2", "run", "--bundle", dir, id)
	} else {
		// crun refuses the hybrid cgroup layout; without the second tree it
		// does not see one.
		cmd = exec.Command("unshare", "-m", "sh", "-c",
			`umount /sys/fs/cgroup/unified 2>/dev/null; exec crun --root "$1" run --bundle "$2" "$3"`, "sh", state, dir, id)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		if gvisor {
			runsc, _ := runscBinary()
			_ = exec.Command(runsc, "--root="+state, "kill", id, "KILL").Run()
			<-ended
			_ = exec.Command(runsc, "--root="+state, "delete", "--force", id).Run()
		} else {
			_ = exec.Command("crun", "--root", state, "kill", id, "KILL").Run()
			<-ended
			_ = exec.Command("crun", "--root", state, "delete", "--force", id).Run()
		}
		_ = exec.Command("umount", filepath.Join(state, "null-netns")).Run()
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("log of the sandbox:\n%s", text)
		}
	})
	return cmd.Process.Pid
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, b, 0o755))
}
