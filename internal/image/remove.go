package image

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Remove takes the name away and deletes the image when no other name leads
// to it; given a digest, it takes all its names. WrongState, with nothing changed, when the image would go while it is
// pinned or inUse (which may be nil) says that it is needed.
func (s *Store) Remove(ctx context.Context, name string, inUse func(digest string) bool) error {
	release, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	named, digest, err := s.lookup(name)
	if err != nil {
		return err
	}
	list, err := s.readNames()
	if err != nil {
		return err
	}
	delete(list, named)
	if named == "" { // by its digest: with all its names
		maps.DeleteFunc(list, func(_, d string) bool { return d == digest })
	}
	last := !slices.Contains(slices.Collect(maps.Values(list)), digest)
	if last {
		if err := s.needed(digest, inUse); err != nil {
			return err
		}
	}
	if err := s.writeNames(list); err != nil || !last {
		return err
	}
	return s.deleteLocked(digest)
}

func (s *Store) needed(digest string, inUse func(string) bool) error {
	pins, err := s.pins(digest)
	if err != nil {
		return err
	}
	if len(pins) > 0 || inUse != nil && inUse(digest) {
		return errs.E(errs.WrongState, "the image is in use by %d sandboxes", max(len(pins), 1)).
			Hint("destroy them first: cubby ls")
	}
	return nil
}

// deleteLocked removes an image's directory; the store's lock is held. The
// directory leaves its place at once, so a crash leaves no half image there.
func (s *Store) deleteLocked(digest string) error {
	dir, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return fmt.Errorf("remove image: %w", err)
	}
	err = os.Rename(filepath.Join(s.dir, digest), filepath.Join(dir, "image"))
	if err != nil && !os.IsNotExist(err) {
		_ = os.Remove(dir)
		return fmt.Errorf("remove image: %w", err)
	}
	s.forget(digest)
	if err := removeTree(dir); err != nil {
		return fmt.Errorf("remove image: %w", err)
	}
	return nil
}

// Sweep deletes the images without a name that are neither pinned nor inUse,
// and what crashed processes left behind. It returns the bytes that it freed.
func (s *Store) Sweep(ctx context.Context, inUse func(digest string) bool) (int64, error) {
	s.clearStale()
	release, err := s.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	named, err := s.readNames()
	if err != nil {
		return 0, err
	}
	keep := map[string]bool{}
	for _, d := range named {
		keep[d] = true
	}
	all, err := s.digests()
	if err != nil {
		return 0, err
	}
	var freed int64
	for _, d := range all {
		if keep[d] || s.needed(d, inUse) != nil {
			continue
		}
		r, _ := readRecord(filepath.Join(s.dir, d)) // 0 bytes when unreadable
		if err := s.deleteLocked(d); err != nil {
			return freed, err
		}
		freed += r.Size
	}
	return freed, nil
}
