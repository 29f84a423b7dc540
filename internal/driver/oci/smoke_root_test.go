//go:build root

package oci

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// smallRootfs is an image with busybox alone.
func smallRootfs(t testing.TB) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "rootfs")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, target := range driver.MountTargets() {
		path := filepath.Join(root, target.Path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err != nil {
			t.Fatal(err)
		}
		if target.Dir {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, target.UID, target.GID); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, target.Mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"cp", "/bin/busybox", root + "/bin/busybox"},
		{"/bin/busybox", "--install", "-s", root + "/bin"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s (the tests need the package busybox-static)", args, err, out)
		}
	}
	// --install links to the absolute path of the host's busybox, which is
	// the image's too.
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nsandbox:x:1000:1000::/home/sandbox:/bin/sh\n",
		"etc/group":  "root:x:0:\nsandbox:x:1000:\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func plainDisk(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"workspace", "home", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if name != "root" {
			if err := os.Chown(filepath.Join(dir, name), sandbox.UserID, sandbox.UserID); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func spec(t testing.TB, isolation sandbox.Isolation) driver.Spec {
	return driver.Spec{
		UID: sandbox.NewUID(), Hostname: "box", Isolation: isolation,
		Limits: sandbox.Limits{MemoryBytes: 256 << 20, CPUs: 1, PIDs: 128, DiskBytes: 1 << 30, OpenFiles: 1024},
		Rootfs: smallRootfs(t), Disk: plainDisk(t),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/sandbox"},
	}
}

func TestSmoke(t *testing.T) {
	for _, isolation := range []sandbox.Isolation{sandbox.GVisor, sandbox.Container} {
		t.Run(string(isolation), func(t *testing.T) {
			d, err := New(Config{StateDir: t.TempDir(), RuntimesDir: "/tmp/oci/runtimes"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			t.Logf("%+v", d.Capabilities())
			for range 3 {
				begin := time.Now()
				h, err := d.Create(ctx, spec(t, isolation))
				if err != nil {
					t.Fatal(err)
				}
				begin = time.Now()
				if err := d.Start(ctx, h); err != nil {
					var e error = err
					t.Errorf("start: %v", e)
				}
				started := time.Since(begin)
				status, err := d.Inspect(ctx, h)
				t.Log(status, err)
				begin = time.Now()
				if err := d.Destroy(ctx, h); err != nil {
					t.Error(err)
				}
				t.Log("start", started, "destroy", time.Since(begin))
				_ = fs.ModeDir
			}
		})
	}
}
