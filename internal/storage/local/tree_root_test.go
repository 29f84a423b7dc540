//go:build root

package local

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree/filetreetest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The files of a stopped sandbox, on a real disk.
func TestTreeOnADisk(t *testing.T) {
	d := realDisks(t, Config{Pool: 4, PoolBytes: 64 << 20})
	open := func(t *testing.T) filetreetest.Env {
		disk := mustCreate(t, d, 64<<20)
		tree, err := d.filesAlone(t.Context(), disk.UID)
		if err != nil {
			t.Fatal(err)
		}
		return filetreetest.Env{
			Files:     tree,
			Workspace: filepath.Join(disk.Dir, "workspace"),
			Home:      filepath.Join(disk.Dir, "home"),
			Confined:  true,
		}
	}
	t.Run("Run", func(t *testing.T) { filetreetest.Run(t, open) })
	t.Run("Attacks", func(t *testing.T) { filetreetest.Attacks(t, open) })
}

// Root inside a sandbox can make device nodes on its disk.
func TestTreeOpensNoDevices(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 64<<20)
	tree, err := d.filesAlone(t.Context(), disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	for name, dev := range map[string]struct {
		mode uint32
		dev  uint64
	}{
		"zero": {unix.S_IFCHR | 0o666, unix.Mkdev(1, 5)},
		"disk": {unix.S_IFBLK | 0o666, unix.Mkdev(7, 0)},
	} {
		if err := unix.Mknod(filepath.Join(disk.Dir, "workspace", name), dev.mode, int(dev.dev)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := tree.Read(t.Context(), name, 0, -1); errs.KindOf(err) != errs.Invalid {
			t.Errorf("Read(%s) = %v, want invalid", name, err)
		}
		if _, err := tree.Write(t.Context(), name, strings.NewReader("x"), sandbox.FileWrite{}); errs.KindOf(err) != errs.Invalid {
			t.Errorf("Write(%s) = %v, want invalid", name, err)
		}
		if f, err := tree.Stat(t.Context(), name, true); err != nil || f.Type != sandbox.OtherFile {
			t.Errorf("Stat(%s) = %v, %v, want other", name, f.Type, err)
		}
	}
	// What root keeps on the disk is not the sandbox user's to see.
	if _, err := tree.Stat(t.Context(), "/root", true); errs.KindOf(err) != errs.WrongState {
		t.Errorf("Stat(/root) = %v, want wrong state", err)
	}
}

// A daemon that is killed in the middle of an upload leaves no name behind: the
// file has none until it is whole.
func TestAnUploadHasNoNameUntilItIsWhole(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 64<<20)
	tree, err := d.filesAlone(t.Context(), disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	body, feed := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		_, err := tree.Write(t.Context(), "f", body, sandbox.FileWrite{})
		wrote <- err
	}()
	// The second piece is taken only when the first one is in the file.
	for range 2 {
		if _, err := feed.Write(make([]byte, 2<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(disk.Dir, "workspace")); err != nil || len(entries) != 0 {
		t.Errorf("in the middle of an upload there is %v, %v, want nothing", entries, err)
	}
	feed.Close()
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if f, err := tree.Stat(t.Context(), "f", false); err != nil || f.Size != 4<<20 || f.Mode != 0o644 || f.UID != 1000 {
		t.Errorf("after it there is %+v, %v, want 4 MiB of uid 1000", f, err)
	}
}
