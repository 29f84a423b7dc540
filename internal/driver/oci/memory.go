package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// The memory of a sandbox that sleeps is a directory beside its notes, on the
// host's disk and not on the sandbox's: it is no file of the sandbox, must fit
// when its disk is full, and is bounded together with those of all others. Like
// the notes it goes with the sandbox, and a listing finds it. It holds every
// secret that was in memory, so nobody but root reads it.
//
// It has its name when it is complete; until then it is half a memory, which
// nothing is ever woken from. With the memory lies the program that wrote it,
// since another version may not read it.

func (b box) memory() string     { return b.path("memory") }
func (b box) halfMemory() string { return b.path("memory.new") }
func (b box) usedMemory() string { return b.path("memory.used") }

// What is in the directory.
const (
	memoryManifest = "manifest.json"
	memoryProgram  = "runsc"
	memoryImage    = "image" // what the program wrote
)

// manifest says what a memory consists of.
type manifest struct {
	Version int `json:"v"`
	// Secret is what the agent says to the channel.
	Secret string              `json:"secret"`
	Files  map[string]checksum `json:"files"`
}

const manifestVersion = 1

// checksum finds damage. It is no proof against somebody who may write here:
// that is root, who needs no memory to do harm.
type checksum struct {
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(path string) (checksum, error) {
	f, err := os.Open(path)
	if err != nil {
		return checksum{}, err
	}
	defer f.Close()
	var c checksum
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		c.CRC32C = crc32.Update(c.CRC32C, castagnoli, buf[:n])
		c.Size += int64(n)
		if err == io.EOF {
			return c, nil
		}
		if err != nil {
			return checksum{}, err
		}
	}
}

// kept reports whether there is a memory, and what it takes of the disk. The
// program is not counted where it is one with what is kept anyway.
func (b box) kept() (size int64, found bool, err error) {
	err = filepath.WalkDir(b.memory(), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && st.Nlink == 1 {
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

// forget removes the memory. It is gone, also after a crash of the host, before
// the first of its files goes.
func (b box) forget() error {
	if err := os.RemoveAll(b.usedMemory()); err != nil {
		return err
	}
	err := os.Rename(b.memory(), b.usedMemory())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncTree(b.dir)
	}
	return errors.Join(err, os.RemoveAll(b.usedMemory()))
}

// seal writes the manifest of half a memory, with the sums of what can be read
// of its files, and makes it whole. All of it is on the disk then.
func (b box) seal(m manifest) error {
	m.Version, m.Files = manifestVersion, make(map[string]checksum)
	half := b.halfMemory()
	if err := syncTree(filepath.Join(half, memoryImage)); err != nil {
		return err
	}
	err := filepath.WalkDir(half, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(half, path)
		if err == nil {
			m.Files[name], err = sum(path)
		}
		return err
	})
	if err != nil {
		return err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(half, memoryManifest), data, 0o600); err != nil {
		return err
	}
	if err := syncTree(half); err != nil {
		return err
	}
	if err := os.Rename(half, b.memory()); err != nil {
		return err
	}
	return syncTree(b.dir)
}

// verified reads the memory back; errs.NotFound when nothing can be woken from it.
func (b box) verified() (manifest, error) {
	var m manifest
	data, err := os.ReadFile(filepath.Join(b.memory(), memoryManifest))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.Version != manifestVersion {
		err = fmt.Errorf("manifest of version %d", m.Version)
	}
	for _, name := range []string{memoryProgram, filepath.Join(memoryImage, "checkpoint.img")} {
		if _, ok := m.Files[name]; !ok && err == nil {
			err = fmt.Errorf("no %s", name)
		}
	}
	for name, want := range m.Files {
		if err != nil {
			break
		}
		var got checksum
		if got, err = sum(filepath.Join(b.memory(), name)); err == nil && got != want {
			err = fmt.Errorf("%s has %d bytes and the sum %08x, want %d and %08x", name, got.Size, got.CRC32C, want.Size, want.CRC32C)
		}
	}
	if err != nil {
		return manifest{}, errs.E(errs.NotFound, "the sandbox's memory is damaged").Hint("start it: its files are whole").Because(err)
	}
	return m, nil
}

// keepProgram puts the program of a process into a directory.
func keepProgram(p *process, dir string) error {
	from, to := p.program(), filepath.Join(dir, memoryProgram)
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

// program is a name for what the process executes, which is good as long as it
// runs, also when the file has been removed.
func (p *process) program() string { return "/proc/" + strconv.Itoa(p.pid) + "/exe" }

// memoryNeeds is how much room the memory of a process takes on the disk, and how
// much of that is files of the sandbox's: what gVisor keeps in files that have no
// name any more.
func memoryNeeds(p *process) (all, files int64, err error) {
	fds := "/proc/" + strconv.Itoa(p.pid) + "/fd"
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
