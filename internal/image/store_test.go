package image

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.chown = false
	s.sync = func(string) error { return nil } // slow, and no test pulls the plug
	return s
}

// importRoot imports a small root filesystem.
func importRoot(t *testing.T, s *Store, name, body string) Image {
	t.Helper()
	data := tarOf(t, file{name: "./"}, file{name: "usr/bin/sh", body: body, mode: 0o755}, file{name: "etc/passwd", body: "root"}, file{name: "usr/lib/deep/er/file", body: "x"})
	img, err := s.Import(t.Context(), bytes.NewReader(data), int64(len(data)), "t.tar", name, nil)
	if err != nil {
		t.Fatalf("Import = %v", err)
	}
	return img
}

// An image says when its recipe has changed since it was built.
func TestOutdated(t *testing.T) {
	s := openStore(t, t.TempDir())
	now, err := loadRecipe(s.recipes, "base")
	if err != nil {
		t.Fatal(err)
	}
	img := importRoot(t, s, "base", "1")
	for _, tt := range []struct {
		source, recipe string
		want           bool
	}{
		{"build base", now.key, false}, {"build base", "another", true}, {"build base", "", true},
		{"build something", "another", false}, {"import t.tar", "", false},
	} {
		dir := filepath.Join(s.dir, img.Digest)
		r, err := readRecord(dir)
		if err != nil {
			t.Fatal(err)
		}
		r.Source, r.Recipe = tt.source, tt.recipe
		if err := r.write(dir); err != nil {
			t.Fatal(err)
		}
		list, err := s.List(t.Context())
		if err != nil || len(list) != 1 || list[0].Outdated != tt.want {
			t.Errorf("%+v: List = %+v, %v", tt, list, err)
		}
		if old, err := s.Outdated(); err != nil || (len(old) == 1) != tt.want {
			t.Errorf("%+v: Outdated = %q, %v", tt, old, err)
		}
	}
}

func TestImportResolveList(t *testing.T) {
	s := openStore(t, t.TempDir())
	img := importRoot(t, s, "one", "1")
	if !isDigest(img.Digest) || img.Name != "one" || img.Damaged || img.Size <= 0 || img.Source != "import t.tar" {
		t.Errorf("Import = %+v", img)
	}
	for _, name := range []string{"one", "one:latest", img.Digest, img.Digest[:12], "sha256:" + img.Digest} {
		got, err := s.Resolve(t.Context(), name)
		if err != nil || got.Digest != img.Digest || got.Dir != img.Dir {
			t.Errorf("Resolve(%q) = %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{"two", "", "../one", img.Digest[:11], strings.Repeat("0", 64)} {
		_, err := s.Resolve(t.Context(), name)
		if !errors.Is(err, errs.NotFound) || errs.Public(err).Hint == "" {
			t.Errorf("Resolve(%q) = %v, want not found with a hint", name, err)
		}
	}
	_, err := s.Resolve(t.Context(), "base")
	if hint := errs.Public(err).Hint; !strings.Contains(hint, "cubby image build base") {
		t.Errorf("hint for base = %q", hint)
	}

	same := importRoot(t, s, "same", "1")
	other := importRoot(t, s, "other", "2")
	if same.Digest != img.Digest || other.Digest == img.Digest {
		t.Errorf("digests: %s, %s, %s; want equal trees equal and others not", img.Digest, same.Digest, other.Digest)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 3 || list[0].Name != "one" || list[1].Name != "other" || list[2].Name != "same" {
		t.Errorf("List = %+v, %v", list, err)
	}
	if entries, _ := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*")); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestAnImageDirectoryBehindALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "real"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	img := importRoot(t, openStore(t, link), "one", "1")
	got, err := filepath.EvalSymlinks(img.Dir)
	if err != nil || got != img.Dir {
		t.Errorf("Dir = %s, which leads to %s, %v; runtimes refuse links", img.Dir, got, err)
	}
}

func TestMountTargetsExist(t *testing.T) {
	s := openStore(t, t.TempDir())
	img := importRoot(t, s, "one", "1")
	for _, target := range driver.MountTargets() {
		info, err := os.Lstat(filepath.Join(img.Dir, target.Path))
		if err != nil || info.IsDir() != target.Dir || !target.Dir && !info.Mode().IsRegular() {
			t.Errorf("%s: %v, %v, want a directory: %v", target.Path, info, err, target.Dir)
		}
	}
}

// Mount targets that an image has as links are replaced: a mount must not land
// elsewhere.
func TestMountTargetsAreNoLinks(t *testing.T) {
	s := openStore(t, t.TempDir())
	data := tarOf(t, file{name: "bin/sh"}, file{name: "etc/resolv.conf", kind: '2', link: "/run/x"}, file{name: "workspace", kind: '2', link: "/etc"})
	img, err := s.Import(t.Context(), bytes.NewReader(data), 0, "t", "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"etc/resolv.conf", "workspace"} {
		if info, err := os.Lstat(filepath.Join(img.Dir, p)); err != nil || info.Mode()&os.ModeSymlink != 0 {
			t.Errorf("%s = %v, %v, want no link", p, info, err)
		}
	}
}

// Every kind of damage is seen before an image is used.
func TestDamage(t *testing.T) {
	tests := []struct {
		name   string
		fresh  bool // seen by a process that has not looked at the image before
		damage func(t *testing.T, s *Store, img Image) error
	}{
		{"directory gone", false, func(_ *testing.T, s *Store, img Image) error { return os.RemoveAll(filepath.Join(s.dir, img.Digest)) }},
		{"rootfs gone", false, func(_ *testing.T, _ *Store, img Image) error { return os.RemoveAll(img.Dir) }},
		{"program gone", false, func(_ *testing.T, _ *Store, img Image) error { return os.Remove(filepath.Join(img.Dir, "usr/bin/sh")) }},
		{"file added", false, func(_ *testing.T, _ *Store, img Image) error {
			return os.WriteFile(filepath.Join(img.Dir, "etc/extra"), nil, 0o600)
		}},
		{"mount target gone", false, func(_ *testing.T, _ *Store, img Image) error { return os.Remove(filepath.Join(img.Dir, "workspace")) }},
		{"record gone", false, func(_ *testing.T, s *Store, img Image) error {
			return os.Remove(filepath.Join(s.dir, img.Digest, recordName))
		}},
		{"record cut off", false, func(_ *testing.T, s *Store, img Image) error {
			return os.Truncate(filepath.Join(s.dir, img.Digest, recordName), 20)
		}},
		{"file emptied", true, func(_ *testing.T, _ *Store, img Image) error {
			return os.Truncate(filepath.Join(img.Dir, "usr/bin/sh"), 0)
		}},
		{"mode changed", true, func(_ *testing.T, _ *Store, img Image) error {
			return os.Chmod(filepath.Join(img.Dir, "usr/bin/sh"), 0o600)
		}},
		{"deep file gone", true, func(_ *testing.T, _ *Store, img Image) error {
			return os.Remove(filepath.Join(img.Dir, "usr/lib/deep/er/file"))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			img := importRoot(t, s, "one", "1")
			if err := tt.damage(t, s, img); err != nil {
				t.Fatal(err)
			}
			if tt.fresh {
				s = openStore(t, s.dir)
			}
			_, err := s.Resolve(t.Context(), "one")
			if !errors.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "damaged") || errs.Public(err).Hint == "" {
				t.Errorf("Resolve = %v, want unavailable: damaged, with a hint", err)
			}
			list, err := s.List(t.Context())
			if err != nil || len(list) != 1 || !list[0].Damaged || list[0].Problem == "" {
				t.Errorf("List = %+v, %v, want one damaged", list, err)
			}
			if again := importRoot(t, s, "one", "1"); again.Damaged {
				t.Errorf("importing again = %+v, want it repaired", again)
			}
			if _, err := s.Resolve(t.Context(), "one"); err != nil {
				t.Errorf("Resolve after importing again = %v", err)
			}
		})
	}
}

func TestVerifyReadsContents(t *testing.T) {
	s := openStore(t, t.TempDir())
	img := importRoot(t, s, "one", "1")
	if _, err := s.Verify(t.Context(), "one", nil); err != nil {
		t.Fatalf("Verify = %v", err)
	}
	// The same size and times, other content: only reading it tells.
	p := filepath.Join(img.Dir, "usr/bin/sh")
	info, err := os.Stat(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte("2"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(p, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(t.Context(), "one", nil); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Verify = %v, want unavailable", err)
	}
}

func TestDamagedNames(t *testing.T) {
	s := openStore(t, t.TempDir())
	importRoot(t, s, "one", "1")
	if err := os.WriteFile(filepath.Join(s.dir, namesName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(t.Context()); !errors.Is(err, errs.Unavailable) {
		t.Errorf("List = %v, want unavailable: unreadable is not empty", err)
	}
	if _, err := s.Sweep(t.Context(), nil); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Sweep = %v, want unavailable", err)
	}
	if all, _ := s.digests(); len(all) != 1 {
		t.Errorf("%d images left, want 1", len(all))
	}
}

func TestRemove(t *testing.T) {
	s := openStore(t, t.TempDir())
	img := importRoot(t, s, "one", "1")
	importRoot(t, s, "two", "1")
	ctx := t.Context()
	if err := s.Pin(ctx, img.Digest, "box"); err != nil {
		t.Fatal(err)
	}
	if pins, err := s.Pins(ctx); err != nil || len(pins) != 1 || pins[0] != (Pin{img.Digest, "box"}) {
		t.Errorf("Pins = %v, %v", pins, err)
	}
	if err := s.Remove(ctx, "one", nil); err != nil {
		t.Errorf("Remove of one of two names = %v", err)
	}
	if err := s.Remove(ctx, "two", nil); !errors.Is(err, errs.WrongState) {
		t.Errorf("Remove of a pinned image = %v, want wrong state", err)
	}
	if err := s.Unpin(ctx, img.Digest, "box"); err != nil {
		t.Fatal(err)
	}
	if err := s.Unpin(ctx, img.Digest, "box"); err != nil {
		t.Errorf("second Unpin = %v", err)
	}
	if err := s.Remove(ctx, "two", func(d string) bool { return d == img.Digest }); !errors.Is(err, errs.WrongState) {
		t.Errorf("Remove of an image in use = %v, want wrong state", err)
	}
	if _, err := s.Resolve(ctx, "two"); err != nil {
		t.Errorf("Resolve after a refused Remove = %v", err)
	}
	if err := s.Remove(ctx, "two", nil); err != nil {
		t.Errorf("Remove = %v", err)
	}
	if err := s.Remove(ctx, "two", nil); !errors.Is(err, errs.NotFound) {
		t.Errorf("second Remove = %v, want not found", err)
	}
	if err := s.Pin(ctx, img.Digest, "box"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Pin of what is gone = %v, want not found", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if n := e.Name(); n != ".lock" && n != namesName && n != pinsName {
			t.Errorf("left behind: %s", n)
		}
	}
}

func TestSweep(t *testing.T) {
	s := openStore(t, t.TempDir())
	ctx := t.Context()
	pinned := importRoot(t, s, "one", "1")
	if err := s.Pin(ctx, pinned.Digest, sandbox.NewUID()); err != nil {
		t.Fatal(err)
	}
	used := importRoot(t, s, "one", "2")
	loose := importRoot(t, s, "one", "3")
	named := importRoot(t, s, "one", "4")
	if n, err := s.Sweep(ctx, func(d string) bool { return d == used.Digest }); err != nil || n != loose.Size {
		t.Errorf("Sweep = %d, %v, want %d bytes", n, err, loose.Size)
	}
	for _, img := range []Image{pinned, used, named} {
		if _, err := s.Resolve(ctx, img.Digest); err != nil {
			t.Errorf("Resolve(%s) after Sweep = %v", img.Digest, err)
		}
	}
	if _, err := s.Resolve(ctx, loose.Digest); !errors.Is(err, errs.NotFound) {
		t.Errorf("Resolve of a swept image = %v, want not found", err)
	}
}

// What a killed process leaves is cleared away; what a living one works on is
// not.
func TestStaleStages(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	alive, err := s.newStage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer alive.discard()
	dead, err := s.newStage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dead.unlock()
	openStore(t, dir)
	if _, err := os.Stat(alive.dir); err != nil {
		t.Errorf("the living stage: %v", err)
	}
	if _, err := os.Stat(dead.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead stage: %v, want none", err)
	}
}

// Several stores on one directory, as several processes would have: no name is
// lost and nothing is half there.
func TestConcurrentStores(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	const n = 8
	for i := range n {
		s := openStore(t, dir)
		wg.Go(func() {
			name := "img" + string(rune('a'+i))
			importRoot(t, s, name, string(rune('a'+i/2))) // pairs are equal
			if _, err := s.Resolve(context.Background(), name); err != nil {
				t.Errorf("Resolve(%s) = %v", name, err)
			}
		})
	}
	wg.Wait()
	list, err := openStore(t, dir).List(t.Context())
	if err != nil || len(list) != n {
		t.Errorf("List = %d images, %v, want %d", len(list), err, n)
	}
	for _, img := range list {
		if img.Damaged {
			t.Errorf("%s is damaged: %s", img.Name, img.Problem)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"base": true, "python:3.12-slim": true, "ghcr.io/acme/tool": true, "a": true,
		"": false, "-a": false, "a-": false, "a//b": false, "a b": false, "a\n": false, "é": false,
		strings.Repeat("a", 201): false, strings.Repeat("a", 64): false,
	} {
		if err := checkName(name); (err == nil) != ok {
			t.Errorf("checkName(%q) = %v, want ok: %v", name, err, ok)
		}
	}
}

func TestFullDisk(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.limits.reserve = 1 << 60
	data := tarOf(t, file{name: "bin/sh"})
	if _, err := s.Import(t.Context(), bytes.NewReader(data), 0, "t", "one", nil); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Import = %v, want exhausted", err)
	}
}

func TestNoDirectoryIsNotTheWorkingOne(t *testing.T) {
	if _, err := Open("", nil); err == nil {
		t.Error("images are kept in a directory without a name")
	}
}

// An image with such a directory was built, and damaged from then on.
func TestDirectoryWhoseNameIsNotUTF8(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	root := tarOf(t, file{name: "bin/sh", body: "sh", mode: 0o755}, file{name: "caf\xe9/menu", body: "tea"})
	got, err := s.Import(t.Context(), bytes.NewReader(root), 0, "odd.tar", "odd", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{s, openStore(t, dir)} {
		if again, err := s.Resolve(t.Context(), "odd"); err != nil || again.Digest != got.Digest {
			t.Errorf("Resolve = %+v, %v", again, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(got.Dir, "caf\xe9", "menu")); err != nil || string(text) != "tea" {
		t.Errorf("the file in it: %q, %v", text, err)
	}
}
