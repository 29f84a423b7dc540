//go:build root

package walls_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// damages are what a guest, or a fault of the host, may leave as the disk of a
// stopped sandbox.
var damages = []struct {
	name   string
	usable bool // the kernel may find its way
	damage func(t *testing.T, image string)
}{
	{"superblock", false, func(t *testing.T, image string) { overwrite(t, image, 1024, 1024) }},
	{"truncated", false, func(t *testing.T, image string) {
		if err := os.Truncate(image, 1<<20); err != nil {
			t.Fatal(err)
		}
	}},
	{"link", false, func(t *testing.T, image string) {
		for _, request := range []string{"unlink /workspace", "symlink /workspace /etc"} {
			if out, err := exec.Command("debugfs", "-w", "-R", request, image).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", request, err, out)
			}
		}
	}},
	{"directories", true, func(t *testing.T, image string) { overwrite(t, image, 4096, 64<<10) }},
}

func overwrite(t *testing.T, image string, at int64, n int) {
	t.Helper()
	f, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, n), at); err != nil {
		t.Fatal(err)
	}
}

// disks are the images of the disks that sandboxes have.
func disks(t *testing.T, d *harness.Daemon) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(d.Dir, "disks", "*", "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// inUse reports whether a disk is mounted, or its loop device still there: a mount that
// is gone from the table may still be in use, and writes when it ends.
func inUse(t *testing.T, dir string) bool {
	t.Helper()
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, loop := range loops {
		// One that ends in this moment has no file any more.
		if image, err := os.ReadFile(loop); err == nil && strings.HasPrefix(string(image), dir+"/") {
			return true
		}
	}
	return len(harness.MountsBelow(dir)) > 0
}

// A damaged disk is told in every answer of the API that needs it, none of which
// shows a path of the host or a file of it; the sandbox keeps a state that is
// true and can be removed with all that is of it, and the others go on.
func TestADaemonTellsOfADamagedDiskAndLivesOn(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	c := client.New(d.URL)
	other, err := c.Create(t.Context(), client.CreateOptions{Isolation: "container"})
	if err != nil {
		t.Fatal(err)
	}
	for i, damage := range damages {
		isolation := []string{"container", "gvisor"}[i%2]
		t.Run(damage.name+"/"+isolation, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			before := disks(t, d)
			b, err := c.Create(ctx, client.CreateOptions{Isolation: isolation, Limits: &client.Limits{DiskBytes: 64 << 20}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Exec(ctx, b.ID, client.ExecOptions{Shell: "mkdir dir && echo text > dir/file && sync"}); err != nil {
				t.Fatal(err)
			}
			mine := filepath.Dir(slices.DeleteFunc(disks(t, d), func(image string) bool { return slices.Contains(before, image) })[0])
			if _, err := c.Stop(ctx, b.ID, 0); err != nil {
				t.Fatal(err)
			}
			for inUse(t, mine) {
				if ctx.Err() != nil {
					t.Fatal("the disk stays mounted")
				}
				time.Sleep(20 * time.Millisecond)
			}
			damage.damage(t, filepath.Join(mine, "disk.img"))

			var refused int
			for what, err := range map[string]error{
				"read":  errorOf(c.Files(b.ID).Read(ctx, "dir/file")),
				"start": errorOf(c.Start(ctx, b.ID)),
			} {
				t.Logf("%s: %v", what, err)
				if err == nil {
					continue
				}
				refused++
				var e *client.Error
				if !errors.As(err, &e) || e.Code == "internal" || strings.Contains(err.Error(), d.Dir) || !strings.Contains(err.Error(), "damaged") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if refused == 0 && !damage.usable {
				t.Error("the disk is used as if nothing were wrong with it")
			}
			now, err := c.Get(ctx, b.ID)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %s", now.Status, now.Reason)
			x, err := c.Exec(ctx, b.ID, client.ExecOptions{Shell: "echo runs"})
			if runs := err == nil && x.Stdout == "runs\n"; runs != (now.Status == "running") {
				t.Errorf("it is %s, and a command got %q, %v", now.Status, x.Stdout, err)
			}
			if _, err := c.Purge(ctx, b.ID); err != nil {
				t.Errorf("purge: %v", err)
			}
			if _, err := os.Stat(mine); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the disk is left: %v", err)
			}
			if left := harness.MountsBelow(mine); len(left) > 0 {
				t.Errorf("left mounted: %v", left)
			}
			if x, err := c.Exec(ctx, other.ID, client.ExecOptions{Shell: "echo on"}); err != nil || x.Stdout != "on\n" {
				t.Errorf("another sandbox: %q, %v", x.Stdout, err)
			}
		})
	}
}

func errorOf[T any](_ T, err error) error { return err }
