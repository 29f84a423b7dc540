package filetree

import (
	"context"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// within narrows a space to one directory, which is not a symbolic link. Every
// name is walked one step at a time, so that a link which appears meanwhile
// leads nowhere else either.
type within struct {
	space
	dir string
}

// openDir makes the tree walk.
func (w within) openDir(string) (*os.File, error) { return nil, unix.ENOENT }

func (w within) openReal(name string) (*os.File, error) {
	rest, ok := strings.CutPrefix(name, w.dir)
	if !ok || rest != "" && rest[0] != '/' {
		return nil, errs.E(errs.Forbidden, "the path leads out of %s", w.dir)
	}
	cur, err := w.space.openReal(w.dir)
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(strings.Trim(rest, "/"), "/") {
		if part == "" {
			break
		}
		next, err := openDirAt(cur, part)
		_ = cur.Close()
		if err != nil {
			return nil, err
		}
		cur = next
	}
	return cur, nil
}

func (w within) walks() bool { return true }

func (w within) top(name string) bool {
	return name == w.dir || name == "/" || strings.HasPrefix(w.dir, name+"/")
}

// narrowed is the tree with one directory only, whose symbolic links to the
// outside are errs.Forbidden.
func (t *Tree) narrowed(dir string) *Tree {
	narrow := *t
	narrow.space = within{t.space, path.Clean(dir)}
	return &narrow
}

// ReadWithin is Read of a name that does not lead out of a directory, whatever
// symbolic links are on its way: else it is errs.Forbidden. The directory is no
// symbolic link itself.
func (t *Tree) ReadWithin(ctx context.Context, dir, name string, offset, length int64) (io.ReadCloser, sandbox.File, error) {
	return t.narrowed(dir).Read(ctx, name, offset, length)
}

// ArchiveWithin is Archive of a name that does not lead out of a directory, as
// ReadWithin.
func (t *Tree) ArchiveWithin(ctx context.Context, dir, name string) (io.ReadCloser, error) {
	return t.narrowed(dir).Archive(ctx, name)
}
