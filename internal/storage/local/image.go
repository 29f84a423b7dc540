package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// maxFormats bounds how many disks are formatted at once.
const maxFormats = 4

// probe says whether this host can make disks with a hard size.
func probe() (mkfs string, err error) {
	if os.Geteuid() != 0 {
		return "", errs.E(errs.Unsupported, "disks have no hard size: cubby does not run as root").
			Hint("run cubby as root")
	}
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", errs.E(errs.Unsupported, "disks have no hard size: this host has no loop devices").
			Hint("load the kernel module: modprobe loop").Because(err)
	}
	ctl.Close()
	if mkfs = program("mkfs.ext4"); mkfs == "" {
		return "", errs.E(errs.Unsupported, "disks have no hard size: mkfs.ext4 is missing").
			Hint("install it: apt-get install e2fsprogs")
	}
	return mkfs, nil
}

// program finds a program of the system, also where a user's PATH has no sbin.
func program(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if p := filepath.Join(dir, name); unix.Access(p, unix.X_OK) == nil {
			return p
		}
	}
	return ""
}

// build makes a disk, formatted and mounted, in a directory of the pool that
// nobody else knows, and returns it. After an error nothing is left.
func (d *Disks) build(ctx context.Context, bytes int64, dirs []diskDir) (_ string, err error) {
	dir, err := os.MkdirTemp(filepath.Join(d.cfg.Dir, poolName), unfinished)
	if err != nil {
		return "", fmt.Errorf("make a disk: %w", err)
	}
	defer func() {
		if err != nil {
			d.discard(dir)
		}
	}()
	mnt := filepath.Join(dir, mountName)
	if err := os.Mkdir(mnt, 0o700); err != nil {
		return "", fmt.Errorf("make a disk: %w", err)
	}
	if d.loopErr != nil {
		if err := os.WriteFile(filepath.Join(dir, plainName), []byte(strconv.FormatInt(bytes, 10)), 0o600); err != nil {
			return "", fmt.Errorf("make a disk: %w", err)
		}
		return dir, populate(mnt, dirs)
	}
	if err := d.format.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer d.format.Release(1)
	image := filepath.Join(dir, imageName)
	if err := d.makeImage(ctx, image, bytes); err != nil {
		return "", err
	}
	if err := mountNew(ctx, dir); err != nil {
		return "", err
	}
	return dir, populate(mnt, dirs)
}

// makeImage formats a sparse file. Its tables and journal are left to be
// written when they are used: the file reads as zeros where nothing was.
func (d *Disks) makeImage(ctx context.Context, image string, bytes int64) error {
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make a disk image: %w", err)
	}
	err = f.Truncate(bytes)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("make a disk image: %w", err)
	}
	return mkfs(ctx, d.mkfs, image, bytes)
}

func mkfs(ctx context.Context, program, image string, size int64) error {
	cmd := exec.CommandContext(ctx, program, "-q", "-F",
		"-b", "4096", "-I", "256",
		"-m", "0", // root inside gets no more than the others
		"-J", "size="+strconv.FormatInt(journalMiB(size), 10),
		"-E", "lazy_journal_init=1",
		"-L", "cubby", image)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("format a disk: %w: %.500s", err, out.String())
	}
	return nil
}

// journalMiB trades throughput of metadata for space: the journal is part of
// the disk and, once used, of the host.
func journalMiB(size int64) int64 {
	switch {
	case size >= 2<<30:
		return 32
	case size >= 512<<20:
		return 16
	default:
		return 4
	}
}

// diskDir is a directory at the top of a disk.
type diskDir struct {
	name string
	mode fs.FileMode
	own  bool // it belongs to the default user
	link bool // it holds the link to the workspace
}

// ownDirs are those of a sandbox's own disk.
func ownDirs() []diskDir {
	return []diskDir{{name: "workspace", mode: 0o755, own: true}, {name: "home", mode: 0o755, own: true, link: true}, {name: "root", mode: 0o700}}
}

// sharedDirs are those of a disk that several sandboxes share.
func sharedDirs() []diskDir {
	return []diskDir{{name: "workspace", mode: 0o755, own: true}, {name: "outputs", mode: 0o755, own: true}, {name: "uploads", mode: 0o755, own: true}}
}

// populate makes the directories that a sandbox sees.
func populate(mnt string, dirs []diskDir) error {
	// The default user owns the first two; where this process may not give
	// files away, everything belongs to who runs it.
	own := func(path string) error {
		err := os.Lchown(path, sandbox.UserID, sandbox.UserID)
		if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
			return nil
		}
		return err
	}
	for _, dir := range dirs {
		p := filepath.Join(mnt, dir.name)
		if err := os.Mkdir(p, dir.mode); err != nil {
			return fmt.Errorf("fill a disk: %w", err)
		}
		if err := os.Chmod(p, dir.mode); err != nil {
			return fmt.Errorf("fill a disk: %w", err)
		}
		if dir.own {
			if err := own(p); err != nil {
				return fmt.Errorf("fill a disk: %w", err)
			}
		}
		if dir.link {
			link := filepath.Join(p, "workspace")
			if err := os.Symlink(sandbox.WorkspaceDir, link); err != nil {
				return fmt.Errorf("fill a disk: %w", err)
			}
			if err := own(link); err != nil {
				return fmt.Errorf("fill a disk: %w", err)
			}
		}
	}
	if err := os.Remove(filepath.Join(mnt, "lost+found")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("fill a disk: %w", err)
	}
	return nil
}

// allocated is what a disk's files take on the host.
func allocated(dir string) int64 {
	var sum int64
	add := func(path string) error {
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		if err == nil {
			sum += st.Blocks * 512
		}
		return err
	}
	if add(filepath.Join(dir, imageName)) == nil {
		return sum
	}
	_ = filepath.WalkDir(filepath.Join(dir, mountName), func(p string, _ fs.DirEntry, err error) error {
		if err == nil {
			_ = add(p)
		}
		return nil
	})
	return sum
}

// removeDir removes a disk's directory. Guests made what is in a plain one, so
// its depth is not bounded.
func removeDir(ctx context.Context, dir string) error {
	err := filetree.Whole(filetree.Options{}).Remove(ctx, dir, true)
	if errors.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
