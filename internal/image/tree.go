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
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"
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

// walkTree is readTree without the list.
func walkTree(ctx context.Context, root string, each func(entry)) error {
	seen := 0
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if seen%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		seen++
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		each(newEntry(rel, info))
		return nil
	})
}

func newEntry(rel string, info fs.FileInfo) entry {
	st := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // Lstat on Linux
	e := entry{
		path: rel, mode: st.Mode, uid: st.Uid, gid: st.Gid, mtime: st.Mtim.Nano(),
		blocks: st.Blocks, inode: st.Ino, links: uint64(st.Nlink), //nolint:unconvert // 32 bits on arm64
	}
	if st.Mode&syscall.S_IFMT == syscall.S_IFREG || st.Mode&syscall.S_IFMT == syscall.S_IFLNK {
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
				switch e.mode & syscall.S_IFMT {
				case syscall.S_IFREG:
					e.sum, err = sumFile(h, filepath.Join(root, e.path), buf)
				case syscall.S_IFLNK:
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
	h := sha256.New()
	for _, e := range tree {
		e.stamp(h)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (e entry) stamp(h hash.Hash) {
	fmt.Fprintf(h, "%q %o %d %d %d %d\n", e.path, e.mode, e.uid, e.gid, e.size, e.mtime)
}

// stampTree is the stamp of the tree below root. It keeps none of it: there are
// tens of thousands of files.
func stampTree(ctx context.Context, root string) (string, error) {
	h := sha256.New()
	err := walkTree(ctx, root, func(e entry) { e.stamp(h) })
	return hex.EncodeToString(h.Sum(nil)), err
}

// topDepth is how deep the part of the tree is that is looked at on every use.
const topDepth = 2

// top is the part of a tree that [readTop] reads: its upper directories.
func top(tree []entry) []entry {
	var out []entry
	for _, e := range tree {
		if e.mode&syscall.S_IFMT == syscall.S_IFDIR && depth(e.path) <= topDepth {
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
		info, err := os.Lstat(filepath.Join(root, rel))
		if err != nil {
			return nil, err
		}
		out = append(out, newEntry(rel, info))
	}
	return out, nil
}

// diskUse is the bytes that a tree takes, hard links counted once.
func diskUse(tree []entry) int64 {
	var n int64
	seen := map[uint64]bool{}
	for _, e := range tree {
		if e.links > 1 && e.mode&syscall.S_IFMT != syscall.S_IFDIR {
			if seen[e.inode] {
				continue
			}
			seen[e.inode] = true
		}
		n += 512 * e.blocks
	}
	return n
}
