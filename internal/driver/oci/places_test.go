package oci

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func placesIn(data string) places {
	return places{data: data, images: filepath.Join(data, "images"), runtimes: filepath.Join(data, "runtimes")}
}

// moved is a sample note whose paths lie below another directory than /data.
func movedNote(data string) note {
	n := sampleNote(sandbox.GVisor, runsc)
	n.Runtime = program{Kind: runsc, Path: "/data/runtimes/2/runsc", Digest: "2"}
	_ = n.each(func(path string) (string, error) {
		if rest, ok := strings.CutPrefix(path, "/data/"); ok {
			return filepath.Join(data, rest), nil
		}
		return path, nil
	})
	n.Version = handleVersion
	return n
}

// TestANoteHasNoPathOfTheDataDirectory: a data directory can move with what is noted in it.
func TestANoteHasNoPathOfTheDataDirectory(t *testing.T) {
	n := movedNote("/data")
	h, err := placesIn("/data").handle(n)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(h), "/data") {
		t.Errorf("the note has the path of the data directory: %s", h)
	}
	got, err := placesIn("/elsewhere").parse(h)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(movedNote("/elsewhere"), got); d != "" {
		t.Errorf("after a move: -want +got\n%s", d)
	}
	// The directory of images lies outside, and moves by itself.
	p := placesIn("/elsewhere")
	p.images = "/images"
	want := movedNote("/elsewhere")
	want.Rootfs = "/images/abc/rootfs"
	if got, err = p.parse(h); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("with images elsewhere: %v\n%s", err, cmp.Diff(want, got))
	}
}

// TestAnOldNoteMoves: versions 1 and 2 had absolute paths.
func TestAnOldNoteMoves(t *testing.T) {
	for name, h := range map[string]driver.Handle{"1": handleV1(t, "shared"), "2": asVersion2(t, movedNote("/data"))} {
		stays, err := placesIn("/data").parse(h)
		if err != nil {
			t.Fatal(err)
		}
		moved, err := placesIn("/elsewhere").parse(h)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range moved.Volumes {
			if want := strings.Replace(stays.Volumes[i].Dir, "/data/", "/elsewhere/", 1); v.Dir != want {
				t.Errorf("version %s: volume %s, want %s", name, v.Dir, want)
			}
		}
		if !strings.HasPrefix(moved.Init.Path, "/elsewhere/runtimes/") || !strings.HasPrefix(moved.Rootfs, "/elsewhere/images/") {
			t.Errorf("version %s: program %s, image %s", name, moved.Init.Path, moved.Rootfs)
		}
		if stays.Runtime.Digest == "" && moved.Runtime.Path != stays.Runtime.Path {
			t.Errorf("version %s: the host's runtime moved to %s", name, moved.Runtime.Path)
		}
	}
}

// TestAnOldNoteFindsItsImage: the directory of images was none of the data directory's.
func TestAnOldNoteFindsItsImage(t *testing.T) {
	p := placesIn("/data")
	p.images = t.TempDir()
	image := filepath.Join(p.images, "abc", "rootfs")
	if err := os.MkdirAll(image, 0o755); err != nil {
		t.Fatal(err)
	}
	n := movedNote("/data")
	n.Rootfs = "/gone/images/abc/rootfs"
	if got, err := p.parse(asVersion2(t, n)); err != nil || got.Rootfs != image {
		t.Errorf("image %s, %v; want %s", got.Rootfs, err, image)
	}
}

func TestMalformedPlaces(t *testing.T) {
	for _, path := range []string{"", "relative", "data:../../etc", "data:", "data:/etc", "data:a//b", "nowhere:a", "/a/../b"} {
		if got, err := placesIn("/data").found(path); errs.KindOf(err) != errs.Invalid {
			t.Errorf("found(%q) = %q, %v; want invalid", path, got, err)
		}
	}
	if got, err := (places{}).found("data:disks"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("without a place: %q, %v; want invalid", got, err)
	}
}

// asVersion2 is a note as version 2 wrote it.
func asVersion2(t *testing.T, n note) driver.Handle {
	t.Helper()
	n.Version = 2
	h, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
