package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// manifest says what a memory consists of. Its file is a line with the sum of the
// rest, which is this in JSON.
type manifest struct {
	Version int `json:"v"`
	// Secret is what the agent says to the channel.
	Secret string          `json:"secret"`
	Files  map[string]sums `json:"files"`
}

// manifestVersion 1 had one sum for each file, and none of its own. No release
// wrote one.
const manifestVersion = 2

// Content is what a memory says of itself.
type Content struct {
	Secret string
	Note   []byte // its caller's; nil when Seal was given none
}

// Seal writes a note and the manifest of half a memory, with the sums of what can
// be read of its files, and makes it whole. All of it is on the disk then. What is
// done meanwhile has been done without an error, and the names that it left in the
// directory that the memory is kept in are on the disk too.
func (m Memory) Seal(c Content, meanwhile func() error) error {
	half := m.Half()
	if c.Note != nil {
		if err := os.WriteFile(filepath.Join(half, noteName), c.Note, 0o600); err != nil {
			return err
		}
	}
	names, err := files(half)
	if err != nil {
		return err
	}
	// The disk works while the sums are taken. Each of these may wait for its
	// journal, all together as long as one of them.
	var onDisk errgroup.Group
	var done error // says more than that a file of the half is gone
	onDisk.Go(func() error { done = meanwhile(); return nil })
	for _, name := range names {
		onDisk.Go(func() error { return syncFile(filepath.Join(half, name)) })
	}
	for _, dir := range []string{imageName, rootName} {
		onDisk.Go(func() error {
			if err := syncFile(filepath.Join(half, dir)); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
	}
	if err = m.writeManifest(names, c.Secret); err == nil {
		onDisk.Go(func() error { return syncFile(filepath.Join(half, manifestName)) })
		onDisk.Go(func() error { return syncFile(half) })
	}
	synced := onDisk.Wait()
	if err = errors.Join(done, err, synced); err != nil {
		return err
	}
	if err := os.Rename(half, m.path()); err != nil {
		return err
	}
	return syncFile(m.dir)
}

func (m Memory) writeManifest(names []string, secret string) error {
	list := manifest{Version: manifestVersion, Secret: secret}
	var err error
	if list.Files, err = m.sum(m.Half(), names); err != nil {
		return err
	}
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	data = fmt.Appendf(nil, "%08x\n%s", crc32.Checksum(data, castagnoli), data)
	return os.WriteFile(filepath.Join(m.Half(), manifestName), data, 0o600)
}

func (m Memory) readManifest() (list manifest, err error) {
	data, err := m.read(manifestName)
	if err != nil {
		return list, err
	}
	head, data, _ := bytes.Cut(data, []byte("\n"))
	if got := fmt.Sprintf("%08x", crc32.Checksum(data, castagnoli)); got != string(head) {
		return list, found("the manifest has the sum %s, want %.8s", got, head)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return list, found("the manifest: %w", err)
	}
	if list.Version != manifestVersion {
		return list, found("manifest of version %d", list.Version)
	}
	return list, nil
}

// Open returns what the memory says of itself, which is verified, as the program
// is. Of the rest only Verify knows: nothing may be read of that before it says so.
// Kinds, of both: NotFound when there is none, or what was read of it is damaged;
// Unavailable when it could not be read, of which nothing follows.
func (m Memory) Open() (c Content, err error) {
	defer func() { err = classified(err) }()
	list, err := m.readManifest()
	if err != nil {
		return c, err
	}
	for _, name := range []string{programName, filepath.Join(imageName, "checkpoint.img")} {
		if _, ok := list.Files[name]; !ok {
			return c, found("no %s", name)
		}
	}
	c.Secret = list.Secret
	first := []string{programName}
	if _, ok := list.Files[noteName]; ok {
		first = append(first, noteName)
		if c.Note, err = m.Note(); err != nil {
			return c, err
		}
	}
	return c, m.compare(list, first)
}

// Verify reads what Open left out.
func (m Memory) Verify() (err error) {
	defer func() { err = classified(err) }()
	list, err := m.readManifest()
	if err != nil {
		return err
	}
	var names []string
	for name := range list.Files {
		if name != programName && name != noteName {
			names = append(names, name)
		}
	}
	return m.compare(list, names)
}

func (m Memory) compare(list manifest, names []string) error {
	got, err := m.sum(m.path(), names)
	if err != nil {
		return err
	}
	for _, name := range names {
		if want := list.Files[name]; !got[name].equal(want) {
			return found("%s has changed: it has %d bytes, want %d", name, got[name].Size, want.Size)
		}
	}
	return nil
}

// Note is the note of the memory, which nobody has verified.
func (m Memory) Note() ([]byte, error) { return m.read(noteName) }

func (m Memory) read(name string) ([]byte, error) {
	f, err := m.open(filepath.Join(m.path(), name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// files lists the files below a directory, relative to it.
func files(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	return names, err
}

// syncFile puts a file, or the names in a directory, onto the disk.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
