//go:build root

package e2e_test

import (
	"errors"
	"strings"
	"testing"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/archive/archivetest"
	"github.com/cubbyhq/cubby/test/harness"
)

// TestArchives destroys a sandbox of each isolation with an archive in a real
// S3 server and begins one of the other isolation with it.
func TestArchives(t *testing.T) {
	t.Parallel()
	srv := archivetest.Start(t)
	h := newReal(t, harness.Options{})
	url, err := h.start([]string{
		"--archive-url", "s3://" + archivetest.Bucket, "--archive-endpoint", srv.URL, "--archive-region", "us-east-1",
		"--archive-access-key", archivetest.AccessKey, "--archive-secret-key", archivetest.SecretKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(url)
	ctx := t.Context()
	name := ""
	for _, isolation := range []string{"gvisor", "container"} {
		if _, err := c.Create(ctx, sdk.CreateOptions{ID: "a", Isolation: isolation, Restore: name}); err != nil {
			t.Fatal(err)
		}
		if name != "" {
			if e := sh(t, c, "cat dir/text ~/.config/own; stat -c '%U %a' dir/text; ls -l dir | grep -c link; sha256sum -c --quiet sums"); e.Stdout != "text\nown\nsandbox 640\n1\n" || e.Err() != nil {
				t.Errorf("restored in a %s: %q %q", isolation, e.Stdout, e.Stderr)
			}
		}
		sh(t, c, "mkdir -p dir ~/.config && echo text > dir/text && chmod 640 dir/text && ln -sf text dir/link && echo own > ~/.config/own && head -c 30000000 /dev/urandom > dir/big && sha256sum dir/big > sums")
		a, err := c.DestroyArchived(ctx, "a")
		if err != nil || !strings.HasPrefix(a.Name, "a.") || a.Bytes < 30_000_000 || a.Isolation != isolation {
			t.Fatalf("destroy = %+v, %v", a, err)
		}
		if _, err := c.Get(ctx, "a"); !errors.Is(err, sdk.NotFound) {
			t.Errorf("the sandbox after it: %v", err)
		}
		name = a.Name
	}
	if err := c.RemoveArchive(ctx, name); err != nil {
		t.Error(err)
	}
	if _, err := c.Archive(ctx, name); !errors.Is(err, sdk.NotFound) {
		t.Errorf("a removed archive: %v", err)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(h.Log(), archivetest.SecretKey) {
		t.Error("the storage's key is in the log")
	}
}
