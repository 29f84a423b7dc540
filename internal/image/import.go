package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Import unpacks an archive and gives the image a name: the tar of docker
// save, an OCI archive (the tar of an OCI layout), or the tar of a root
// filesystem, each plain or compressed with gzip, zstd, bzip2 or xz. size is the
// archive's length for the progress, 0 when unknown; source names it for
// people. The archive is read once, from beginning to end.
//
// Invalid when it is malformed or tries to write anywhere but into the image;
// TooLarge and Exhausted when it is too big; nothing is left behind then.
func (s *Store) Import(ctx context.Context, r io.Reader, size int64, source, name string, p Progress) (Image, error) {
	if err := checkName(name); err != nil {
		return Image{}, err
	}
	if err := s.canUnpack(); err != nil {
		return Image{}, err
	}
	g, err := s.newStage(ctx)
	if err != nil {
		return Image{}, err
	}
	defer g.discard()
	p = p.oneAtATime() // xz reads in a goroutine of its own
	plain, err := decompress(&counter{r: r, p: p, step: Step{Stage: "reading", Total: size}})
	if err != nil {
		return Image{}, err
	}
	defer plain.Close()
	env, err := g.unpackArchive(ctx, plain, p)
	if err != nil {
		return Image{}, fmt.Errorf("import %s: %w", source, tarError(err))
	}
	return g.commit(ctx, about{name: name, source: "import " + source, env: env}, p)
}

// ImportFile imports the archive at a path of the host; "-" is standard input.
func (s *Store) ImportFile(ctx context.Context, file, name string, p Progress) (Image, error) {
	if file == "-" {
		return s.Import(ctx, os.Stdin, 0, "stdin", name, p)
	}
	f, err := os.Open(file)
	if err != nil {
		return Image{}, errs.E(errs.NotFound, "cannot open %s", file).Because(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Image{}, fmt.Errorf("import %s: %w", file, err)
	}
	if info.IsDir() {
		return Image{}, errs.E(errs.Invalid, "%s is a directory", file).
			Hint("import its tar: tar -C %s -c . | cubby image import - --name %s", file, name)
	}
	return s.Import(ctx, f, info.Size(), filepath.Base(file), name, p)
}

// canUnpack prepares for writing. Without root all files of an image belong to
// the user who unpacks it, which is what a daemon without root needs.
func (s *Store) canUnpack() error {
	if !s.chown {
		s.log.Warn("unpacking an image without root: its files will all belong to this user")
	}
	return s.room()
}

// unpackArchive fills the stage's rootfs from an archive of any known kind and
// returns the image's environment.
func (g *stage) unpackArchive(ctx context.Context, r io.Reader, p Progress) ([]string, error) {
	first, again, err := firstEntry(r)
	if err != nil {
		return nil, err
	}
	if !ofImageArchive(first) {
		return nil, g.unpackLayers(ctx, []layer{{open: func() (io.ReadCloser, error) { return io.NopCloser(again), nil }}}, false, p)
	}
	a := &archive{dir: filepath.Join(g.dir, "archive"), limits: g.store.limits, room: g.store.room}
	if err := a.read(ctx, again); err != nil {
		return nil, err
	}
	layers, env, err := a.image()
	if err != nil {
		return nil, err
	}
	return env, g.unpackLayers(ctx, layers, true, p)
}

// firstEntry returns the name of the first entry that tells something, and a
// reader that gives the archive from its beginning.
func firstEntry(r io.Reader) (string, io.Reader, error) {
	const most = 64 // entries that tell nothing
	var seen strings.Builder
	tr := tar.NewReader(io.TeeReader(r, &seen))
	for range most {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return "", nil, errs.E(errs.Invalid, "the archive holds no image").
				Hint("it must be the tar of docker save, of an OCI layout, or of a root filesystem")
		}
		if err != nil {
			return "", nil, errs.E(errs.Invalid, "this is no tar archive").
				Hint("it must be the tar of docker save, of an OCI layout, or of a root filesystem").Because(err)
		}
		if name := strings.Trim(path.Clean("/"+hdr.Name), "/"); name != "" && hdr.Typeflag != tar.TypeXGlobalHeader {
			return name, io.MultiReader(strings.NewReader(seen.String()), r), nil
		}
		if hdr.Typeflag != tar.TypeDir && hdr.Typeflag != tar.TypeXGlobalHeader {
			return "", nil, malformed("an entry has no name")
		}
	}
	return "", nil, malformed("it does not say what it is")
}

// ofImageArchive tells the names in docker-save and OCI archives from those at
// the top of a root filesystem.
func ofImageArchive(name string) bool {
	top, rest, _ := strings.Cut(name, "/")
	switch top {
	case "manifest.json", "index.json", "oci-layout", "repositories":
		return rest == ""
	case "blobs":
		return rest == "" || strings.HasPrefix(rest, "sha256")
	}
	top = strings.TrimPrefix(top, "sha256:")
	for _, suffix := range []string{"", ".json", ".tar", ".tar.gz"} {
		if isDigest(strings.TrimSuffix(top, suffix)) {
			return true
		}
	}
	return false
}

// layer is one layer of an image.
type layer struct {
	open func() (io.ReadCloser, error) // as stored
	// diffID is the digest of the uncompressed layer, "sha256:…"; "" when
	// nobody has said.
	diffID string
}

// unpackLayers unpacks all layers, the lowest first, and compares each with
// its digest.
func (g *stage) unpackLayers(ctx context.Context, layers []layer, whiteouts bool, p Progress) error {
	if len(layers) > g.store.limits.layers {
		return errs.E(errs.TooLarge, "the image has more than %d layers", g.store.limits.layers)
	}
	u, err := newUnpacker(g.rootfs(), g.store.limits, g.store.chown)
	if err != nil {
		return err
	}
	defer u.close()
	for i, l := range layers {
		if err := g.unpackLayer(ctx, u, l, whiteouts); err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
		if len(layers) > 1 {
			p.report(Step{Stage: "unpacking", Done: int64(i + 1), Total: int64(len(layers)), Items: true})
		}
	}
	if err := u.finish(); err != nil {
		return err
	}
	return usable(u.root)
}

// usable refuses what cannot be a root filesystem, such as the tar of a
// project.
func usable(root *os.Root) error {
	for _, dir := range []string{"bin", "usr", "etc", "lib", "sbin", "nix"} {
		if _, err := root.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return errs.E(errs.Invalid, "the archive holds no root filesystem").
		Hint("it must be the tar of docker save, of an OCI layout, or of a root filesystem")
}

func (g *stage) unpackLayer(ctx context.Context, u *unpacker, l layer, whiteouts bool) (err error) {
	stored, err := l.open()
	if err != nil {
		return err
	}
	defer stored.Close()
	plain, err := decompress(stored)
	if err != nil {
		return err
	}
	defer plain.Close()
	sum := newSummer(plain, l.diffID)
	if err := u.layerTar(ctx, sum, whiteouts, g.store.room); err != nil {
		return err
	}
	// What follows the tar's end belongs to the digest, too. It is zeros.
	const padding = 16 << 20
	if _, err := io.Copy(io.Discard, io.LimitReader(sum, padding)); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	return sum.check()
}
