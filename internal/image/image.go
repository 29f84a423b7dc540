// Package image keeps the root filesystems that sandboxes start from: it
// builds them from Debian packages, pulls them from OCI registries, imports
// them from archives, unpacks, verifies and removes them. Images are
// addressed by the digest of their tree, shared by all their sandboxes and
// never written to after they were unpacked.
//
// Archives and registries are hostile input: every write of an unpack goes
// through os.Root, every count and size is bounded, and nothing of an image is
// ever executed on the host outside a build from signed Debian packages. The
// package runs no sandbox and knows no driver; it needs no daemon, and several
// processes may work on one directory at once.
package image

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Image is one unpacked root filesystem.
type Image struct {
	Name      string    `json:"name"`   // "" when a newer image took its name
	Digest    string    `json:"digest"` // 64 hex digits
	Size      int64     `json:"size"`   // bytes on disk
	CreatedAt time.Time `json:"created_at"`
	Source    string    `json:"source"` // "build base", "pull docker.io/…", "import x.tar"
	// Env is what the image wants in the environment of every command,
	// KEY=VALUE.
	Env []string `json:"env"`
	// Dir is the root filesystem on the host.
	Dir string `json:"dir"`
	// Damaged: the tree is not what was unpacked. It is never used.
	Damaged bool `json:"damaged"`
}

// Progress is told how an image is coming along. It is called from one
// goroutine at a time; nil is allowed everywhere.
type Progress func(Step)

// Step is one report of progress. Done and Total count bytes, unless Items.
type Step struct {
	Stage string // "downloading", "unpacking", …
	Done  int64
	Total int64 // 0: unknown
	Items bool  // Done and Total count things, not bytes
}

// Store is a directory of images.
type Store struct {
	dir string
	log *slog.Logger
}

// Open opens the image directory dir and creates it when it is missing.
func Open(dir string, log *slog.Logger) (*Store, error) { return &Store{dir: dir, log: log}, nil }

// List returns all images, by name, then by age.
func (s *Store) List(ctx context.Context) ([]Image, error) { return nil, nil }

// Resolve returns the image of a name or digest. NotFound when there is none,
// with a hint how to get it; Unavailable when it is damaged.
func (s *Store) Resolve(ctx context.Context, name string) (Image, error) {
	return Image{}, errs.E(errs.NotFound, "no such image")
}

// Build makes the image of a built-in recipe, such as "base".
func (s *Store) Build(ctx context.Context, recipe string, p Progress) (Image, error) {
	return Image{}, errs.E(errs.Unsupported, "not yet")
}

// Pull fetches ref from its registry; "" for name takes the repository's last
// element.
func (s *Store) Pull(ctx context.Context, ref, name string, p Progress) (Image, error) {
	return Image{}, errs.E(errs.Unsupported, "not yet")
}

// Import unpacks a docker-save archive, an OCI archive or a tar of a root
// filesystem. size is the archive's length for the progress, 0 when unknown;
// source names it for people.
func (s *Store) Import(ctx context.Context, r io.Reader, size int64, source, name string, p Progress) (Image, error) {
	return Image{}, errs.E(errs.Unsupported, "not yet")
}

// Pin keeps the image of digest while owner exists, over restarts and against
// other processes. NotFound when the image is gone. Pinning twice is not an
// error.
func (s *Store) Pin(ctx context.Context, digest string, owner sandbox.UID) error { return nil }

// Unpin ends a pin. Ending one that is not there is not an error.
func (s *Store) Unpin(ctx context.Context, digest string, owner sandbox.UID) error { return nil }

// Remove takes the name away and deletes the image when no other name leads
// to it. WrongState when it is pinned or inUse (which may be nil) says so.
func (s *Store) Remove(ctx context.Context, name string, inUse func(digest string) bool) error {
	return nil
}

// Sweep deletes images without a name that are neither pinned nor inUse, and
// what crashed processes left behind. It returns the bytes that it freed.
func (s *Store) Sweep(ctx context.Context, inUse func(digest string) bool) (int64, error) {
	return 0, nil
}
