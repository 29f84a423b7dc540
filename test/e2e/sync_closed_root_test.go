//go:build root

package e2e_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"testing"

	api "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// manyFiles is more than gVisor remembers of a mount.
const manyFiles = 2500

// TestSyncReachesClosedFiles: what sync and the answer to an archive promise is true of
// files that were closed long ago too: they are there when the disk comes back after a
// failure.
func TestSyncReachesClosedFiles(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	c, ctx := api.New(d.URL), t.Context()
	for what, write := range map[string]func(t *testing.T, id string){
		"a program": func(t *testing.T, id string) {
			program := fmt.Sprintf("import os\nfor i in range(%d): open('m%%d' %% i, 'w').write('%%d' %% i)\nopen('a', 'w').close()\nos.sync()", manyFiles)
			x, err := c.Exec(ctx, id, api.ExecOptions{Argv: []string{"python3", "-c", program}})
			if err != nil || x.Stderr != "" || *x.ExitCode != 0 {
				t.Fatalf("the program: %+v, %v", x, err)
			}
		},
		"an archive": func(t *testing.T, id string) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for i := range manyFiles {
				content := fmt.Sprint(i)
				err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("m%d", i), Mode: 0o644, Size: int64(len(content))})
				if _, writeErr := w.Write([]byte(content)); err != nil || writeErr != nil {
					t.Fatal(err, writeErr)
				}
			}
			if err := w.WriteHeader(&tar.Header{Name: "a", Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if err := c.Files(id).Extract(ctx, "/workspace", &b); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			b, err := c.Create(ctx, api.CreateOptions{Isolation: "gvisor", Limits: &api.Limits{DiskBytes: 256 << 20}})
			if err != nil {
				t.Fatal(err)
			}
			write(t, b.ID)
			mnt := diskOf(t, d, "a")
			shutDown(t, mnt)
			restart(t, c, b.ID, mnt)
			program := fmt.Sprintf("for i in range(%d):\n try: whole = open('m%%d' %% i).read() == '%%d' %% i\n except OSError: whole = False\n if not whole: print(i)", manyFiles)
			x, err := c.Exec(ctx, b.ID, api.ExecOptions{Argv: []string{"python3", "-c", program}})
			if err != nil || x.Stdout != "" || x.Stderr != "" {
				t.Errorf("these files are lost: %.200s%s, %v", x.Stdout, x.Stderr, err)
			}
			if _, err := c.Purge(ctx, b.ID); err != nil {
				t.Error(err)
			}
		})
	}
}
