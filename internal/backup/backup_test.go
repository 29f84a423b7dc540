package backup

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// tree is a directory with everything that a data directory can have.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	for _, step := range []func() error{
		func() error { return os.MkdirAll(filepath.Join(dir, "a/b"), 0o700) },
		func() error { return os.WriteFile(filepath.Join(dir, "a/plain"), []byte("plain"), 0o640) },
		func() error { return os.WriteFile(filepath.Join(dir, "a/empty"), nil, 0o600) },
		func() error { return os.Symlink("/nowhere", filepath.Join(dir, "a/link")) },
		func() error { return os.Link(filepath.Join(dir, "a/plain"), filepath.Join(dir, "a/b/again")) },
		func() error { return unix.Mkfifo(filepath.Join(dir, "a/pipe"), 0o600) },
		func() error { return sparse(filepath.Join(dir, "sparse")) },
		func() error { return os.Truncate(write(t, filepath.Join(dir, "hole")), 8<<20) },
		func() error { return os.Chtimes(filepath.Join(dir, "a/plain"), at, at) },
		func() error { return os.Chtimes(filepath.Join(dir, "a"), at, at) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sparse makes a file of 64 MiB with data at its beginning, in its middle and at its end.
func sparse(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, at := range []int64{0, 32<<20 + 4096, 64<<20 - 1000} {
		if _, err := f.WriteAt(bytes.Repeat([]byte("data"), 250), at); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

func backedUp(t *testing.T, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{CreatedAt: time.Now(), Version: "test", Without: []string{"images"}})
	if err == nil {
		err = w.Tree("data", dir, func(rel string) bool { return rel == "skipped" })
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	from, to := tree(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "skipped"), []byte("not wanted"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := backedUp(t, from)
	if len(data) > 1<<20 {
		t.Errorf("72 MiB of holes take %d bytes", len(data))
	}
	h, err := Unpack(to, bytes.NewReader(data))
	if err != nil || h.Version != "test" || len(h.Without) != 1 {
		t.Fatalf("Unpack = %+v, %v", h, err)
	}
	to = filepath.Join(to, "data")
	for _, name := range []string{".", "a", "a/b", "a/plain", "a/empty", "a/link", "a/b/again", "a/pipe", "sparse", "hole"} {
		var want, got unix.Stat_t
		if err := errors.Join(unix.Lstat(filepath.Join(from, name), &want), unix.Lstat(filepath.Join(to, name), &got)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want.Mode != got.Mode || want.Uid != got.Uid || want.Mtim != got.Mtim || want.Mode&unix.S_IFMT != unix.S_IFDIR && (want.Size != got.Size || want.Nlink != got.Nlink) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if want.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		a, errA := os.ReadFile(filepath.Join(from, name))
		b, errB := os.ReadFile(filepath.Join(to, name))
		if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s has other content: %v", name, err)
		}
		if got.Blocks > want.Blocks+8 {
			t.Errorf("%s takes %d blocks, want %d", name, got.Blocks, want.Blocks)
		}
	}
	if _, err := os.Lstat(filepath.Join(to, "skipped")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was skipped is there: %v", err)
	}
}

// TestDamageIsFound wherever it is.
func TestDamageIsFound(t *testing.T) {
	data := backedUp(t, tree(t))
	unpack := func(what string, data []byte) {
		t.Helper()
		if _, err := Unpack(t.TempDir(), bytes.NewReader(data)); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: Unpack = %v, want invalid", what, err)
		}
		if err := Copy(io.Discard, bytes.NewReader(data)); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: Copy = %v, want invalid", what, err)
		}
	}
	for at := 0; at < len(data); at += 97 {
		damaged := bytes.Clone(data)
		damaged[at] ^= 4
		unpack("a flipped bit", damaged)
	}
	for _, length := range []int{0, 1, 100, 512, 1024, len(data) / 2, len(data) - 66, len(data) - 65, len(data) - 1} {
		unpack("a piece", data[:length])
	}
	unpack("more than was written", append(bytes.Clone(data), 0))
	if err := Copy(io.Discard, bytes.NewReader(data)); err != nil {
		t.Errorf("Copy of what is whole: %v", err)
	}
}

// TestALaterFormatIsRefused before anything of it is unpacked.
func TestALaterFormatIsRefused(t *testing.T) {
	var out bytes.Buffer
	text, err := json.Marshal(Header{Format: FormatVersion + 1, Version: "99"})
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: HeaderName, Size: int64(len(text)), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	out.Write(make([]byte, 1024))
	if _, err := Unpack(t.TempDir(), &out); errs.KindOf(err) != errs.Unsupported || !strings.Contains(errs.Public(err).Hint, "99") {
		t.Errorf("Unpack = %v, want unsupported with the version", err)
	}
}

// TestAHostileBackup writes nothing outside of its directory.
func TestAHostileBackup(t *testing.T) {
	outside := t.TempDir()
	for name, entries := range map[string][]tar.Header{
		"a name above":          {{Name: "../escaped", Typeflag: tar.TypeReg}},
		"an absolute name":      {{Name: outside + "/escaped", Typeflag: tar.TypeReg}},
		"through a link":        {{Name: "link", Linkname: outside, Typeflag: tar.TypeSymlink}, {Name: "link/escaped", Typeflag: tar.TypeReg}},
		"a device in a link":    {{Name: "link", Linkname: outside, Typeflag: tar.TypeSymlink}, {Name: "link/escaped", Typeflag: tar.TypeFifo}},
		"a second name outside": {{Name: "again", Linkname: outside + "/there", Typeflag: tar.TypeLink}},
	} {
		var out bytes.Buffer
		w, err := NewWriter(&out, Header{})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range entries {
			if err := w.entry(&h, strings.NewReader("")); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Unpack(t.TempDir(), &out); err == nil {
			t.Errorf("%s was unpacked", name)
		}
		if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
			t.Errorf("%s: %v outside, %v", name, left, err)
		}
	}
}

func TestRestoreIsForEmptyDirectories(t *testing.T) {
	data := backedUp(t, tree(t))
	empty := t.TempDir()
	if _, err := Restore(empty, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(empty, "data/a/plain")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(empty, Unfinished)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of the unpacking is left: %v", err)
	}
	first, err := os.ReadFile(filepath.Join(empty, "instance.json"))
	if err != nil {
		t.Error(err)
	}
	if _, err := Restore(empty, bytes.NewReader(data)); errs.KindOf(err) != errs.Conflict {
		t.Errorf("Restore over what is there = %v, want a conflict", err)
	}
	if again, err := os.ReadFile(filepath.Join(empty, "instance.json")); err != nil || !bytes.Equal(again, first) {
		t.Errorf("what was there has changed: %v", err)
	}
	parent := t.TempDir()
	if _, err := Restore(filepath.Join(parent, "gone/new"), bytes.NewReader(data[:len(data)-100])); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Restore of a piece = %v, want invalid", err)
	}
	if left, err := os.ReadDir(filepath.Join(parent, "gone")); err != nil || len(left) > 0 {
		t.Errorf("left of that: %v, %v", left, err)
	}
}

func FuzzUnpack(f *testing.F) {
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{})
	if err == nil {
		err = w.entry(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 4}, strings.NewReader("data"))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add(mapOf([]piece{{0, 10}, {100, 10}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = Unpack(t.TempDir(), bytes.NewReader(data)) // it must end, and not panic
		to, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		_ = unfold(to, bytes.NewReader(data), 1<<20)
	})
}
