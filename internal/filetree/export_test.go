package filetree

import (
	"context"
	"path"
)

// CopyAcross is what a move between file systems does with a file.
func (t *Tree) CopyAcross(ctx context.Context, from, to string) error {
	src, err := t.openDir(path.Dir(from), nil)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := t.openDir(path.Dir(to), nil)
	if err != nil {
		return err
	}
	defer dst.Close()
	return t.copyAcross(ctx, src, path.Base(from), dst, path.Base(to), maxDepth)
}
