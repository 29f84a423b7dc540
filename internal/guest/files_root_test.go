//go:build root

package guest_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree/filetreetest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// boxWithDisk is a sandbox whose workspace and home are directories of the
// host, as those of a disk.
func boxWithDisk(t testing.TB, gvisor bool) (b box, workspace, home string) {
	t.Helper()
	dir := t.TempDir()
	workspace, home = filepath.Join(dir, "workspace"), filepath.Join(dir, "home")
	bind := func(from, to string) map[string]any {
		must(t, os.Mkdir(from, 0o755))
		must(t, os.Chown(from, 1000, 1000))
		return map[string]any{"destination": to, "type": "bind", "source": from, "options": []string{"rbind", "rw", "nosuid", "nodev"}}
	}
	b = startBox(t, gvisor, nil, bind(workspace, "/workspace"), bind(home, "/home/sandbox"))
	return b, workspace, home
}

// The file API of an agent that really is PID 1 of a sandbox.
func TestFilesInSandboxes(t *testing.T) {
	for name, gvisor := range map[string]bool{"gvisor": true, "container": false} {
		t.Run(name, func(t *testing.T) {
			b, workspace, home := boxWithDisk(t, gvisor)
			open := func(t *testing.T) filetreetest.Env {
				for _, dir := range []string{workspace, home} {
					entries, err := os.ReadDir(dir)
					must(t, err)
					for _, e := range entries {
						must(t, os.RemoveAll(filepath.Join(dir, e.Name())))
					}
				}
				must(t, os.Symlink("/workspace", filepath.Join(home, "workspace")))
				return filetreetest.Env{Files: b.Client, Workspace: workspace, Home: home}
			}
			t.Run("Run", func(t *testing.T) { filetreetest.Run(t, open) })
			t.Run("Attacks", func(t *testing.T) { filetreetest.Attacks(t, open) })
			t.Run("WholeFileSystem", func(t *testing.T) { testWholeFileSystem(t, open(t)) })
			t.Run("Watch", func(t *testing.T) { testWatchInside(t, b) })
		})
	}
}

func testWholeFileSystem(t *testing.T, e filetreetest.Env) {
	ctx := t.Context()
	write := func(name, content string) {
		t.Helper()
		if _, err := e.Write(ctx, name, strings.NewReader(content), sandbox.FileWrite{Parents: true, User: "root"}); err != nil {
			t.Errorf("Write(%s) = %v", name, err)
		}
	}
	read := func(name string) string {
		t.Helper()
		r, _, err := e.Read(ctx, name, 0, -1)
		if err != nil {
			t.Errorf("Read(%s) = %v", name, err)
			return ""
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Errorf("Read(%s) = %v", name, err)
		}
		return string(b)
	}
	write("/etc/cubby/test.conf", "a")
	if got := read("/etc/cubby/test.conf"); got != "a" {
		t.Errorf("a file of the root file system holds %q, want a", got)
	}
	// Moves between file systems copy.
	write("/tmp/tree/sub/f", "moved")
	must(t, func() error { _, err := e.Rename(ctx, "/tmp/tree", "/workspace/tree", false); return err }())
	if got := read("/workspace/tree/sub/f"); got != "moved" {
		t.Errorf("a file that was moved to the disk holds %q", got)
	}
	if _, err := e.Stat(ctx, "/tmp/tree", false); !errors.Is(err, errs.NotFound) {
		t.Errorf("Stat of what was moved away = %v, want not found", err)
	}
	// Files of /proc say that they are empty.
	if got := read("/proc/self/status"); !strings.Contains(got, "Name:") {
		t.Errorf("Read(/proc/self/status) = %.40q", got)
	}
	for _, name := range []string{"/dev/zero", "/dev/null", "/dev/ptmx"} {
		if _, _, err := e.Read(ctx, name, 0, -1); !errors.Is(err, errs.Invalid) {
			t.Errorf("Read(%s) = %v, want invalid", name, err)
		}
		if _, err := e.Write(ctx, name, strings.NewReader("x"), sandbox.FileWrite{}); !errors.Is(err, errs.Invalid) {
			t.Errorf("Write(%s) = %v, want invalid", name, err)
		}
	}
	if f, err := e.Write(ctx, "/workspace/d", strings.NewReader("x"), sandbox.FileWrite{User: "daemon"}); err != nil || f.UID != 7 || f.GID != 8 {
		t.Errorf("Write by daemon of the image's passwd = %d:%d, %v, want 7:8", f.UID, f.GID, err)
	}
	for _, name := range []string{"/", "/workspace", "/proc"} {
		if err := e.Remove(ctx, name, true); err == nil {
			t.Errorf("Remove(%s) = nil", name)
		}
	}
}

func testWatchInside(t *testing.T, b box) {
	ctx := testContext(t)
	_, err := b.MakeDir(ctx, "/workspace/w", 0, true, "")
	must(t, err)
	seen := map[string]bool{}
	for change, err := range b.Watch(ctx, "/workspace/w", true) {
		must(t, err)
		if change.Op == "ready" {
			_, err := b.Write(ctx, "/workspace/w/sub/f", bytes.NewReader([]byte("x")), sandbox.FileWrite{Parents: true})
			must(t, err)
		}
		seen[change.Op+" "+change.Path] = true
		if seen["create /workspace/w/sub"] && seen["create /workspace/w/sub/f"] {
			return
		}
	}
}

func BenchmarkFilesInSandboxes(b *testing.B) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 100<<20/16)
	for name, gvisor := range map[string]bool{"gvisor": true, "container": false} {
		box, _, _ := boxWithDisk(b, gvisor)
		b.Run(name+"/upload100MB", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				_, err := box.Write(b.Context(), "/workspace/f", bytes.NewReader(data), sandbox.FileWrite{})
				must(b, err)
			}
		})
		b.Run(name+"/download100MB", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				r, _, err := box.Read(b.Context(), "/workspace/f", 0, -1)
				must(b, err)
				_, err = io.Copy(io.Discard, r)
				must(b, err)
				r.Close()
			}
		})
		b.Run(name+"/writeSmall", func(b *testing.B) {
			for b.Loop() {
				_, err := box.Write(b.Context(), "/workspace/s", strings.NewReader("x"), sandbox.FileWrite{})
				must(b, err)
			}
		})
		b.Run(name+"/stat", func(b *testing.B) {
			for b.Loop() {
				_, err := box.Stat(b.Context(), "/workspace/f", true)
				must(b, err)
			}
		})
	}
}
