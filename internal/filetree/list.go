package filetree

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// maxDepth bounds how deep recursive work goes: each level holds a file
	// descriptor.
	maxDepth = 512
	// sortedEntries is up to how many entries of a directory are sorted: the
	// names of a directory are held in memory for that.
	sortedEntries = 16384
)

// Stat describes a path; with follow, what a symbolic link leads to. The path
// in the answer is the cleaned one that was asked for.
func (t *Tree) Stat(ctx context.Context, name string, follow bool) (sandbox.File, error) {
	name, err := Clean(name)
	if err != nil {
		return sandbox.File{}, err
	}
	p, err := t.existing(name, follow)
	if err != nil {
		return sandbox.File{}, classify(name, err)
	}
	defer p.close()
	return p.describe(name), nil
}

// ListFiles gives the entries of a directory, with recursive those of every
// directory below it, each directory before its content. Symbolic links are
// listed and, but for the directory asked for, not followed. Names come sorted
// within directories of ordinary size. What vanishes meanwhile is left out.
func (t *Tree) ListFiles(ctx context.Context, name string, recursive bool) iter.Seq2[sandbox.File, error] {
	return func(yield func(sandbox.File, error) bool) {
		name, err := Clean(name)
		if err != nil {
			yield(sandbox.File{}, err)
			return
		}
		p, err := t.existing(name, true)
		if err != nil {
			yield(sandbox.File{}, classify(name, err))
			return
		}
		defer p.close()
		dir, err := openDirAt(p.dir, p.base)
		if err != nil {
			yield(sandbox.File{}, classify(name, err))
			return
		}
		defer dir.Close()
		depth := 1
		if recursive {
			depth = maxDepth
		}
		if _, err := eachBelow(ctx, dir, name, depth, func(d *os.File, f sandbox.File) (bool, error) {
			return yield(f, nil), nil
		}); err != nil {
			yield(sandbox.File{}, err)
		}
	}
}

// eachBelow calls fn for every entry of dir, and of the directories below it
// while depth > 1; d is the directory that holds the entry. It stops when fn
// says so.
func eachBelow(ctx context.Context, dir *os.File, name string, depth int, fn func(d *os.File, f sandbox.File) (bool, error)) (more bool, err error) {
	return eachEntry(ctx, dir, name, func(n string, st *unix.Stat_t) (bool, error) {
		f := describe(path.Join(name, n), st)
		if f.Type == sandbox.Symlink {
			f.Target, _ = readLinkAt(dir, n)
		}
		if more, err := fn(dir, f); err != nil || !more {
			return false, err
		}
		if f.Type != sandbox.Directory || depth == 1 {
			return true, nil
		}
		return below(ctx, dir, n, f.Path, depth-1, fn)
	})
}

// eachEntry calls fn for every entry of dir, until it says that there is to be
// no more.
func eachEntry(ctx context.Context, dir *os.File, name string, fn func(base string, st *unix.Stat_t) (bool, error)) (more bool, err error) {
	names, err := dir.Readdirnames(sortedEntries)
	for ; err == nil; names, err = dir.Readdirnames(sortedEntries) {
		slices.Sort(names)
		for _, n := range names {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			st, err := statAt(dir, n)
			if err != nil {
				continue // vanished
			}
			if more, err := fn(n, &st); err != nil || !more {
				return false, err
			}
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ENOENT) {
		return false, classify(name, err)
	}
	return true, nil
}

func below(ctx context.Context, dir *os.File, base, name string, depth int, fn func(d *os.File, f sandbox.File) (bool, error)) (bool, error) {
	sub, err := openDirAt(dir, base)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return true, nil // replaced meanwhile
	}
	if err != nil {
		return false, classify(name, err)
	}
	defer sub.Close()
	if depth == 1 {
		// The last level may be there, but must be empty.
		if names, _ := sub.Readdirnames(1); len(names) > 0 {
			return false, tooDeep()
		}
		return true, nil
	}
	return eachBelow(ctx, sub, name, depth, fn)
}

func tooDeep() error {
	return errs.E(errs.TooLarge, "directories are nested more than %d deep", maxDepth)
}

func (p *place) describe(name string) sandbox.File {
	f := describe(name, &p.st)
	if f.Type == sandbox.Symlink {
		f.Target, _ = readLinkAt(p.dir, p.base)
	}
	return f
}

func describe(name string, st *unix.Stat_t) sandbox.File {
	f := sandbox.File{
		Path:    name,
		Type:    sandbox.OtherFile,
		Mode:    fs.FileMode(st.Mode & 0o777),
		UID:     st.Uid,
		GID:     st.Gid,
		ModTime: time.Unix(st.Mtim.Unix()),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f.Type, f.Size = sandbox.RegularFile, st.Size
	case unix.S_IFDIR:
		f.Type = sandbox.Directory
	case unix.S_IFLNK:
		f.Type, f.Size = sandbox.Symlink, st.Size
	}
	return f
}
