package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Pull fetches an image for this machine from its registry, such as
// "python:3.12-slim" or "ghcr.io/acme/tool@sha256:…", and gives it the name;
// "" takes the last element of ref, with its tag unless that is latest. A
// registry on loopback may speak plain HTTP. Credentials are those of
// ~/.docker/config.json. Only the image's files and Env are taken.
func (s *Store) Pull(ctx context.Context, ref, as string, p Progress) (Image, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return Image{}, errs.E(errs.Invalid, "malformed image reference").
			Hint("a reference is [registry/]repository[:tag|@digest], such as python:3.12-slim").Because(err)
	}
	if as == "" {
		as = shortName(r)
	}
	if err := checkName(as); err != nil {
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
	p.report(Step{Stage: "resolving"})
	tr := registryTransport()
	defer tr.CloseIdleConnections()
	img, err := fetch(ctx, r, tr)
	if err != nil {
		return Image{}, fmt.Errorf("pull %s: %w", ref, registryError(ref, err))
	}
	layers, env, err := s.remoteLayers(img, p)
	if err == nil {
		err = g.unpackLayers(ctx, layers, true, nil)
	}
	if err != nil {
		return Image{}, fmt.Errorf("pull %s: %w", ref, registryError(ref, err))
	}
	return g.commit(ctx, about{name: as, source: "pull " + r.Name(), env: env}, p)
}

// shortName is what an image is called when nobody says.
func shortName(r name.Reference) string {
	repo := r.Context().RepositoryStr()
	short := repo[strings.LastIndexByte(repo, '/')+1:]
	if tag, ok := r.(name.Tag); ok && tag.TagStr() != name.DefaultTag {
		short += ":" + tag.TagStr()
	}
	return short
}

func fetch(ctx context.Context, r name.Reference, tr *http.Transport) (v1.Image, error) {
	return remote.Image(r,
		remote.WithContext(ctx),
		remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithUserAgent("cubby"),
		remote.WithTransport(boundedJSON{boundedRedirects{tr}}),
	)
}

func registryTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       30 * time.Second,
	}
}

// maxRedirects is how many redirects a request may follow, which the client's own
// rules do not bound.
const maxRedirects = 10

// boundedRedirects refuses a request that was redirected too often.
type boundedRedirects struct{ http.RoundTripper }

func (b boundedRedirects) RoundTrip(r *http.Request) (*http.Response, error) {
	followed := 0
	for by := r.Response; by != nil && by.Request != nil; by = by.Request.Response {
		if followed++; followed > maxRedirects {
			return nil, errs.E(errs.Unavailable, "the registry redirects a request more than %d times", maxRedirects)
		}
	}
	return b.RoundTripper.RoundTrip(r)
}

// boundedJSON bounds everything that a registry sends except blobs, which are
// bounded where they are unpacked.
type boundedJSON struct{ http.RoundTripper }

func (b boundedJSON) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(r)
	// Blobs are often redirected to a store under another path.
	if redirected := r.Response != nil; err == nil && !redirected && !strings.Contains(r.URL.Path, "/blobs/") {
		res.Body = struct {
			io.Reader
			io.Closer
		}{&bounded{res.Body, maxJSON}, res.Body}
	}
	return res, err
}

type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errs.E(errs.TooLarge, "the registry sends a manifest that is too large")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// remoteLayers prepares an image's layers for unpacking. They are streamed:
// what arrives is compared with the manifest's digest by go-containerregistry,
// and what is unpacked with the configuration's by us.
func (s *Store) remoteLayers(img v1.Image, p Progress) ([]layer, []string, error) {
	m, err := img.Manifest()
	if err != nil {
		return nil, nil, err
	}
	if m.Config.Size > maxJSON {
		return nil, nil, errs.E(errs.TooLarge, "the image's configuration is too large")
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, nil, err
	}
	if err := checkPlatform(c.OS, c.Architecture); err != nil {
		return nil, nil, err
	}
	if len(c.RootFS.DiffIDs) != len(m.Layers) {
		return nil, nil, errs.E(errs.Invalid, "the image's configuration and manifest name different layers")
	}
	var total int64
	for _, l := range m.Layers {
		if l.Size < 0 || l.Size > s.limits.bytes {
			return nil, nil, errs.E(errs.TooLarge, "a layer of the image is larger than %d GiB", s.limits.bytes>>30)
		}
		total += l.Size
	}
	done := &counter{p: p, step: Step{Stage: "pulling", Total: total}}
	layers := make([]layer, 0, len(m.Layers))
	for i, d := range m.Layers {
		layers = append(layers, layer{
			diffID: c.RootFS.DiffIDs[i].String(),
			open: func() (io.ReadCloser, error) {
				l, err := img.LayerByDigest(d.Digest)
				if err != nil {
					return nil, err
				}
				rc, err := l.Compressed()
				if err != nil {
					return nil, err
				}
				done.r = rc // one layer at a time
				return struct {
					io.Reader
					io.Closer
				}{done, rc}, nil
			},
		})
	}
	return layers, validEnv(c.Config.Env), nil
}

// registryError classifies what a registry answers.
func registryError(ref string, err error) error {
	var known *errs.Error
	var terr *transport.Error
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errs.E(errs.Unavailable, "the registry broke off").Hint("try again").Because(err)
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &terr):
		switch terr.StatusCode {
		case http.StatusNotFound:
			return errs.E(errs.NotFound, "the registry has no image %s", ref).Because(err)
		case http.StatusUnauthorized, http.StatusForbidden:
			return errs.E(errs.Forbidden, "the registry does not give out %s", ref).
				Hint("check the name; log in with docker login, or write the credentials to ~/.docker/config.json").Because(err)
		}
	}
	if strings.Contains(err.Error(), "no child with platform") {
		return errs.E(errs.Unsupported, "there is no %s for linux/%s", ref, runtime.GOARCH).Because(err)
	}
	return errs.E(errs.Unavailable, "the registry does not answer as it should").
		Hint("check the name of the registry and the network").Because(diskError(err))
}
