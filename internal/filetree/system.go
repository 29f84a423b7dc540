package filetree

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// capabilityAttribute holds a file's capabilities, and capabilityRecord is its
// name in an archive.
const (
	capabilityAttribute = "security.capability"
	capabilityRecord    = "SCHILY.xattr." + capabilityAttribute
)

// ArchiveSystem streams the root filesystem as tar, to begin another sandbox
// from it. Unlike [Tree.Archive] it does not enter mounts, whose directories
// are in it without content, it has hard links as links, and modes with the
// set-id and sticky bits, and it has the capabilities of files where they can
// be read. A regular file over which another is mounted is in it with what is
// seen there.
func (t *Tree) ArchiveSystem(ctx context.Context) (io.ReadCloser, error) {
	from, err := t.space.openReal("/")
	if err != nil {
		return nil, classify("/", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		from.Close()
		return nil, classify("/", err)
	}
	return stream(ctx, from, "/", func(ctx context.Context, tw *tar.Writer) error {
		a := &systemArchiver{archiver: archiver{ctx: ctx, tw: tw}, device: st.Dev, first: map[inode]string{}}
		return a.dir(from, "")
	}), nil
}

// inode names a file with several names.
type inode struct{ device, number uint64 }

type systemArchiver struct {
	archiver
	device uint64           // of the root's directories
	first  map[inode]string // the first name of each file that has several
}

func (a *systemArchiver) dir(dir *os.File, name string) error {
	_, err := eachEntry(a.ctx, dir, "/"+name, func(n string, st *unix.Stat_t) (bool, error) {
		return true, a.entry(dir, path.Join(name, n), st)
	})
	return err
}

func (a *systemArchiver) entry(dir *os.File, name string, st *unix.Stat_t) error {
	f := describe("/"+name, st)
	h := header(f)
	h.Name, h.Mode = name, int64(st.Mode&0o7777)
	switch f.Type {
	case sandbox.Directory:
		h.Name += "/"
		h.Typeflag = tar.TypeDir
		if err := a.tw.WriteHeader(h); err != nil || st.Dev != a.device {
			return err
		}
		if strings.Count(name, "/")+1 >= maxDepth {
			return tooDeep()
		}
		sub, err := openDirAt(dir, path.Base(name))
		if err != nil {
			return vanished(err)
		}
		defer sub.Close()
		return a.dir(sub, name)
	case sandbox.Symlink:
		h.Typeflag = tar.TypeSymlink
		var err error
		if h.Linkname, err = readLinkAt(dir, path.Base(name)); err != nil {
			return vanished(err)
		}
	case sandbox.RegularFile:
		return a.regular(dir, h, st)
	default:
		return nil
	}
	if a.linked(h, st) {
		h.Typeflag = tar.TypeLink
	}
	return a.tw.WriteHeader(h)
}

// linked reports whether the archive has the file under another name already,
// which is then the link's target.
func (a *systemArchiver) linked(h *tar.Header, st *unix.Stat_t) bool {
	if st.Nlink < 2 {
		return false
	}
	id := inode{st.Dev, st.Ino}
	first, seen := a.first[id]
	if seen {
		h.Linkname = first
		return true
	}
	a.first[id] = h.Name
	return false
}

func (a *systemArchiver) regular(dir *os.File, h *tar.Header, st *unix.Stat_t) error {
	if a.linked(h, st) {
		h.Typeflag = tar.TypeLink
		return a.tw.WriteHeader(h)
	}
	p := &place{dir: dir, base: path.Base(h.Name)}
	p.st.Mode = unix.S_IFREG
	f, _, err := p.openRegular("/"+h.Name, unix.O_RDONLY)
	if err != nil {
		return vanished(err)
	}
	defer f.Close()
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil {
		return err
	}
	if err := a.sizes.add(f, "/"+h.Name, &now); err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, now.Size
	var value [64]byte
	if n, err := unix.Fgetxattr(int(f.Fd()), capabilityAttribute, value[:]); err == nil && n > 0 {
		h.Format = tar.FormatPAX
		h.PAXRecords = map[string]string{capabilityRecord: string(value[:n])}
	}
	if err := a.tw.WriteHeader(h); err != nil {
		return err
	}
	return copyTo(a.ctx, a.tw, &solidReader{f: f, size: now.Size}, func() error { return nil })
}

// vanished is nil for a file that was removed or replaced meanwhile.
func vanished(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}
