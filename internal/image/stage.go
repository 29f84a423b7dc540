package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
)

// stage is a directory in which an image comes to be. It belongs to one
// process, which holds its lock while it works.
type stage struct {
	store  *Store
	dir    string
	unlock func()
}

// image is what becomes DIR/<digest>.
func (g *stage) image() string  { return filepath.Join(g.dir, "image") }
func (g *stage) rootfs() string { return filepath.Join(g.image(), rootfsName) }

// newStage makes a fresh one.
func (s *Store) newStage(ctx context.Context) (*stage, error) {
	// Under the store's lock, so that nobody clears it away between its
	// making and its locking.
	release, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	dir, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return nil, fmt.Errorf("stage image: %w", err)
	}
	g := &stage{store: s, dir: dir}
	unlock, ok, err := tryLock(filepath.Join(dir, "lock"))
	if err == nil && !ok {
		err = errors.New("somebody else has it")
	}
	if err == nil {
		g.unlock = unlock
		// Nobody but root walks into an image: it may hold programs of
		// strangers with the set-user-ID bit.
		err = os.Mkdir(g.image(), 0o700)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("stage image: %w", err)
	}
	return g, nil
}

// discard removes what is left of the stage.
func (g *stage) discard() {
	if err := removeTree(g.dir); err != nil {
		g.store.log.Warn("removing a half-made image", "err", err)
	}
	g.unlock()
}

// clearStale removes the stages whose makers are gone.
func (s *Store) clearStale() {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), tmpPrefix) {
			continue
		}
		if err := s.clearStage(filepath.Join(s.dir, e.Name())); err != nil {
			s.log.Warn("removing a half-made image", "err", err)
		}
	}
}

func (s *Store) clearStage(dir string) error {
	release, ok, err := tryLock(filepath.Join(s.dir, ".lock"))
	if err != nil || !ok {
		return err // somebody is at work; next time
	}
	defer release()
	unlock, ok, err := tryLock(filepath.Join(dir, "lock"))
	if err != nil || !ok {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer unlock()
	return removeTree(dir)
}

// removeTree removes dir and what is in it, but never walks into a mount: a
// build that was killed may have left the host's /dev or /sys mounted there.
func removeTree(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	slices.SortFunc(mounts, func(a, b *mountinfo.Info) int { return len(b.Mountpoint) - len(a.Mountpoint) })
	for _, m := range mounts {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
	}
	return os.RemoveAll(dir)
}

// about is what a commit has to know of an image beside its files.
type about struct {
	name       string // "": it gets none
	source     string
	env        []string
	inputs     string
	recipe     string
	definition *Definition
}

// commit makes the stage's tree an image under its name. Where the same image
// exists already it is taken instead.
func (g *stage) commit(ctx context.Context, a about, p Progress) (Image, error) {
	if err := g.addTargets(); err != nil {
		return Image{}, err
	}
	tree, err := readTree(ctx, g.rootfs())
	if err != nil {
		return Image{}, fmt.Errorf("read image: %w", err)
	}
	if err := sumContents(ctx, g.rootfs(), tree, p); err != nil {
		return Image{}, fmt.Errorf("read image: %w", err)
	}
	upper := top(tree)
	r := record{
		Version: recordVersion, Digest: digest(tree, a.env), Size: diskUse(tree), Entries: len(tree),
		CreatedAt: g.store.now().UTC(), Source: a.source, Env: a.env, Inputs: a.inputs, Recipe: a.recipe, Definition: a.definition,
		Targets: targetsKey(), Stamp: stamp(tree), TopStamp: stamp(upper),
	}
	for _, e := range upper {
		r.Top = append(r.Top, e.path)
	}
	if err := r.write(g.image()); err != nil {
		return Image{}, fmt.Errorf("write image: %w", err)
	}
	p.report(Step{Stage: "saving"})
	if err := g.store.sync(g.image()); err != nil {
		return Image{}, fmt.Errorf("write image: %w", err)
	}
	return g.publish(ctx, a, r)
}

func (g *stage) publish(ctx context.Context, a about, r record) (Image, error) {
	s := g.store
	release, err := s.lock(ctx)
	if err != nil {
		return Image{}, err
	}
	defer release()
	final := filepath.Join(s.dir, r.Digest)
	if _, err := os.Lstat(final); err == nil {
		if img := s.load(ctx, r.Digest); img.Damaged {
			// What still runs from the damaged one keeps its open files.
			if err := os.Rename(final, filepath.Join(g.dir, "damaged")); err != nil {
				return Image{}, fmt.Errorf("replace a damaged image: %w", err)
			}
			s.forget(r.Digest)
		}
	}
	if _, err := os.Lstat(final); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(g.image(), final); err != nil {
			return Image{}, fmt.Errorf("keep image: %w", err)
		}
	} else if old, err := readRecord(final); err == nil && r.Inputs != "" && old.Inputs != r.Inputs {
		// The same files from newer inputs: remember, and need not build next time.
		old.Inputs, old.Recipe = r.Inputs, r.Recipe
		if err := old.write(final); err != nil {
			return Image{}, fmt.Errorf("write image: %w", err)
		}
	}
	if a.name != "" {
		if err := s.setName(a.name, r.Digest); err != nil {
			return Image{}, err
		}
	}
	img := s.load(ctx, r.Digest)
	img.Name = a.name
	return img, ctx.Err()
}

// setName points a name at a digest. The store's lock is held.
func (s *Store) setName(name, digest string) error {
	named, err := s.readNames()
	if err != nil {
		return err
	}
	if named[name] == digest {
		return nil
	}
	named[name] = digest
	return s.writeNames(named)
}

func (s *Store) forget(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.whole, digest)
}

// addTargets creates every mount target that the tree lacks.
func (g *stage) addTargets() error {
	u, err := newUnpacker(g.rootfs(), g.store.limits, g.store.chown)
	if err != nil {
		return err
	}
	defer u.close()
	for _, t := range driver.MountTargets() {
		if err := u.target(t); err != nil {
			return fmt.Errorf("create mount target %s: %w", t.Path, err)
		}
	}
	return nil
}

// targetsKey changes with the list of mount targets: an image that lacks one
// would be written to by the runtime that needs it.
func targetsKey() string {
	h := sha256.New()
	for _, t := range driver.MountTargets() {
		fmt.Fprintf(h, "%q %v\n", t.Path, t.Dir)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// syncTree brings the file system that holds dir to the disk: a name must not
// lead to an image that a power cut takes away.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// room refuses to begin or go on when the disk is nearly full.
func (s *Store) room() error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return fmt.Errorf("measure the image directory: %w", err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free < s.limits.reserve {
		return errs.E(errs.Exhausted, "the disk that holds the images is nearly full").
			Hint("free space there, or choose another place with --image-dir")
	}
	return nil
}
