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
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// trailerBytes is how long the line after the archive is.
const trailerBytes = 2*sha256.Size + 1

// checked reads all but the last line of a backup, and compares that with what it read.
type checked struct {
	from io.Reader
	sum  hash.Hash
	data []byte // what was read and not handed on, in a buffer of readBytes
	end  bool   // data is the last line
}

const readBytes = 256 << 10

func newChecked(from io.Reader) *checked {
	return &checked{from: from, sum: sha256.New(), data: make([]byte, 0, readBytes)}
}

func (c *checked) Read(p []byte) (int, error) {
	if !c.end && len(c.data) <= trailerBytes {
		buf := make([]byte, 0, readBytes)
		if cap(c.data) == readBytes {
			buf = c.data[:0]
		}
		c.data = append(buf, c.data...)
	}
	for !c.end && len(c.data) <= trailerBytes {
		n, err := c.from.Read(c.data[len(c.data):cap(c.data)])
		c.data = c.data[:len(c.data)+n]
		if errors.Is(err, io.EOF) {
			c.end = true
		} else if err != nil {
			return 0, err
		}
	}
	n := copy(p, c.data[:max(0, len(c.data)-trailerBytes)])
	if n == 0 && c.end {
		return 0, io.EOF
	}
	_, _ = c.sum.Write(p[:n]) // never fails
	c.data = c.data[n:]
	return n, nil
}

// verify is nil when all was read and is what was written.
func (c *checked) verify() error {
	if _, err := io.Copy(io.Discard, c); err != nil {
		return err
	}
	if want := fmt.Sprintf("%x\n", c.sum.Sum(nil)); string(c.data) != want {
		return damaged("it is not what was written, or its end is missing")
	}
	return nil
}

func damaged(format string, args ...any) error {
	return errs.E(errs.Invalid, "the backup is damaged: "+format, args...).Hint("nothing was restored; use another copy of it")
}

// Copy copies a backup that comes from elsewhere, and says whether it arrived whole.
func Copy(to io.Writer, from io.Reader) error {
	c := newChecked(from)
	if _, err := io.Copy(to, c); err != nil {
		return err
	}
	if _, err := to.Write(c.data); err != nil {
		return err
	}
	return c.verify()
}

// Unpack writes what a backup has into an empty directory and says what the backup is.
// Only without an error it is whole and all sums are right.
func Unpack(dir string, from io.Reader) (h Header, err error) {
	c := newChecked(from)
	u := unpacker{tar: tar.NewReader(c)}
	if u.root, err = os.OpenRoot(dir); err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, u.root.Close()) }()
	if h, err = u.header(); err != nil {
		return h, err
	}
	for {
		last, err := u.next()
		if err != nil {
			return h, err
		}
		if last {
			break
		}
	}
	if err := c.verify(); err != nil {
		return h, err
	}
	return h, u.finish()
}

type unpacker struct {
	tar  *tar.Reader
	root *os.Root
	seen []file
	// dirs get their modes and times when nothing is written in them any more.
	dirs []tar.Header
}

// header reads the first entry.
func (u *unpacker) header() (h Header, err error) {
	var text bytes.Buffer
	first, err := u.tar.Next()
	if err != nil || first.Name != HeaderName {
		return h, errs.E(errs.Invalid, "this is no backup of cubby").Because(err)
	}
	if err := u.sum(first, &text); err != nil {
		return h, err
	}
	if err := json.Unmarshal(text.Bytes(), &h); err != nil {
		return h, damaged("what it says of itself cannot be read")
	}
	if h.Format > FormatVersion {
		return h, errs.E(errs.Unsupported, "the backup has the format %d, and this cubby knows those up to %d", h.Format, FormatVersion).
			Hint("it was written by cubby %s: restore it with that or a later one", h.Version)
	}
	return h, nil
}

// sum copies the content of an entry and notes its sum.
func (u *unpacker) sum(h *tar.Header, to io.Writer) error {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), u.tar)
	u.noted(h, n, sum)
	return broken(err)
}

func (u *unpacker) noted(h *tar.Header, bytes int64, sum hash.Hash) {
	u.seen = append(u.seen, file{Name: h.Name, Bytes: bytes, SHA256: hex.EncodeToString(sum.Sum(nil))})
}

// broken classifies what the reader of an archive finds wrong with it.
func broken(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) || errors.Is(err, io.EOF) {
		return damaged("it ends too early, or is no archive: %v", err)
	}
	return err
}

// next unpacks one entry. It reports whether it was the last one.
func (u *unpacker) next() (last bool, err error) {
	h, err := u.tar.Next()
	if err != nil {
		return false, broken(err)
	}
	if h.Name == ManifestName {
		return true, u.compare()
	}
	name := strings.TrimSuffix(h.Name, "/")
	if !filepath.IsLocal(name) {
		return false, damaged("an entry has the name %q", h.Name)
	}
	if above := filepath.Dir(name); above != "." {
		if err := u.root.MkdirAll(above, 0o700); err != nil {
			return false, err
		}
	}
	if err := u.make(h, name); err != nil {
		return false, fmt.Errorf("restore %s: %w", h.Name, err)
	}
	return false, nil
}

// make makes what an entry is.
func (u *unpacker) make(h *tar.Header, name string) error {
	path := filepath.Join(u.root.Name(), name)
	var err error
	switch h.Typeflag {
	case tar.TypeReg:
		return u.regular(h, name)
	case tar.TypeDir:
		err = u.root.MkdirAll(name, 0o700)
		u.dirs = append(u.dirs, *h)
		u.noted(h, 0, sha256.New())
		return err
	case tar.TypeSymlink:
		err = u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		err = u.root.Link(h.Linkname, name)
		u.noted(h, 0, sha256.New())
		return err
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		kind := map[byte]uint32{tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK, tar.TypeFifo: unix.S_IFIFO}[h.Typeflag]
		err = unix.Mknod(path, kind|0o600, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	default:
		err = damaged("it is of the unknown kind %q", h.Typeflag)
	}
	u.noted(h, 0, sha256.New())
	if err != nil {
		return err
	}
	return dress(path, h)
}

func (u *unpacker) regular(h *tar.Header, name string) error {
	f, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	content := io.TeeReader(u.tar, sum)
	if real, sparse := h.PAXRecords[sparseRecord]; sparse {
		var size int64
		if size, err = strconv.ParseInt(real, 10, 64); err != nil || size < 0 {
			err = damaged("a file has the size %q", real)
		} else {
			err = unfold(f, content, size)
		}
	} else {
		_, err = io.Copy(f, content)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, content)
	}
	if err = errors.Join(broken(err), f.Close()); err != nil {
		return err
	}
	u.noted(h, h.Size, sum)
	return dress(filepath.Join(u.root.Name(), name), h)
}

// dress gives what was made its owner, attributes, mode and times.
func dress(path string, h *tar.Header) error {
	if err := os.Lchown(path, h.Uid, h.Gid); err != nil && os.Geteuid() == 0 {
		return err
	}
	for key, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(key, xattrRecord); ok {
			if err := unix.Lsetxattr(path, name, []byte(value), 0); err != nil {
				return &fs.PathError{Op: "set attributes", Path: path, Err: err}
			}
		}
	}
	if h.Typeflag != tar.TypeSymlink {
		if err := unix.Chmod(path, uint32(h.Mode)&0o7777); err != nil {
			return &fs.PathError{Op: "chmod", Path: path, Err: err}
		}
	}
	at := unix.NsecToTimespec(h.ModTime.UnixNano())
	err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	return os.NewSyscallError("utimensat", err)
}

// compare reads the manifest and compares it with what was unpacked.
func (u *unpacker) compare() error {
	var m manifest
	if err := json.NewDecoder(u.tar).Decode(&m); err != nil {
		return damaged("its manifest cannot be read")
	}
	for i, got := range u.seen {
		if i >= len(m.Files) || m.Files[i] != got {
			return damaged("%s is not as its manifest says", got.Name)
		}
	}
	if len(m.Files) != len(u.seen) {
		return damaged("%d files are missing", len(m.Files)-len(u.seen))
	}
	return nil
}

// finish gives directories what they had.
func (u *unpacker) finish() error {
	for _, h := range slices.Backward(u.dirs) {
		if err := dress(filepath.Join(u.root.Name(), strings.TrimSuffix(h.Name, "/")), &h); err != nil {
			return err
		}
	}
	return nil
}
