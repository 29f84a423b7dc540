//go:build root

package local

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/hostdisk"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/storage/storagetest"
)

// sharingHost mounts a file system whose files can share blocks, as a host's.
func sharingHost(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	image, mnt := filepath.Join(dir, "xfs"), filepath.Join(dir, "mnt")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"mkfs.xfs", "-q", "-m", "reflink=1", image}, {"mount", "-o", "loop", image, mnt}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", argv[0], err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Error(err)
		}
	})
	return mnt
}

func TestDisksThatShareBlocksConform(t *testing.T) {
	host := sharingHost(t)
	for name, cfg := range map[string]Config{"loop": {}, "plain": {Plain: true}} {
		t.Run(name, func(t *testing.T) {
			storagetest.Run(t, func(t *testing.T) storage.Storage {
				cfg := cfg
				var err error
				if cfg.Dir, err = os.MkdirTemp(host, "disks"); err != nil {
					t.Fatal(err)
				}
				if cfg.Plain {
					return plainDisks(t, cfg)
				}
				return realDisks(t, cfg)
			})
		})
	}
}

// Where blocks can be shared, a clone of a disk in use takes next to nothing of
// the host until one of the two changes, and neither sees what the other writes.
func TestACloneSharesBlocks(t *testing.T) {
	ctx, host := t.Context(), sharingHost(t)
	d := realDisks(t, Config{Dir: filepath.Join(host, "disks")})
	a, b := sandbox.NewUID(), sandbox.NewUID()
	if err := d.Create(ctx, a, storage.Own, 128<<20); err != nil {
		t.Fatal(err)
	}
	use := storage.Use{User: a, Own: a}
	m, err := d.Attach(ctx, use)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64<<20)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(m.Own.Dir, "workspace", "data")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	before := freeOf(t, host)
	if _, err := d.Clone(ctx, storage.Source{UID: a}, b); err != nil {
		t.Fatal(err)
	}
	if took := before - freeOf(t, host); took > 16<<20 {
		t.Errorf("a clone of 64 MiB took %d bytes of the host", took)
	}
	if err := os.WriteFile(file, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, done, err := d.Files(ctx, storage.Use{User: b, Own: b})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	r, _, err := tree.Read(ctx, sandbox.WorkspaceDir+"/data", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the clone has %d bytes, %v, and not what its source had", len(got), err)
	}
	if err := d.Detach(ctx, a, a); err != nil {
		t.Error(err)
	}
}

// freeOf is the free space of a file system.
func freeOf(t *testing.T, dir string) int64 {
	t.Helper()
	s, err := hostdisk.Measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s.Free
}
