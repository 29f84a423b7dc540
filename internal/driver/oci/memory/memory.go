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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/forklock"
)

// Memory is what is kept of one sandbox, or is not there.
type Memory struct {
	dir      string
	programs *Programs
	open     func(path string) (*os.File, error) // what is kept, to read it
}

// Of returns the memory that is kept in a directory, among other things. Programs
// is the caller's, for all of its memories.
func Of(dir string, programs *Programs) Memory { return Memory{dir, programs, os.Open} }

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
	return size, err == nil, classified(err)
}

// Forget removes the memory.
func (m Memory) Forget() error {
	if err := m.Retire(); err != nil {
		return err
	}
	return m.Discard()
}

// Retire makes the memory none, also after a crash of the host. Its files stay
// until Discard removes them, which takes long for large ones.
func (m Memory) Retire() error {
	if err := m.Discard(); err != nil {
		return err
	}
	err := os.Rename(m.path(), m.used())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncFile(m.dir)
}

// Discard removes the files of a memory that was retired.
func (m Memory) Discard() error { return os.RemoveAll(m.used()) }

// WriteBehind lets the disk write what there is of half an image, while more of it
// is written, until stop is called.
func (m Memory) WriteBehind() (stop func()) {
	done := make(chan struct{})
	var behind sync.WaitGroup
	behind.Go(func() {
		tick := time.NewTicker(writeBehind)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				m.startWriting()
			}
		}
	})
	return func() {
		close(done)
		behind.Wait()
	}
}

const writeBehind = 10 * time.Millisecond

// startWriting only begins: what becomes of it a sync will say.
func (m Memory) startWriting() {
	names, _ := files(m.HalfImage())
	for _, name := range names {
		if f, err := os.Open(filepath.Join(m.HalfImage(), name)); err == nil {
			_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
			_ = f.Close()
		}
	}
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
	err = errors.Join(err, out.Close())
	forklock.Wait() // it is going to be executed
	return err
}

// Needs is how much room the memory of a process takes on the disk, and a save of its
// files beside it, which are part of it: what gVisor keeps in files that have no name
// any more.
func Needs(pid int) (bytes int64, err error) {
	fds := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, err := os.ReadDir(fds)
	if err != nil {
		return 0, err
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
		bytes += size
		var where unix.Statfs_t
		if err := unix.Statfs(path, &where); err == nil && where.Type != unix.TMPFS_MAGIC {
			bytes += size
		}
	}
	return bytes, nil
}

// SyncTree puts a directory and the files in it onto the disk.
func SyncTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.Go(func() error { return syncFile(dir) })
	for _, e := range entries {
		if e.Type().IsRegular() {
			all.Go(func() error { return syncFile(filepath.Join(dir, e.Name())) })
		}
	}
	return all.Wait()
}

// SyncNames puts the names in a directory onto the disk.
func SyncNames(dir string) error { return syncFile(dir) }

// Publish puts a complete directory onto the disk and gives it its name, in the
// place of an older one. After an error it is gone.
func Publish(fresh, dir string) error {
	if err := SyncTree(fresh); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return errors.Join(Exchange(fresh, dir), SyncNames(filepath.Dir(dir)), os.RemoveAll(fresh))
}

// PublishLinks is [Publish] of a fresh directory that has the files of another, which
// is on the same disk. What an earlier call left there goes.
func PublishLinks(from, fresh, dir string) error {
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Link(filepath.Join(from, e.Name()), filepath.Join(fresh, e.Name())); err != nil {
			return err
		}
	}
	return Publish(fresh, dir)
}

// Exchange gives a directory the name of another, which gets its name if there is
// one.
func Exchange(fresh, dir string) error {
	err := unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) {
		err = os.Rename(fresh, dir)
	}
	return err
}
