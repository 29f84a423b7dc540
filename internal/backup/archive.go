// Package backup is the format of a data directory's backup: how one is written, checked
// and unpacked. What belongs into one is the daemon's matter.
//
// # The format
//
// A backup is a tar archive (PAX) and, after its end, a line: the SHA-256 of all bytes
// before it, in hexadecimal. The first entry is [HeaderName], a JSON document that says
// of which format version the backup is and what was left out. The last is
// [ManifestName], a JSON document with the size and the SHA-256 of the content of each
// file before it. What lies between has its path in the data directory.
//
// A file with holes has the record [sparseRecord] with its real size. Its content is a
// map, a decimal number to a line, filled up with zeros to whole blocks of 512 bytes:
// how many pieces of data there are, then where each begins and how long it is. The
// pieces follow each other after it. So a plain tar program unpacks all but those.
package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Names of what is no file of the data directory.
const (
	HeaderName   = "cubby-backup.json"
	ManifestName = "cubby-manifest.json"
)

// FormatVersion is what is written. A backup of a later one is not read.
const FormatVersion = 1

const (
	sparseRecord = "CUBBY.sparse.realsize"
	xattrRecord  = "SCHILY.xattr."
	block        = 512
)

// Header says what a backup is.
type Header struct {
	Format    int       `json:"format"`
	CreatedAt time.Time `json:"created_at"`
	Version   string    `json:"cubby"` // of the program that wrote it
	// Without names what was left out of it.
	Without []string `json:"without,omitempty"`
}

// manifest is the last entry.
type manifest struct {
	Files []file `json:"files"`
}

type file struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // of what the archive has of it
}

// Writer writes a backup. It is whole only after Close.
type Writer struct {
	out   io.Writer
	sum   hash.Hash
	tar   *tar.Writer
	files manifest
	links map[[4]int64]string // files with several names in the tree that is written, and the first of those
}

// NewWriter begins a backup.
func NewWriter(out io.Writer, h Header) (*Writer, error) {
	w := &Writer{out: out, sum: sha256.New()}
	w.tar = tar.NewWriter(io.MultiWriter(out, w.sum))
	h.Format = FormatVersion
	return w, w.document(HeaderName, h)
}

func (w *Writer) document(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	return w.entry(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: time.Now()}, bytes.NewReader(data))
}

// entry writes one file and notes its sum.
func (w *Writer) entry(h *tar.Header, content io.Reader) error {
	h.Format = tar.FormatPAX
	if err := w.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(w.tar, sum), content, h.Size); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	w.files.Files = append(w.files.Files, file{Name: h.Name, Bytes: h.Size, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// Close ends the backup.
func (w *Writer) Close() error {
	if err := w.document(ManifestName, w.files); err != nil {
		return err
	}
	if err := w.tar.Close(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w.out, "%x\n", w.sum.Sum(nil))
	return err
}

// Tree adds what is below a directory under a name in the backup, with the directory
// itself. What goes away meanwhile is left out; skip says of a path below dir that it is
// not wanted. What lies on other file systems is not followed.
func (w *Writer) Tree(name, dir string, skip func(rel string) bool) error {
	var top unix.Stat_t
	if err := unix.Lstat(dir, &top); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	w.links = make(map[[4]int64]string)
	return filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if rel != "." && skip != nil && skip(rel) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		in, err := w.file(path.Join(name, filepath.ToSlash(rel)), p, top.Dev)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !in && e.IsDir() {
			return fs.SkipDir
		}
		return err
	})
}

// File adds a file.
func (w *Writer) File(name, from string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	_, err := w.file(name, from, st.Dev)
	return err
}

// file adds whatever lies at a path. It reports whether that is on the device.
func (w *Writer) file(name, from string, device uint64) (in bool, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return true, &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(st.Mtim.Unix()),
		PAXRecords: make(map[string]string),
	}
	if st.Dev != device { // a mount: its directory stays
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o700
		return false, w.entry(h, nil)
	}
	if err := attributes(h, from); err != nil {
		return true, err
	}
	id := [4]int64{int64(st.Dev), int64(st.Ino), st.Size, st.Mtim.Nano()}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(from); err != nil {
			return true, err
		}
	case unix.S_IFREG:
		if first, ok := w.links[id]; ok {
			h.Typeflag, h.Linkname, h.PAXRecords = tar.TypeLink, first, nil
			break
		}
		if st.Nlink > 1 && w.links != nil {
			w.links[id] = name
		}
		return true, w.regular(h, from)
	case unix.S_IFCHR, unix.S_IFBLK:
		h.Typeflag = tar.TypeChar
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			h.Typeflag = tar.TypeBlock
		}
		h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	default: // a socket is nothing without who listens
		return true, nil
	}
	return true, w.entry(h, nil)
}

// attributes takes the extended attributes of a file into a header.
func attributes(h *tar.Header, from string) error {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(from, names)
	if errors.Is(err, unix.EOPNOTSUPP) || n == 0 {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "list attributes", Path: from, Err: err}
	}
	value := make([]byte, 64<<10)
	for name := range bytes.SplitSeq(bytes.TrimSuffix(names[:n], []byte{0}), []byte{0}) {
		n, err := unix.Lgetxattr(from, string(name), value)
		if err != nil {
			return &fs.PathError{Op: "read attributes", Path: from, Err: err}
		}
		h.PAXRecords[xattrRecord+string(name)] = string(value[:n])
	}
	return nil
}

// regular adds a file as long as it is at this moment: one that is appended to goes on.
func (w *Writer) regular(h *tar.Header, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	size := st.Size()
	pieces, err := dataOf(f, size)
	if err != nil {
		return &fs.PathError{Op: "look for holes", Path: from, Err: err}
	}
	h.Typeflag, h.Size = tar.TypeReg, size
	if len(pieces) == 1 && pieces[0] == (piece{0, size}) || size == 0 {
		return w.entry(h, io.MultiReader(f, zeros{})) // it may have become shorter
	}
	text := mapOf(pieces)
	h.PAXRecords[sparseRecord] = strconv.FormatInt(size, 10)
	h.Size = int64(len(text))
	content := []io.Reader{bytes.NewReader(text)}
	for _, p := range pieces {
		h.Size += p.length
		content = append(content, io.NewSectionReader(f, p.at, p.length))
	}
	return w.entry(h, io.MultiReader(append(content, zeros{})...))
}

// zeros has as many as are read.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
