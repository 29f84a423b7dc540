// Package archive keeps the files of destroyed sandboxes in storage that
// speaks S3, until a new sandbox begins with them.
//
// An archive is a directory of objects: one compressed tar for each tree of
// the sandbox's disk, and a manifest, which is written last. What has no
// manifest is no archive. Archives of one tenant are below a key of its own
// and are not found by another.
//
// Nothing is believed: what was written is read back before Put succeeds, and
// what is read is compared with the manifest. It knows no sandbox states; what
// a tar may do to a disk is filetree's business.
package archive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Config says where archives are.
type Config struct {
	URL       string // s3://bucket or s3://bucket/prefix
	Endpoint  string // http://host:port or https://…; "" is AWS
	Region    string // "" lets the storage say
	AccessKey string
	SecretKey string
	// Transport, when not nil, carries the requests.
	Transport http.RoundTripper
	// Stall is how long the storage may take for the next bytes; 0: two minutes.
	Stall time.Duration
}

// Storage is where archives are. It is safe for concurrent use and holds
// nothing open between calls.
type Storage struct {
	client         *minio.Client
	bucket, prefix string
}

const awsEndpoint = "https://s3.amazonaws.com"

// Open checks the config. It asks nobody whether the bucket exists. Errors are
// Invalid and name the key of the config.
func Open(c Config) (*Storage, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errs.E(errs.Invalid, "archive-url: not s3://bucket or s3://bucket/prefix")
	}
	if c.Endpoint == "" {
		c.Endpoint = awsEndpoint
	}
	at, err := url.Parse(c.Endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil || strings.Trim(at.Path, "/") != "" {
		return nil, errs.E(errs.Invalid, "archive-endpoint: not http://host:port or https://host:port")
	}
	if c.AccessKey == "" || c.SecretKey == "" {
		return nil, errs.E(errs.Invalid, "archive-access-key and archive-secret-key are needed with archive-url")
	}
	if c.Transport == nil {
		if c.Transport, err = newTransport(at.Scheme == "https", cmp.Or(c.Stall, stallTime)); err != nil {
			return nil, errs.E(errs.Invalid, "archive-endpoint: not one of an S3 storage").Because(err)
		}
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(c.AccessKey, c.SecretKey, ""),
		Secure: at.Scheme == "https", Region: c.Region, Transport: c.Transport, MaxRetries: maxRetries,
	})
	if err != nil {
		return nil, errs.E(errs.Invalid, "archive-endpoint: not one of an S3 storage").Because(err)
	}
	return &Storage{client: client, bucket: u.Host, prefix: strings.Trim(u.Path, "/")}, nil
}

const (
	maxRetries   = 3
	partBytes    = 16 << 20 // of an upload; so much of it is held in memory
	maxManifest  = 64 << 10
	manifestName = "manifest.json"
	version      = 1
)

// Manifest describes an archive.
type Manifest struct {
	Version   int               `json:"version"`
	Name      string            `json:"name"`
	Tenant    string            `json:"tenant,omitempty"`
	ID        sandbox.ID        `json:"id"`  // of the sandbox
	UID       sandbox.UID       `json:"uid"` // of the sandbox
	Image     string            `json:"image"`
	Isolation sandbox.Isolation `json:"isolation"`
	CreatedAt time.Time         `json:"created_at"`
	Parts     []Part            `json:"parts"`
}

// Part is one tree of a sandbox's disk.
type Part struct {
	Path     string `json:"path"` // in the sandbox
	Object   string `json:"object"`
	Bytes    int64  `json:"bytes"`     // of the object
	TarBytes int64  `json:"tar_bytes"` // unpacked
	SHA256   string `json:"sha256"`    // of the object
}

// Bytes is what the archive takes in the storage.
func (m Manifest) Bytes() int64 {
	var n int64
	for _, p := range m.Parts {
		n += p.Bytes
	}
	return n
}

// Name is the name of the archive of a sandbox.
func Name(id sandbox.ID, uid sandbox.UID) string { return string(id) + "." + string(uid) }

// parseName refuses what is no name, so that none becomes another key.
func parseName(name string) error {
	id, uid, _ := strings.Cut(name, ".")
	if _, err := sandbox.ParseID(id); err == nil {
		if _, err := sandbox.ParseUID(uid); err == nil {
			return nil
		}
	}
	return errs.E(errs.Invalid, "not the name of an archive").Hint("destroying a sandbox with an archive answers with its name")
}

// key is the key of an object. Tenants have any characters; keys have few.
func (s *Storage) key(tenant, name, object string) string {
	sum := sha256.Sum256([]byte(tenant))
	return path.Join(s.prefix, "tenants", hex.EncodeToString(sum[:16]), name, object)
}

// Put makes an archive of the trees at paths, which open streams as tar, and
// reads it back. Without an error all of it is there; after one nothing is
// left of it that could be taken for an archive. m says what the archive is
// of; Put fills the rest.
func (s *Storage) Put(ctx context.Context, m Manifest, paths []string, open func(ctx context.Context, path string) (io.ReadCloser, error)) (Manifest, error) {
	m.Version, m.Name, m.Parts = version, Name(m.ID, m.UID), nil
	if err := parseName(m.Name); err != nil {
		return m, err
	}
	m, err := s.put(ctx, m, paths, open)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		err = errors.Join(err, s.remove(undo, m))
	}
	return m, err
}

const undoTime = 30 * time.Second

func (s *Storage) put(ctx context.Context, m Manifest, paths []string, open func(ctx context.Context, path string) (io.ReadCloser, error)) (Manifest, error) {
	for _, p := range paths {
		part := Part{Path: p, Object: strings.ReplaceAll(strings.Trim(p, "/"), "/", "-") + ".tar.zst"}
		m.Parts = append(m.Parts, part)
		tree, err := open(ctx, p)
		if err != nil {
			return m, fmt.Errorf("read %s: %w", p, err)
		}
		err = s.upload(ctx, s.key(m.Tenant, m.Name, part.Object), tree, &m.Parts[len(m.Parts)-1])
		if err = errors.Join(err, tree.Close()); err != nil {
			return m, fmt.Errorf("archive %s: %w", p, err)
		}
	}
	for _, p := range m.Parts {
		r, err := s.Open(ctx, m, p)
		if err != nil {
			return m, fmt.Errorf("read %s back: %w", p.Object, err)
		}
		n, err := io.Copy(io.Discard, r)
		if err == nil && n != p.TarBytes {
			err = damaged()
		}
		if err = errors.Join(err, r.Finish(), r.Close()); err != nil {
			return m, fmt.Errorf("read %s back: %w", p.Object, err)
		}
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	_, err = s.client.PutObject(ctx, s.bucket, s.key(m.Tenant, m.Name, manifestName), strings.NewReader(string(text)), int64(len(text)),
		minio.PutObjectOptions{ContentType: "application/json"})
	if err != nil {
		return m, storageError(err)
	}
	back, err := s.Get(ctx, m.Tenant, m.Name)
	if err != nil {
		return m, fmt.Errorf("read the manifest back: %w", err)
	}
	return back, nil
}

// Get returns the manifest of a tenant's archive. NotFound when it has none of
// this name, Invalid when that is no name.
func (s *Storage) Get(ctx context.Context, tenant, name string) (Manifest, error) {
	var m Manifest
	if err := parseName(name); err != nil {
		return m, err
	}
	o, err := s.client.GetObject(ctx, s.bucket, s.key(tenant, name, manifestName), minio.GetObjectOptions{})
	if err != nil {
		return m, storageError(err)
	}
	defer o.Close()
	text, err := io.ReadAll(io.LimitReader(o, maxManifest))
	if err != nil {
		return m, storageError(err)
	}
	if json.Unmarshal(text, &m) != nil || m.Name != name || m.Tenant != tenant || len(m.Parts) == 0 {
		return m, damaged()
	}
	if m.Version != version {
		return m, errs.E(errs.Unsupported, "the archive has a form that this version does not know")
	}
	for _, p := range m.Parts {
		if p.Object == "" || strings.ContainsAny(p.Object, "/\x00") || !path.IsAbs(p.Path) || p.Bytes < 0 {
			return m, damaged()
		}
	}
	return m, nil
}

// Remove deletes an archive. NotFound when the tenant has none of this name.
func (s *Storage) Remove(ctx context.Context, tenant, name string) error {
	m, err := s.Get(ctx, tenant, name)
	if err != nil {
		return err
	}
	return s.remove(ctx, m)
}

// remove deletes the manifest first: then the rest is no archive any more.
func (s *Storage) remove(ctx context.Context, m Manifest) error {
	objects := []string{manifestName}
	for _, p := range m.Parts {
		objects = append(objects, p.Object)
	}
	for _, o := range objects {
		if err := s.client.RemoveObject(ctx, s.bucket, s.key(m.Tenant, m.Name, o), minio.RemoveObjectOptions{}); err != nil {
			return storageError(err)
		}
	}
	return nil
}

func damaged() error {
	return errs.E(errs.Unavailable, "the archive is damaged: it is not what was written")
}

// storageError classifies what the storage says.
func storageError(err error) error {
	var known *errs.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	switch res := minio.ToErrorResponse(err); {
	case res.Code == minio.NoSuchKey:
		return errs.E(errs.NotFound, "no such archive").Because(err)
	case res.Code == minio.NoSuchBucket:
		return errs.E(errs.Unavailable, "the archive storage has no such bucket").Hint("make it, or set archive-url").Because(err)
	case res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusUnauthorized:
		return errs.E(errs.Unavailable, "the archive storage refuses the daemon's keys").
			Hint("check archive-access-key, archive-secret-key and archive-region").Because(err)
	case res.StatusCode != 0:
		return errs.E(errs.Unavailable, "the archive storage refused: %s", printable(res.Code)).Because(err)
	}
	return errs.E(errs.Unavailable, "the archive storage does not answer").Because(err)
}

// printable keeps a code of the storage fit for a message.
func printable(code string) string {
	if len(code) > 40 || strings.Trim(strings.ToLower(code), "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return "an unknown error"
	}
	return code
}
