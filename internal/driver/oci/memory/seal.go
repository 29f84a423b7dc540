package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
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
// be read of its files, and makes it whole. All of it is on the disk then.
func (m Memory) Seal(c Content) error {
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
	// The disk works while the sums are taken.
	var onDisk errgroup.Group
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
	err = m.writeManifest(names, c.Secret)
	if err = errors.Join(err, onDisk.Wait()); err != nil {
		return err
	}
	if err := syncFile(half); err != nil {
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
	path := filepath.Join(m.Half(), manifestName)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return syncFile(path)
}

func (m Memory) readManifest() (list manifest, err error) {
	data, err := os.ReadFile(filepath.Join(m.path(), manifestName))
	if err != nil {
		return list, err
	}
	head, data, _ := bytes.Cut(data, []byte("\n"))
	if got := fmt.Sprintf("%08x", crc32.Checksum(data, castagnoli)); got != string(head) {
		return list, fmt.Errorf("the manifest has the sum %s, want %.8s", got, head)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return list, err
	}
	if list.Version != manifestVersion {
		return list, fmt.Errorf("manifest of version %d", list.Version)
	}
	return list, nil
}

// Verify reads the memory and returns what it says of itself. After an error
// nothing can begin from it.
func (m Memory) Verify() (c Content, err error) {
	list, err := m.readManifest()
	if err != nil {
		return c, err
	}
	for _, name := range []string{programName, filepath.Join(imageName, "checkpoint.img")} {
		if _, ok := list.Files[name]; !ok {
			return c, fmt.Errorf("no %s", name)
		}
	}
	names := make([]string, 0, len(list.Files))
	for name := range list.Files {
		names = append(names, name)
	}
	got, err := m.sum(m.path(), names)
	if err != nil {
		return c, err
	}
	for name, want := range list.Files {
		if !got[name].equal(want) {
			return c, fmt.Errorf("%s has changed: of %d bytes, want %d", name, got[name].Size, want.Size)
		}
	}
	c.Secret = list.Secret
	if _, ok := list.Files[noteName]; ok {
		c.Note, err = m.Note()
	}
	return c, err
}

// Note is the note of the memory, which nobody has verified.
func (m Memory) Note() ([]byte, error) { return os.ReadFile(filepath.Join(m.path(), noteName)) }

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
