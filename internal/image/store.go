package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/images"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Store is a directory of images. It is safe for concurrent use, also by
// several processes.
type Store struct {
	dir   string
	log   *slog.Logger
	now   func() time.Time
	chown bool // this process can give files to other users
	// recipes are what Build can build, a directory each.
	recipes fs.FS
	limits  limits
	// sync brings an image to the disk before its name leads to it.
	sync func(dir string) error

	// walking is held by who looks at all files of an image. Whoever else wants
	// to know waits: a daemon that starts is asked for sandboxes at once.
	walking    chan struct{}
	looksCount time.Duration // see LooksCount

	mu    sync.Mutex
	whole map[string]bool // digests whose full stamp was compared; guarded by mu
}

// Open opens the image directory dir and creates it when it is missing. It
// clears away what crashed processes left there.
func Open(dir string, log *slog.Logger) (*Store, error) {
	if dir == "" { // it is not the working directory
		return nil, errors.New("open image directory: it has no name")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open image directory: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open image directory: %w", err)
	}
	// Runtimes refuse root filesystems whose path leads through a link.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("open image directory: %w", err)
	}
	s := &Store{
		dir: dir, log: log, now: time.Now, chown: os.Geteuid() == 0,
		recipes: images.FS(), limits: defaultLimits(), sync: syncTree, whole: map[string]bool{},
		walking: make(chan struct{}, 1),
	}
	s.clearStale()
	return s, nil
}

// List returns all images, by name, then by age; those without a name last.
// Damaged ones are among them.
func (s *Store) List(ctx context.Context) ([]Image, error) {
	named, err := s.readNames()
	if err != nil {
		return nil, err
	}
	all, err := s.digests()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var out []Image
	add := func(name, digest string) {
		seen[digest] = true
		img := s.load(ctx, digest)
		img.Name, img.Outdated = name, s.outdated(img)
		out = append(out, img)
	}
	for name, digest := range named {
		add(name, digest)
	}
	for _, digest := range all {
		if !seen[digest] {
			add("", digest)
		}
	}
	slices.SortFunc(out, func(a, b Image) int {
		if (a.Name == "") != (b.Name == "") {
			return strings.Compare(b.Name, a.Name)
		}
		return cmp.Or(strings.Compare(a.Name, b.Name), a.CreatedAt.Compare(b.CreatedAt))
	})
	return out, ctx.Err()
}

// Resolve returns the image of a name, a digest or the first 12 or more digits
// of one. NotFound when there is none, with a hint how to get it; Unavailable
// when it is damaged. The first Resolve of an image in a process looks at every
// file's size and times, unless that of another one counts ([Store.LooksCount]);
// later ones look at the upper directories only.
func (s *Store) Resolve(ctx context.Context, name string) (Image, error) {
	named, digest, err := s.lookup(name)
	if err != nil {
		return Image{}, err
	}
	img := s.load(ctx, digest)
	img.Name = named
	if err := ctx.Err(); err != nil {
		return Image{}, err
	}
	if img.Damaged {
		return Image{}, errs.E(errs.Unavailable, "image %.*q is damaged: %s", maxNameLength, name, img.Problem).
			Hint("%s", repairHint(img))
	}
	return img, nil
}

// lookup finds an image; named is "" when it was found by its digest.
func (s *Store) lookup(name string) (named, digest string, err error) {
	list, err := s.readNames()
	if err != nil {
		return "", "", err
	}
	for _, n := range []string{name, strings.TrimSuffix(name, ":latest")} {
		if digest, ok := list[n]; ok {
			return n, digest, nil
		}
	}
	const minPrefix = 12
	prefix := strings.TrimPrefix(name, "sha256:")
	if len(prefix) >= minPrefix && len(prefix) <= digestLength && isHex(prefix) {
		all, err := s.digests()
		if err != nil {
			return "", "", err
		}
		var found []string
		for _, d := range all {
			if strings.HasPrefix(d, prefix) {
				found = append(found, d)
			}
		}
		if len(found) == 1 {
			return "", found[0], nil
		}
	}
	return "", "", s.noSuchImage(name, list)
}

func (s *Store) noSuchImage(name string, named map[string]string) error {
	how := "get it with: cubby image pull " + name
	if slices.Contains(recipeNames(s.recipes), name) {
		how = "make it with: cubby image build " + name
	}
	have := make([]string, 0, len(named))
	for n := range named {
		have = append(have, n)
	}
	slices.Sort(have)
	list := "there are no images yet"
	if len(have) > 0 {
		list = "there are: " + strings.Join(have[:min(len(have), 10)], ", ")
	}
	return errs.E(errs.NotFound, "no image %.*q", maxNameLength, name).Hint("%s (%s)", how, list)
}

// load reads an image and checks it.
func (s *Store) load(ctx context.Context, digest string) Image {
	dir := filepath.Join(s.dir, digest)
	img := Image{Digest: digest, Dir: filepath.Join(dir, rootfsName)}
	r, err := readRecord(dir)
	if err == nil {
		img.Size, img.CreatedAt, img.Source, img.Env = r.Size, r.CreatedAt, r.Source, r.Env
		img.Definition, img.recipe = r.Definition, r.Recipe
		err = s.check(ctx, r, img.Dir)
	}
	if err != nil && ctx.Err() == nil {
		img.Damaged, img.Problem = true, problem(err)
	}
	return img
}

var (
	errChanged = errors.New("files have changed since it was unpacked")
	errTargets = errors.New("it was unpacked by another version of cubby")
)

// check compares a tree with its stamps.
func (s *Store) check(ctx context.Context, r record, root string) error {
	topNow, err := readTop(root, r.Top)
	if err != nil {
		return err
	}
	if stamp(topNow) != r.TopStamp {
		return errChanged
	}
	if r.Targets != targetsKey() {
		return errTargets
	}
	if s.isWhole(r) {
		return nil
	}
	select {
	case s.walking <- struct{}{}:
		defer func() { <-s.walking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.isWhole(r) {
		return nil
	}
	began := s.now()
	now, err := stampTree(ctx, root)
	if err != nil {
		return err
	}
	if now != r.Stamp {
		return errChanged
	}
	s.tellLooked(r, began)
	s.mu.Lock()
	s.whole[r.Digest] = true
	s.mu.Unlock()
	return nil
}

func (s *Store) isWhole(r record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.whole[r.Digest] && s.wasLooked(r) {
		s.whole[r.Digest] = true
	}
	return s.whole[r.Digest]
}

// problem says what is wrong without naming host paths.
func problem(err error) string {
	switch {
	case errors.Is(err, errChanged), errors.Is(err, errTargets):
		return err.Error()
	case errors.Is(err, fs.ErrNotExist):
		return "files are missing"
	case errors.Is(err, fs.ErrPermission):
		return "it cannot be read by this user"
	}
	return "it cannot be read"
}

func repairHint(img Image) string {
	if img.Definition != nil {
		return "build it again from the image that it was built from, or remove it with: cubby image rm " + img.Name
	}
	switch what, arg, _ := strings.Cut(img.Source, " "); what {
	case "build", "pull":
		return "make it anew with: cubby image " + what + " " + arg
	}
	return "remove it with: cubby image rm " + img.Name + " and import it again"
}

// Verify reads the whole image and compares it with its digest: seconds of
// reading against the doubt that stamps leave. Unavailable when it is damaged.
func (s *Store) Verify(ctx context.Context, name string, p Progress) (Image, error) {
	img, err := s.Resolve(ctx, name)
	if err != nil {
		return Image{}, err
	}
	tree, err := readTree(ctx, img.Dir)
	if err == nil {
		err = sumContents(ctx, img.Dir, tree, p)
	}
	if err != nil {
		return Image{}, fmt.Errorf("verify image %s: %w", name, err)
	}
	if got := digest(tree, img.Env); got != img.Digest {
		return Image{}, errs.E(errs.Unavailable, "image %q is damaged: its files do not match its digest", name).
			Hint("%s", repairHint(img))
	}
	return img, nil
}

// Pin keeps the image of digest while owner exists, over restarts and against
// other processes. NotFound when the image is gone. Pinning twice is not an
// error.
func (s *Store) Pin(ctx context.Context, digest string, owner sandbox.UID) error {
	release, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	if !isDigest(digest) {
		return errs.E(errs.Invalid, "malformed image digest")
	}
	if _, err := os.Stat(filepath.Join(s.dir, digest)); err != nil {
		return errs.E(errs.NotFound, "no image %.12s", digest).Because(err)
	}
	dir := filepath.Join(s.dir, pinsName, digest)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("pin image: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, string(owner)), nil, 0o644); err != nil {
		return fmt.Errorf("pin image: %w", err)
	}
	return nil
}

// Unpin ends a pin. Ending one that is not there is not an error.
func (s *Store) Unpin(ctx context.Context, digest string, owner sandbox.UID) error {
	release, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	dir := filepath.Join(s.dir, pinsName, filepath.Base(digest))
	if err := os.Remove(filepath.Join(dir, string(owner))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unpin image: %w", err)
	}
	_ = os.Remove(dir) // stays while it is not empty
	return nil
}

// Pin is an owner's hold on an image.
type Pin struct {
	Digest string
	Owner  sandbox.UID
}

// Pins returns every pin of every image, also of images that are gone.
func (s *Store) Pins(ctx context.Context) ([]Pin, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, pinsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("read image pins: %w", err)
	}
	var all []Pin
	for _, e := range entries {
		owners, err := s.pins(e.Name())
		if err != nil {
			return nil, err
		}
		for _, o := range owners {
			all = append(all, Pin{Digest: e.Name(), Owner: sandbox.UID(o)})
		}
	}
	return all, ctx.Err()
}

func (s *Store) pins(digest string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, pinsName, digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read image pins: %w", err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

func (s *Store) lock(ctx context.Context) (func(), error) {
	release, err := lock(ctx, filepath.Join(s.dir, ".lock"))
	if errors.Is(err, fs.ErrPermission) {
		return nil, errs.E(errs.Forbidden, "this user may not change the image directory").
			Hint("run it as the user who runs the daemon, usually root").Because(err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the image directory: %w", err)
	}
	return release, nil
}
