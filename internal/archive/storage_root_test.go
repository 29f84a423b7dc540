//go:build root

package archive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/archive/archivetest"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func open(t *testing.T, srv *archivetest.Server) *archive.Storage {
	t.Helper()
	s, err := archive.Open(archive.Config{
		URL: "s3://" + archivetest.Bucket + "/some/prefix", Endpoint: srv.URL, Region: "us-east-1",
		AccessKey: archivetest.AccessKey, SecretKey: archivetest.SecretKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tarOf is a tar of one file.
func tarOf(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func manifest(id sandbox.ID) archive.Manifest {
	return archive.Manifest{
		Tenant: "acme/../Ü", ID: id, UID: sandbox.NewUID(), Image: "base", Isolation: sandbox.GVisor, CreatedAt: time.Now().UTC().Truncate(time.Second),
	}
}

// objects lists the files that the server keeps of objects.
func objects(t *testing.T, srv *archivetest.Server) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(srv.Dir, archivetest.Bucket), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestArchives(t *testing.T) {
	srv := archivetest.Start(t)
	s := open(t, srv)
	ctx := t.Context()

	// One tree is over several parts of an upload and does not compress.
	big := make([]byte, 40<<20)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(big); err != nil {
		t.Fatal(err)
	}
	trees := map[string][]byte{"/workspace": tarOf(t, big), "/home/sandbox": tarOf(t, []byte("small"))}
	of := func(_ context.Context, path string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(trees[path])), nil
	}
	want := manifest("my-Box_1")
	made, err := s.Put(ctx, want, []string{"/workspace", "/home/sandbox"}, of)
	if err != nil {
		t.Fatal(err)
	}
	if made.Name != "my-Box_1."+string(want.UID) || len(made.Parts) != 2 || made.Bytes() < 40<<20 || made.Parts[1].TarBytes != int64(len(trees["/home/sandbox"])) {
		t.Errorf("Put = %+v", made)
	}
	got, err := s.Get(ctx, want.Tenant, made.Name)
	if diff := cmp.Diff(made, got); err != nil || diff != "" {
		t.Errorf("Get: %v (-put +got):\n%s", err, diff)
	}
	for _, p := range got.Parts {
		r, err := s.Open(ctx, got, p)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(data, trees[p.Path]) {
			t.Errorf("%s came back as %d bytes, %v, want %d", p.Path, len(data), err, len(trees[p.Path]))
		}
		if err := errors.Join(r.Finish(), r.Close()); err != nil {
			t.Error(err)
		}
	}

	t.Run("another tenant's", func(t *testing.T) {
		if _, err := s.Get(ctx, "acme", made.Name); !errors.Is(err, errs.NotFound) {
			t.Errorf("Get = %v", err)
		}
		if err := s.Remove(ctx, "", made.Name); !errors.Is(err, errs.NotFound) {
			t.Errorf("Remove = %v", err)
		}
	})
	t.Run("names that are none", func(t *testing.T) {
		for _, name := range []string{"", "x", "../" + made.Name, made.Name + "/..", "my-Box_1.", "." + string(want.UID), strings.ToUpper(made.Name) + ".x"} {
			if _, err := s.Get(ctx, want.Tenant, name); !errors.Is(err, errs.Invalid) && !errors.Is(err, errs.NotFound) {
				t.Errorf("Get(%q) = %v", name, err)
			}
		}
	})
	t.Run("a tree that breaks off", func(t *testing.T) {
		before := len(objects(t, srv))
		_, err := s.Put(ctx, manifest("b"), []string{"/home/sandbox", "/workspace"}, func(ctx context.Context, path string) (io.ReadCloser, error) {
			if path == "/workspace" {
				return io.NopCloser(io.MultiReader(bytes.NewReader(big), broken{})), nil
			}
			return of(ctx, path)
		})
		if !errors.Is(err, errBroken) {
			t.Errorf("Put = %v", err)
		}
		if after := objects(t, srv); len(after) != before {
			t.Errorf("left in the storage: %q", after)
		}
	})
	t.Run("the caller goes away", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		_, err := s.Put(ctx, manifest("c"), []string{"/workspace"}, func(context.Context, string) (io.ReadCloser, error) {
			cancel()
			return io.NopCloser(bytes.NewReader(big)), nil
		})
		if err == nil {
			t.Error("Put succeeded after its context")
		}
	})
	t.Run("damaged", func(t *testing.T) {
		for _, damage := range []func([]byte) []byte{
			func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
			func(b []byte) []byte { return b[:len(b)/2] },
			func(b []byte) []byte { return append(b, 0) },
			func([]byte) []byte { return nil },
		} {
			m := manifest("d")
			m, err := s.Put(ctx, m, []string{"/home/sandbox"}, of)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range objects(t, srv) {
				if strings.Contains(path, m.Name) && strings.HasSuffix(path, ".zst") {
					data, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, damage(data), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			r, err := s.Open(ctx, m, m.Parts[0])
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				if finish := r.Finish(); err == nil {
					err = finish
				} else if finish == nil {
					t.Error("a damaged part is whole")
				}
				_ = r.Close()
			}
			if !errors.Is(err, errs.Unavailable) {
				t.Errorf("a damaged part: %v", err)
			}
			if err := s.Remove(ctx, m.Tenant, m.Name); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("removed", func(t *testing.T) {
		if err := s.Remove(ctx, want.Tenant, made.Name); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(ctx, want.Tenant, made.Name); !errors.Is(err, errs.NotFound) {
			t.Errorf("Get = %v", err)
		}
		if left := objects(t, srv); len(left) != 0 {
			t.Errorf("left in the storage: %q", left)
		}
	})
	t.Run("wrong keys", func(t *testing.T) {
		other, err := archive.Open(archive.Config{URL: "s3://boxes", Endpoint: srv.URL, Region: "us-east-1", AccessKey: archivetest.AccessKey, SecretKey: "wrong"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.Put(ctx, manifest("e"), []string{"/home/sandbox"}, of)
		if info := errs.Public(err); info.Kind != errs.Unavailable || !strings.Contains(info.Message+info.Hint, "keys") {
			t.Errorf("Put = %v", err)
		}
	})
	t.Run("no bucket", func(t *testing.T) {
		other, err := archive.Open(archive.Config{URL: "s3://nosuch", Endpoint: srv.URL, Region: "us-east-1", AccessKey: archivetest.AccessKey, SecretKey: archivetest.SecretKey})
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.Put(ctx, manifest("e"), []string{"/home/sandbox"}, of)
		if info := errs.Public(err); info.Kind != errs.Unavailable || !strings.Contains(info.Message, "bucket") {
			t.Errorf("Put = %v", err)
		}
	})
	t.Run("gone", func(t *testing.T) {
		if err := srv.Kill(); err != nil {
			t.Fatal(err)
		}
		_, err := s.Put(ctx, manifest("f"), []string{"/home/sandbox"}, of)
		if info := errs.Public(err); info.Kind != errs.Unavailable || strings.Contains(fmt.Sprint(info), srv.URL) {
			t.Errorf("Put = %v", err)
		}
	})
}

var errBroken = errors.New("the disk broke")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }
