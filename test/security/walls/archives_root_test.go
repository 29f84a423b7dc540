//go:build root

package walls_test

import (
	"errors"
	"io"
	"testing"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// A file that takes a block of its disk can have a size of terabytes, and an
// archive has all of it. gVisor reports no holes, and hard links make a large
// file many.
func TestArchivesOfSparseFilesAreRefused(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	c := client.New(d.URL)
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			b, err := c.Create(t.Context(), client.CreateOptions{Isolation: isolation, Limits: &client.Limits{DiskBytes: 1 << 30}})
			if err != nil {
				t.Fatal(err)
			}
			const make = `
mkdir sparse linked small; echo text | tee small/a >sparse/a; truncate -s 2T sparse/b; truncate -s 256M small/hole
truncate -s 1G linked/0; for i in $(seq 64); do ln linked/0 linked/$i; done`
			if x, err := c.Exec(t.Context(), b.ID, client.ExecOptions{Shell: make}); err != nil || x.ExitCode == nil || *x.ExitCode != 0 {
				t.Fatalf("%+v, %v", x, err)
			}
			for _, path := range []string{"sparse", "sparse/b"} {
				for _, format := range []string{"tar", "tar.gz", "zip"} {
					r, err := c.Files(b.ID).Archive(t.Context(), path, format)
					if err == nil {
						_ = r.Close()
					}
					if !errors.Is(err, client.TooLarge) {
						t.Errorf("%s of %s: %v, want too large", format, path, err)
					}
				}
			}
			r, err := c.Files(b.ID).Archive(t.Context(), "small", "tar")
			if err != nil {
				t.Fatalf("an archive of a file with 256 MiB of holes: %v", err)
			}
			defer r.Close()
			if n, err := io.Copy(io.Discard, r); err != nil || n < 256<<20 {
				t.Errorf("an archive of a file with 256 MiB of holes has %d bytes, %v", n, err)
			}
		})
	}
}
