// Package memory is the kept memory of a sandbox: a directory on the host's disk
// and not on the sandbox's. It is no file of the sandbox, must fit when its disk
// is full, and is bounded together with those of all others. That of a sleeper is
// beside its notes and goes with it, that of a snapshot is by itself. It holds
// every secret that was in memory, so nobody but root reads it.
//
// It has its name when it is complete; until then it is half a memory, which
// nothing ever begins from. With the memory lies the program that wrote it,
// since another version may not read it. The package runs nothing: who writes and
// reads the image is its caller's matter.
package memory

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Memory is what is kept of one sandbox, or is not there.
type Memory struct {
	dir      string
	programs *Programs
}

// Of returns the memory that is kept in a directory, among other things. Programs
// is the caller's, for all of its memories.
func Of(dir string, programs *Programs) Memory { return Memory{dir, programs} }

func (m Memory) path() string { return filepath.Join(m.dir, "memory") }
func (m Memory) used() string { return filepath.Join(m.dir, "memory.used") }

// Half is where a memory is written.
func (m Memory) Half() string { return filepath.Join(m.dir, "memory.new") }

// HalfImage is where the program writes its part of it.
func (m Memory) HalfImage() string { return filepath.Join(m.Half(), imageName) }

// HalfRoot is where the root filesystem is written that a cold start begins with,
// by who keeps it here.
func (m Memory) HalfRoot() string { return filepath.Join(m.Half(), rootName) }

// Image is what the program wrote, Program that program, and Root the root
// filesystem.
func (m Memory) Image() string   { return filepath.Join(m.path(), imageName) }
func (m Memory) Program() string { return filepath.Join(m.path(), programName) }
func (m Memory) Root() string    { return filepath.Join(m.path(), rootName) }

// What is in the directory.
const (
	manifestName = "manifest"
	programName  = "runsc"
	imageName    = "image"
	rootName     = "root"
	noteName     = "note.json"
)

// Kept reports whether there is a memory, and what it takes of the disk. The
// program is not counted where it is one with what is kept anyway.
func (m Memory) Kept() (size int64, found bool, err error) {
	err = filepath.WalkDir(m.path(), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && (st.Nlink == 1 || e.Name() != programName) {
			size += st.Blocks * 512
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		// Of one that goes at this moment a part may be gone.
		return 0, false, nil
	}
	return size, err == nil, err
}

// Forget removes the memory. It is gone, also after a crash of the host, before
// the first of its files goes.
func (m Memory) Forget() error {
	if err := os.RemoveAll(m.used()); err != nil {
		return err
	}
	err := os.Rename(m.path(), m.used())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = SyncTree(m.dir)
	}
	return errors.Join(err, os.RemoveAll(m.used()))
}

// Tidy removes what is half written or half removed.
func (m Memory) Tidy() error { return errors.Join(os.RemoveAll(m.Half()), os.RemoveAll(m.used())) }

// Begin makes half a memory, with the program at a path, which may be a link that
// the kernel shows.
func (m Memory) Begin(program string) error {
	if err := os.RemoveAll(m.Half()); err != nil {
		return err
	}
	if err := os.MkdirAll(m.HalfImage(), 0o700); err != nil {
		return err
	}
	from, to := program, filepath.Join(m.Half(), programName)
	if unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW) == nil {
		return nil
	}
	// Elsewhere, or without a name.
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Needs is how much room the memory of a process takes on the disk, and how
// much of that is files of the sandbox's: what gVisor keeps in files that have no
// name any more.
func Needs(pid int) (all, files int64, err error) {
	fds := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, err := os.ReadDir(fds)
	if err != nil {
		return 0, 0, err
	}
	seen := make(map[[2]uint64]bool)
	for _, e := range entries {
		path := filepath.Join(fds, e.Name())
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 0 || seen[[2]uint64{st.Dev, st.Ino}] {
			continue
		}
		seen[[2]uint64{st.Dev, st.Ino}] = true
		size := st.Blocks * 512
		all += size
		var where unix.Statfs_t
		if err := unix.Statfs(path, &where); err == nil && where.Type != unix.TMPFS_MAGIC {
			files += size
		}
	}
	return all, files, nil
}

// SyncTree puts a directory and the files in it onto the disk.
func SyncTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	paths := []string{dir}
	for _, e := range entries {
		if e.Type().IsRegular() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = f.Sync()
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
