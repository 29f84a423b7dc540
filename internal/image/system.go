package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path"
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
		"proc", "sys", "dev", "tmp", "run", strings.TrimPrefix(driver.StateDir, "/"),
		strings.TrimPrefix(sandbox.WorkspaceDir, "/"), strings.TrimPrefix(sandbox.HomeDir, "/"), strings.TrimPrefix(driver.UserData, "/"),
		"root/.npm", "root/.cache", "root/.node-gyp",
	}
}

// notOfImage says which paths of a sandbox's root are no part of its image.
func notOfImage(p string) bool {
	for _, dir := range outside() {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	if strings.HasPrefix(p, "var/tmp/") {
		return true
	}
	downloaded, _ := path.Match("var/cache/apt/archives/*.deb", p) // the pattern is well-formed
	return downloaded
}

// profile is written by the agent into images that lack it.
const profile = "/etc/profile.d/cubby.sh"

// mountedFiles puts the files over which sandboxes mount others, and what the
// agent writes, back to what they are in the image that the sandbox began from.
func (u *unpacker) mountedFiles(base string) error {
	from, err := os.OpenRoot(base)
	if err != nil {
		return err
	}
	defer from.Close()
	names := []string{profile}
	for _, t := range driver.MountTargets() {
		if !t.Dir {
			names = append(names, t.Path)
		}
	}
	for _, name := range names {
		if err := u.mountedFile(from, strings.TrimPrefix(name, "/")); err != nil {
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
	// What is missing or no file, or where an absolute link leads, is empty: a
	// commit makes the targets, and nobody sees what is under a mount.
	info, err := from.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // see above
	}
	f, err := from.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
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
