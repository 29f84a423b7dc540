package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// entry is one file of an unpacked tree.
type entry struct {
	path string // relative, slashes; "." is the root
	mode uint32 // st_mode
	uid  uint32
	gid  uint32
	size int64
	// mtime in nanoseconds.
	mtime  int64
	blocks int64
	inode  uint64
	links  uint64
	sum    []byte // of the content or the link's target
}

// readTree lists the tree below root in lexical order. It follows no links and
// opens nothing.
func readTree(ctx context.Context, root string) ([]entry, error) {
	var tree []entry
	err := walkTree(ctx, root, func(e entry) { tree = append(tree, e) })
	return tree, err
}

// walkTree is readTree without the list. A name is looked up in its directory,
// which is open, and never by its whole path: this runs over tens of thousands
// of files when a daemon starts.
func walkTree(ctx context.Context, root string, each func(entry)) error {
	dir, err := os.Open(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: root, Err: err}
	}
	each(newEntry(".", &st))
	return walkBelow(ctx, dir, "", each)
}

// walkBelow walks over what is in a directory whose path begins with prefix.
func walkBelow(ctx context.Context, dir *os.File, prefix string, each func(entry)) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	slices.Sort(names)
	fd := int(dir.Fd())
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "stat", Path: filepath.Join(dir.Name(), name), Err: err}
		}
		each(newEntry(prefix+name, &st))
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if err := walkInto(ctx, fd, filepath.Join(dir.Name(), name), name, prefix+name+"/", each); err != nil {
			return err
		}
	}
	return nil
}

func walkInto(ctx context.Context, parent int, path, name, prefix string, each func(entry)) error {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	return walkBelow(ctx, dir, prefix, each)
}

func newEntry(rel string, st *unix.Stat_t) entry {
	e := entry{
		path: rel, mode: st.Mode, uid: st.Uid, gid: st.Gid, mtime: st.Mtim.Nano(),
		blocks: st.Blocks, inode: st.Ino, links: uint64(st.Nlink), //nolint:unconvert // 32 bits on arm64
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		e.size = st.Size
	}
	return e
}

// sumContents fills in the sums of files and links, with all processors.
func sumContents(ctx context.Context, root string, tree []entry, p Progress) error {
	var next, done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for w := range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			buf := make([]byte, 256<<10)
			h := sha256.New()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(tree) {
					return nil
				}
				e := &tree[i]
				var err error
				switch e.mode & unix.S_IFMT {
				case unix.S_IFREG:
					e.sum, err = sumFile(h, filepath.Join(root, e.path), buf)
				case unix.S_IFLNK:
					var to string
					to, err = os.Readlink(filepath.Join(root, e.path))
					e.sum = []byte(to)
				}
				if err != nil {
					return err
				}
				if n := done.Add(1); w == 0 {
					p.report(Step{Stage: "verifying", Done: n, Total: int64(len(tree)), Items: true})
				}
			}
			return ctx.Err()
		})
	}
	err := g.Wait()
	if err == nil {
		p.report(Step{Stage: "verifying", Done: int64(len(tree)), Total: int64(len(tree)), Items: true})
	}
	return err
}

func sumFile(h hash.Hash, path string, buf []byte) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h.Reset()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, buf); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

// digest addresses an image: everything that a sandbox can tell apart except
// times, so that two builds of the same packages are the same image.
func digest(tree []entry, env []string) string {
	h := sha256.New()
	fmt.Fprintf(h, "cubby image 1\n")
	for _, e := range env {
		fmt.Fprintf(h, "env %q\n", e)
	}
	for _, e := range tree {
		fmt.Fprintf(h, "%q %o %d %d %d %x\n", e.path, e.mode, e.uid, e.gid, e.size, e.sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// stamp is a cheap digest over what lstat tells, times included: it changes
// when anybody touches the tree, and costs no reading of files.
func stamp(tree []entry) string {
	h := newStamper()
	for _, e := range tree {
		h.add(e)
	}
	return h.sum()
}

// stamper digests the lines of files, many at a time.
type stamper struct {
	h    hash.Hash
	text []byte
}

func newStamper() *stamper { return &stamper{h: sha256.New(), text: make([]byte, 0, 36<<10)} }

func (s *stamper) add(e entry) {
	if s.text = e.appendStamp(s.text); len(s.text) > 32<<10 {
		_, _ = s.h.Write(s.text) // never fails
		s.text = s.text[:0]
	}
}

func (s *stamper) sum() string {
	_, _ = s.h.Write(s.text) // as above
	return hex.EncodeToString(s.h.Sum(nil))
}

// appendStamp appends the line of one file.
func (e entry) appendStamp(b []byte) []byte {
	b = strconv.AppendQuote(b, e.path)
	b = strconv.AppendUint(append(b, ' '), uint64(e.mode), 8)
	b = strconv.AppendUint(append(b, ' '), uint64(e.uid), 10)
	b = strconv.AppendUint(append(b, ' '), uint64(e.gid), 10)
	b = strconv.AppendInt(append(b, ' '), e.size, 10)
	b = strconv.AppendInt(append(b, ' '), e.mtime, 10)
	return append(b, '\n')
}

// stampTree is the stamp of the tree below root. It keeps none of it: there are
// tens of thousands of files.
func stampTree(ctx context.Context, root string) (string, error) {
	h := newStamper()
	err := walkTree(ctx, root, h.add)
	return h.sum(), err
}

// topDepth is how deep the part of the tree is that is looked at on every use.
const topDepth = 2

// top is the part of a tree that [readTop] reads: its upper directories, but for
// those whose names JSON, in which they are kept, cannot hold.
func top(tree []entry) []entry {
	var out []entry
	for _, e := range tree {
		if e.mode&unix.S_IFMT == unix.S_IFDIR && depth(e.path) <= topDepth && utf8.ValidString(e.path) {
			out = append(out, e)
		}
	}
	return out
}

func depth(rel string) int {
	if rel == "." {
		return 0
	}
	return strings.Count(rel, "/") + 1
}

// readTop looks at the directories that top found again. A file that was
// added, removed or renamed in one of them has changed its time.
func readTop(root string, dirs []string) ([]entry, error) {
	out := make([]entry, 0, len(dirs))
	for _, rel := range dirs {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, rel), &st); err != nil {
			return nil, &fs.PathError{Op: "lstat", Path: rel, Err: err}
		}
		out = append(out, newEntry(rel, &st))
	}
	return out, nil
}

// diskUse is the bytes that a tree takes, hard links counted once.
func diskUse(tree []entry) int64 {
	var n int64
	seen := map[uint64]bool{}
	for _, e := range tree {
		if e.links > 1 && e.mode&unix.S_IFMT != unix.S_IFDIR {
			if seen[e.inode] {
				continue
			}
			seen[e.inode] = true
		}
		n += 512 * e.blocks
	}
	return n
}
