package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cubbyhq/cubby/internal/errs"
)

// archive is a docker-save or OCI archive whose files were put aside. Their
// names are the archive's own text and never become paths of the host: the
// files are numbered.
type archive struct {
	dir    string
	limits limits
	room   func() error

	files map[string]string // name in the archive to file
	links map[string]string // name in the archive to another one
}

// maxJSON bounds manifests and configurations.
const maxJSON = 8 << 20

// read puts the archive's files aside. A blob that is named by its digest must
// match it.
func (a *archive) read(ctx context.Context, r io.Reader) error {
	if err := os.Mkdir(a.dir, 0o700); err != nil {
		return fmt.Errorf("put archive aside: %w", err)
	}
	a.files, a.links = map[string]string{}, map[string]string{}
	u := &unpacker{limits: a.limits}
	tr := tar.NewReader(r)
	body := &meter{r: tr, u: u, check: a.room}
	const most = 10_000 // an image has a few hundred at most
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n == most {
			return errs.E(errs.TooLarge, "the archive has more than %d files", most)
		}
		name, err := u.clean(hdr.Name)
		if err != nil {
			return err
		}
		switch hdr.Typeflag {
		case tar.TypeReg:
			if err := a.putAside(name, body); err != nil {
				return err
			}
		case tar.TypeSymlink: // docker save links layers that occur twice
			a.links[name] = strings.TrimPrefix(path.Clean("/"+path.Join(path.Dir(name), hdr.Linkname)), "/")
		case tar.TypeLink:
			a.links[name] = strings.TrimPrefix(path.Clean("/"+hdr.Linkname), "/")
		}
	}
}

func (a *archive) putAside(name string, r io.Reader) error {
	to := filepath.Join(a.dir, fmt.Sprint(len(a.files)))
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), r); err != nil {
		return err
	}
	if want, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && want != hex.EncodeToString(h.Sum(nil)) {
		return errs.E(errs.Invalid, "a blob of the archive does not match its digest").
			Hint("the archive is damaged; make it again")
	}
	a.files[name] = to
	return f.Close()
}

// open opens a file of the archive by its name there.
func (a *archive) open(name string) (*os.File, error) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for range 8 { // links to links
		if to, ok := a.files[name]; ok {
			return os.Open(to)
		}
		next, ok := a.links[name]
		if !ok {
			break
		}
		name = next
	}
	return nil, malformed("a part that it refers to is missing")
}

func (a *archive) json(name string, v any) error {
	f, err := a.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxJSON+1))
	if err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	if len(b) > maxJSON {
		return malformed("a manifest is too large")
	}
	if err := json.Unmarshal(b, v); err != nil {
		return errs.E(errs.Invalid, "the archive is refused: a manifest is malformed").Because(err)
	}
	return nil
}

func (a *archive) has(name string) bool {
	_, file := a.files[name]
	_, link := a.links[name]
	return file || link
}

// image returns the layers of the archive's image and its environment.
// Archives of docker save that are OCI layouts, too, are read as the latter.
func (a *archive) image() ([]layer, []string, error) {
	switch {
	case a.has("index.json"):
		return a.ociImage()
	case a.has("manifest.json"):
		return a.dockerImage()
	}
	return nil, nil, errs.E(errs.Invalid, "the archive holds neither manifest.json nor index.json").
		Hint("it must be the tar of docker save, of an OCI layout, or of a root filesystem")
}

func (a *archive) dockerImage() ([]layer, []string, error) {
	var images []struct {
		Config string   `json:"Config"`
		Layers []string `json:"Layers"`
	}
	if err := a.json("manifest.json", &images); err != nil {
		return nil, nil, err
	}
	if len(images) != 1 {
		return nil, nil, errs.E(errs.Invalid, "the archive holds %d images", len(images)).Hint("save one image at a time")
	}
	return a.assemble(images[0].Config, images[0].Layers)
}

func (a *archive) ociImage() ([]layer, []string, error) {
	var index v1.IndexManifest
	if err := a.json("index.json", &index); err != nil {
		return nil, nil, err
	}
	desc, err := a.choose(index, 0)
	if err != nil {
		return nil, nil, err
	}
	var m v1.Manifest
	if err := a.json(blobName(desc.Digest), &m); err != nil {
		return nil, nil, err
	}
	layers := make([]string, 0, len(m.Layers))
	for _, l := range m.Layers {
		layers = append(layers, blobName(l.Digest))
	}
	return a.assemble(blobName(m.Config.Digest), layers)
}

func blobName(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// choose finds the image for this machine in an index, which may hold others.
func (a *archive) choose(index v1.IndexManifest, depth int) (v1.Descriptor, error) {
	const deepest = 4
	var found []v1.Descriptor
	for _, d := range index.Manifests {
		p := d.Platform
		if d.Annotations["vnd.docker.reference.type"] != "" || p != nil && p.OS == "unknown" {
			continue // attestations
		}
		if p == nil || p.OS == "linux" && p.Architecture == runtime.GOARCH {
			found = append(found, d)
		}
	}
	switch {
	case len(found) == 0:
		return v1.Descriptor{}, errs.E(errs.Unsupported, "the archive holds no image for linux/%s", runtime.GOARCH)
	case len(found) > 1:
		return v1.Descriptor{}, errs.E(errs.Invalid, "the archive holds %d images", len(found)).Hint("save one image at a time")
	case !found[0].MediaType.IsIndex():
		return found[0], nil
	case depth == deepest:
		return v1.Descriptor{}, malformed("its indexes are nested too deeply")
	}
	var inner v1.IndexManifest
	if err := a.json(blobName(found[0].Digest), &inner); err != nil {
		return v1.Descriptor{}, err
	}
	return a.choose(inner, depth+1)
}

// assemble pairs the layers with the digests that the configuration gives.
func (a *archive) assemble(config string, names []string) ([]layer, []string, error) {
	var c v1.ConfigFile
	if err := a.json(config, &c); err != nil {
		return nil, nil, err
	}
	if len(c.RootFS.DiffIDs) != len(names) {
		return nil, nil, malformed("its configuration names %d layers and its manifest %d", len(c.RootFS.DiffIDs), len(names))
	}
	if err := checkPlatform(c.OS, c.Architecture); err != nil {
		return nil, nil, err
	}
	layers := make([]layer, 0, len(names))
	for i, name := range names {
		layers = append(layers, layer{
			open:   func() (io.ReadCloser, error) { return a.open(name) },
			diffID: c.RootFS.DiffIDs[i].String(),
		})
	}
	return layers, validEnv(c.Config.Env), nil
}

func checkPlatform(system, arch string) error {
	if system != "" && system != "linux" || arch != "" && arch != runtime.GOARCH {
		return errs.E(errs.Unsupported, "the image is for %.20s/%.20s and this machine is linux/%s", system, arch, runtime.GOARCH)
	}
	return nil
}
