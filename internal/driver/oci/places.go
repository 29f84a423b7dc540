package oci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// places are the directories whose names stand in notes instead of their paths, so that
// what is noted holds good after they were moved. A path elsewhere is noted as it is.
type places struct {
	data   string // "" for a driver that knows none
	images string // "" likewise; may lie below data or anywhere else
	// runtimes is where programs are unpacked, below data.
	runtimes string
}

// dataPlace and imagesPlace are the names, which a colon ends. No absolute path begins
// with one.
const dataPlace, imagesPlace = "data", "images"

// noted is how a path stands in a note.
func (p places) noted(path string) string {
	if rest, ok := below(p.images, path); ok {
		return imagesPlace + ":" + rest
	}
	if rest, ok := below(p.data, path); ok {
		return dataPlace + ":" + rest
	}
	return path
}

// found is the path of what is noted; errs.Invalid for what noted cannot have made.
func (p places) found(noted string) (string, error) {
	path := noted
	if name, rest, ok := strings.Cut(noted, ":"); ok && !filepath.IsAbs(noted) {
		dir := map[string]string{dataPlace: p.data, imagesPlace: p.images}[name]
		if dir == "" || !filepath.IsLocal(rest) || filepath.Clean(rest) != rest {
			return "", errs.E(errs.Invalid, "malformed handle: path %q", noted)
		}
		path = filepath.Join(dir, rest)
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return "", errs.E(errs.Invalid, "malformed handle: path %q", noted)
	}
	return path, nil
}

// below is the rest of a path that lies below a directory.
func below(dir, path string) (rest string, ok bool) {
	if dir == "" {
		return "", false
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// each has f change every path of a note that may lie in a place.
func (n *note) each(f func(path string) (string, error)) error {
	n.Volumes = slices.Clone(n.Volumes)
	paths := []*string{&n.Rootfs, &n.Init.Path, &n.Runtime.Path}
	for i := range n.Volumes {
		paths = append(paths, &n.Volumes[i].Dir)
	}
	for _, path := range paths {
		changed, err := f(*path)
		if err != nil {
			return err
		}
		*path = changed
	}
	return nil
}

// moved takes the note of a version that had absolute paths to where the data directory
// is. Where that was is told by the agent's program, which lies below it.
func (p places) moved(n *note) {
	tail, ok := below(p.data, filepath.Join(p.runtimes, n.Init.Digest, filepath.Base(n.Init.Path)))
	if was, is := strings.CutSuffix(n.Init.Path, "/"+tail); ok && is && n.Init.Digest != "" && was != p.data {
		_ = n.each(func(path string) (string, error) {
			if rest, ok := below(was, path); ok {
				return filepath.Join(p.data, rest), nil
			}
			return path, nil
		})
	}
	if p.images == "" {
		return
	}
	// The directory of images may have been elsewhere, and have moved or not.
	image := filepath.Join(p.images, filepath.Base(filepath.Dir(n.Rootfs)), filepath.Base(n.Rootfs))
	if _, err := os.Stat(n.Rootfs); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(image); err == nil {
			n.Rootfs = image
		}
	}
}
