//go:build root

package e2e_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/image/imagetest"
	"github.com/cubbyhq/cubby/test/harness"
)

// tinyImages is an image directory whose only image is tiny: it has a shell.
func tinyImages(t *testing.T) string {
	t.Helper()
	all, err := image.Open(harness.Images(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	base, err := all.Resolve(t.Context(), "base")
	if err != nil {
		t.Fatal(err)
	}
	dir := harness.TempDir(t)
	images, err := image.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := imagetest.Tiny(t, base.Dir, "sh", "cat", "sleep")
	if _, err := images.Import(t.Context(), bytes.NewReader(data), 0, "tiny.tar", "tiny", nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A build whose daemon is killed leaves nothing: no image, no sandbox, no
// mount. The next daemon can build it.
func TestDaemonKilledDuringABuild(t *testing.T) {
	t.Parallel()
	images := tinyImages(t)
	h := newReal(t, harness.Options{Images: images, Flags: []string{"--pool=off"}})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	build := func(command string, hear func(sdk.ImageProgress)) (sdk.Image, error) {
		return clientOf(url).CreateImage(t.Context(), sdk.ImageOptions{
			Name: "made", From: "tiny", ImageSteps: sdk.ImageSteps{Run: []string{command}}, Progress: hear,
		})
	}
	_, err = build("echo waiting; sleep 1000", func(p sdk.ImageProgress) {
		if strings.Contains(string(p.Printed), "waiting") {
			if err := h.kill(); err != nil {
				t.Error(err)
			}
		}
	})
	if !errors.Is(err, sdk.Unavailable) {
		t.Errorf("the build ended with %v, want unavailable", err)
	}
	if url, err = h.start(nil); err != nil {
		t.Fatal(err)
	}
	c := clientOf(url)
	// Answered once the daemon has undone what the one before left.
	if status, text := call(t, "GET", url+"/v1/sandboxes?status=running", ""); status != http.StatusOK || strings.Contains(text, `"id"`) {
		t.Errorf("sandboxes: %d %s, want none that runs", status, text)
	}
	if list, err := c.Images(t.Context()); err != nil || len(list) != 1 || list[0].Name != "tiny" {
		t.Errorf("images: %+v, %v, want tiny alone", list, err)
	}
	for _, dir := range []string{h.Dir, images} {
		for _, mount := range harness.MountsBelow(dir) {
			if !harness.OwnMount(mount) {
				t.Errorf("mounted: %s", mount)
			}
		}
	}
	for _, pattern := range []string{filepath.Join(images, ".tmp-*"), filepath.Join(images, "pins", "*"), filepath.Join(h.Dir, "run", "oci", "01*")} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	}
	img, err := build("echo 1 > /opt/v", nil)
	if err != nil || img.Definition == nil || img.Source != "build made from tiny" {
		t.Fatalf("the next build = %+v, %v", img, err)
	}
	if v, err := os.ReadFile(filepath.Join(images, img.Digest, "rootfs", "opt", "v")); err != nil || string(v) != "1\n" {
		t.Errorf("/opt/v is %q, %v", v, err)
	}
	if status, text := call(t, "POST", url+"/v1/images", `{"name":"x","from":"tiny","apt":["jq"]}`); status != http.StatusConflict || !strings.Contains(text, "recipe") {
		t.Errorf("apt in an image without a recipe = %d %s", status, text)
	}
	if err := c.RemoveImage(t.Context(), "made"); err != nil {
		t.Errorf("RemoveImage = %v", err)
	}
	if err := c.RemoveImage(t.Context(), "made"); !errors.Is(err, sdk.NotFound) {
		t.Errorf("the second RemoveImage = %v, want not found", err)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
}
