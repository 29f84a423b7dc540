package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// ImportSystem makes the image of a build out of the root filesystem of the
// sandbox in which its steps ran: a tar, which is read once and trusted in
// nothing. What a sandbox mounts over its root is not part of an image, nor are
// the caches of the installers. Errors are those of [Store.Import].
func (s *Store) ImportSystem(ctx context.Context, r io.Reader, b Prepared, p Progress) (Image, error) {
	if err := s.canUnpack(); err != nil {
		return Image{}, err
	}
	g, err := s.newStage(ctx)
	if err != nil {
		return Image{}, err
	}
	defer g.discard()
	if err := g.unpackSystem(ctx, &counter{r: r, p: p, step: Step{Stage: "exporting"}}, b.Image.Dir); err != nil {
		return Image{}, fmt.Errorf("build %s: %w", b.about.name, tarError(err))
	}
	return g.commit(ctx, b.about, p)
}

func (g *stage) unpackSystem(ctx context.Context, r io.Reader, base string) error {
	u, err := newUnpacker(g.rootfs(), g.store.limits, g.store.chown)
	if err != nil {
		return err
	}
	defer u.close()
	u.leave, u.capabilities = notOfImage, true
	if err := u.layerTar(ctx, r, false, g.store.room); err != nil {
		return err
	}
	if err := u.mountedFiles(base); err != nil {
		return err
	}
	if err := u.finish(); err != nil {
		return err
	}
	return usable(u.root)
}

// outside are the directories that are left out: what is mounted there in
// sandboxes, what programs keep between runs, and caches.
func outside() []string {
	return []string{
		"proc", "sys", "dev", "tmp", "run", "var/tmp", strings.TrimPrefix(driver.StateDir, "/"),
		strings.TrimPrefix(sandbox.WorkspaceDir, "/"), strings.TrimPrefix(sandbox.HomeDir, "/"), strings.TrimPrefix(driver.UserData, "/"),
		"root/.npm", "root/.cache", "root/.node-gyp", "var/cache/apt/archives",
	}
}

// keptEmpty are those of them that an image has, with what is in them left out.
func keptEmpty(dir string) bool {
	return dir == "var/tmp" || dir == "var/cache/apt/archives"
}

// notOfImage says which paths of a sandbox's root are no part of its image.
func notOfImage(p string) bool {
	for _, dir := range outside() {
		if strings.HasPrefix(p, dir+"/") || p == dir && !keptEmpty(dir) {
			return true
		}
	}
	return false
}

// mountedFiles puts the files over which sandboxes mount others back to what
// they are in the image that the sandbox began from.
func (u *unpacker) mountedFiles(base string) error {
	from, err := os.OpenRoot(base)
	if err != nil {
		return err
	}
	defer from.Close()
	for _, t := range driver.MountTargets() {
		if t.Dir {
			continue
		}
		if err := u.mountedFile(from, strings.TrimPrefix(t.Path, "/")); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) mountedFile(from *os.Root, name string) error {
	real, err := u.resolve(name)
	if err != nil {
		return err
	}
	if err := u.removeAll(real); err != nil {
		return err
	}
	f, err := from.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a commit makes the target
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	return u.file(real, f, attributes{mode: info.Mode().Perm(), mtime: info.ModTime()})
}

// The capabilities of a file as the kernel keeps them, and as PAX archives do.
const (
	capabilityAttribute = "security.capability"
	capabilityRecord    = "SCHILY.xattr." + capabilityAttribute
)

// capabilitiesOf returns the capabilities of a tar's entry. Only what the kernel
// writes for files of the host itself is taken: twenty bytes of the second
// version.
func capabilitiesOf(hdr *tar.Header) string {
	const length, version = 20, 2
	value := hdr.PAXRecords[capabilityRecord]
	if hdr.Typeflag != tar.TypeReg || len(value) != length || value[3] != version {
		return ""
	}
	return value
}
