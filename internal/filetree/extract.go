package filetree

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/forklock"
)

// maxEntries bounds an archive that is unpacked: compressed, entries that make
// nothing take next to no bytes.
const maxEntries = 1_000_000

// Extract unpacks a tar stream into a directory, which is made when missing.
// Everything belongs to user, whatever the archive says, but what is made in
// the system's directories, where it is root's; set-id bits are dropped. Files replace files and symbolic links of the same name, and
// directories join directories.
//
// Names that are absolute or climb with "..", entries below a symbolic link
// (of the archive or of the tree), hard links to anything but a regular file
// of the target directory, and devices and FIFOs are errs.Invalid; more than
// [maxEntries] are errs.TooLarge. Symbolic links are stored whatever they say:
// nothing follows them here. What was unpacked before an error stays.
func (t *Tree) Extract(ctx context.Context, name string, r io.Reader, user string) error {
	return classify(name, t.extract(ctx, name, r, user, maxEntries))
}

// Restore is [Tree.Extract] of what [Tree.Archive] made, however many entries
// that has.
func (t *Tree) Restore(ctx context.Context, name string, r io.Reader, user string) error {
	return classify(name, t.extract(ctx, name, r, user, math.MaxInt))
}

func (t *Tree) extract(ctx context.Context, name string, r io.Reader, user string, most int) error {
	name, err := Clean(name)
	if err != nil {
		return err
	}
	uid, gid, err := t.owner(user)
	if err != nil {
		return err
	}
	if err := t.guard(); err != nil {
		return err
	}
	if err := t.makeParents(name, uid, gid); err != nil {
		return err
	}
	p, err := there(t.findToChange(name, true, uid))
	if err != nil {
		return err
	}
	defer p.close()
	root, err := openDirAt(p.dir, p.base)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := p.via.change(&place{dir: root, base: "."}); err != nil {
		return err
	}
	defer forklock.Wait() // programs of the archive may be executed next
	x := &extractor{ctx: ctx, tree: t, at: name, root: root, uid: uid, gid: gid}
	defer x.leave()
	tr := tar.NewReader(r)
	for entries := 0; ; entries++ {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return notTar(err)
		}
		if entries == most {
			return errs.E(errs.TooLarge, "the archive has more than %d entries", most).Hint("unpack it in parts")
		}
		if err := t.guard(); err != nil {
			return err
		}
		if err := x.entry(h, tr); err != nil {
			return classify(path.Join(name, h.Name), err)
		}
	}
	// Two blocks of zeros end an archive, but tar pads further; a client that
	// is still sending must not see a broken pipe.
	if _, err := io.Copy(io.Discard, io.LimitReader(r, 1<<20)); err != nil {
		return err
	}
	return unix.Syncfs(int(root.Fd()))
}

// notTar keeps errors of the stream apart from those of its content.
func notTar(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.E(errs.Invalid, "the archive is damaged or not a tar").Because(err)
	}
	return err
}

type extractor struct {
	ctx      context.Context
	tree     *Tree
	at       string // the name of root
	root     *os.File
	uid, gid uint32
	total    int64 // bytes of all files so far, as their headers say

	// The directory of the last entry: archives name files of one directory
	// in a row.
	lastDir  string
	lastFile *os.File
}

func (x *extractor) leave() {
	if x.lastFile != nil {
		x.lastFile.Close()
		x.lastFile = nil
	}
}

func (x *extractor) entry(h *tar.Header, r io.Reader) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	name, err := entryName(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return errs.E(errs.Invalid, "the archive holds an entry without a name")
		}
		return nil
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeGNUSparse:
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return errs.E(errs.Invalid, "the archive holds %s, which is a device, a FIFO or unknown", printable(h.Name)).
			Hint("only files, directories and links can be unpacked")
	}
	dir, err := x.dir(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeDir:
		err = x.makeDir(dir, base, h)
	case tar.TypeSymlink:
		err = x.symlink(dir, base, h)
	case tar.TypeLink:
		err = x.link(dir, base, h.Linkname)
	default:
		return x.file(dir, base, h, r)
	}
	return err
}

// entryName checks a name of an archive: relative, without "..".
func entryName(name string) (string, error) {
	bad := func(why string) (string, error) {
		return "", errs.E(errs.Invalid, "the archive holds the name %s, which %s", printable(name), why)
	}
	switch {
	case name == "":
		return bad("is empty")
	case strings.HasPrefix(name, "/"):
		return bad("is absolute")
	case strings.ContainsRune(name, 0):
		return bad("contains a NUL byte")
	case len(name) >= MaxPath:
		return bad("is too long")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return bad("climbs out with \"..\"")
		case len(part) > maxName:
			return bad("is too long")
		case part != "" && part != ".":
			depth++
		}
	}
	if depth > maxDepth {
		return bad("is nested too deep")
	}
	return path.Clean(name), nil
}

func printable(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return "\"" + s + "\""
}

// dir opens a directory below the root, making what is missing. It never
// passes a symbolic link.
func (x *extractor) dir(name string) (*os.File, error) {
	if name == "." {
		return x.root, nil
	}
	if x.lastFile != nil && x.lastDir == name {
		return x.lastFile, nil
	}
	d, err := x.step(name, true)
	if err != nil {
		return nil, err
	}
	x.leave()
	x.lastDir, x.lastFile = name, d
	return d, nil
}

func (x *extractor) step(name string, make bool) (*os.File, error) {
	cur := x.root
	for part := range strings.SplitSeq(name, "/") {
		next, err := openDirAt(cur, part)
		if errors.Is(err, unix.ENOENT) && make {
			next, err = x.tree.makeDirFor(path.Join(x.at, name), cur, part, 0o755, x.uid, x.gid)
			if errors.Is(err, unix.EEXIST) {
				next, err = openDirAt(cur, part)
			}
		}
		if cur != x.root {
			cur.Close()
		}
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
			return nil, errs.E(errs.Invalid, "the archive holds an entry below %s, which is not a directory", printable(name)).Because(err)
		}
		if err != nil {
			return nil, err
		}
		cur = next
	}
	return cur, nil
}

func (x *extractor) makeDir(dir *os.File, base string, h *tar.Header) error {
	d, err := x.tree.makeDirFor(path.Join(x.at, h.Name), dir, base, h.FileInfo().Mode().Perm(), x.uid, x.gid)
	if errors.Is(err, unix.EEXIST) {
		st, err := statAt(dir, base)
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			err = unix.EEXIST
		}
		return err
	}
	if err != nil {
		return err
	}
	return d.Close()
}

// clear removes what a file or link replaces. Directories stay, and make the
// create that follows fail.
func (x *extractor) clear(dir *os.File, base string) error {
	err := unix.Unlinkat(int(dir.Fd()), base, 0)
	switch err {
	case unix.ENOENT:
		return nil
	case unix.EPERM:
		return unix.EISDIR
	}
	return err
}

func (x *extractor) symlink(dir *os.File, base string, h *tar.Header) error {
	target := h.Linkname
	if target == "" || strings.ContainsRune(target, 0) || len(target) >= MaxPath {
		return errs.E(errs.Invalid, "the archive holds a symbolic link without a possible target")
	}
	if err := x.clear(dir, base); err != nil {
		return err
	}
	if err := unix.Symlinkat(target, int(dir.Fd()), base); err != nil {
		return err
	}
	if !x.tree.chown {
		return nil
	}
	uid, gid, err := x.tree.maker(path.Join(x.at, h.Name), dir, x.uid, x.gid)
	if err != nil {
		return err
	}
	return unix.Fchownat(int(dir.Fd()), base, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW)
}

func (x *extractor) link(dir *os.File, base, target string) error {
	target, err := entryName(target)
	if err != nil {
		return err
	}
	from := x.root
	if d := path.Dir(target); d != "." {
		if from, err = x.step(d, false); err != nil {
			return err
		}
		defer from.Close()
	}
	st, err := statAt(from, path.Base(target))
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errs.E(errs.Invalid, "the archive holds a hard link to %s, which is not a regular file", printable(target))
	}
	now, err := statAt(dir, base)
	if err == nil && now.Dev == st.Dev && now.Ino == st.Ino {
		return nil // clearing it first would remove what it links to
	}
	if err := x.clear(dir, base); err != nil {
		return err
	}
	return unix.Linkat(int(from.Fd()), path.Base(target), int(dir.Fd()), base, 0)
}

func (x *extractor) file(dir *os.File, base string, h *tar.Header, r io.Reader) error {
	if h.Size < 0 {
		return errs.E(errs.Invalid, "the archive holds a file of negative size")
	}
	if err := x.room(dir, h.Size); err != nil {
		return err
	}
	if err := x.clear(dir, base); err != nil {
		return err
	}
	f, err := openAt(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	sw := &sparseWriter{f: f}
	if err := x.tree.copyTo(x.ctx, sw, r); err != nil {
		return notTar(err)
	}
	if err := sw.end(); err != nil {
		return err
	}
	uid, gid, err := x.tree.maker(path.Join(x.at, h.Name), dir, x.uid, x.gid)
	if err != nil {
		return err
	}
	if err := x.tree.dress(f, h.FileInfo().Mode().Perm(), uid, gid); err != nil {
		return err
	}
	if mt := h.ModTime; !mt.IsZero() && mt.Unix() >= 0 && mt.Before(time.Unix(1<<33, 0)) {
		ts := unix.NsecToTimespec(mt.UnixNano())
		// The time is a nicety; not every file system keeps every time.
		_ = unix.UtimesNanoAt(int(dir.Fd()), base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	}
	return nil
}

// room refuses early what cannot fit: a header of a few bytes can promise
// more zeros than a disk holds, and many of them the same file again and
// again.
func (x *extractor) room(dir *os.File, size int64) error {
	x.total += min(size, 1<<60)
	if size < 1<<20 && x.total < 16<<20 {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
		return err
	}
	if fs.Blocks == 0 {
		return nil // it does not say
	}
	if size > int64(fs.Bavail)*fs.Bsize || x.total < 0 || x.total > int64(fs.Blocks)*fs.Bsize {
		return diskFull
	}
	return nil
}
