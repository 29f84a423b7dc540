package filetree

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "/", "a", "../a", "/workspace/../../etc", "a//b/./c/", "a\x00b", "\xff", strings.Repeat("n/", 3000), strings.Repeat("n", 256)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Clean(s)
		if err != nil {
			if got != "" {
				t.Errorf("Clean(%q) = %q with an error", s, got)
			}
			return
		}
		if !path.IsAbs(got) || path.Clean(got) != got || strings.ContainsRune(got, 0) || !utf8.ValidString(got) {
			t.Errorf("Clean(%q) = %q, want a clean absolute name", s, got)
		}
		if again, err := Clean(got); err == nil && again != got {
			t.Errorf("Clean(Clean(%q)) = %q, want %q", s, again, got)
		}
	})
}

func FuzzEntryName(f *testing.F) {
	for _, s := range []string{"", ".", "./", "/", "a/../b", "..", "a/..", "../../x", "a//b", "a\x00", "...", "..a/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := entryName(s)
		if err == nil && (path.IsAbs(got) || got == ".." || strings.HasPrefix(got, "../") || path.Clean(got) != got) {
			t.Errorf("entryName(%q) = %q, want a name below", s, got)
		}
	})
}

// memoryDir is a directory in memory where the host has one: extraction ends
// with a sync, and a real disk would be all that is measured.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "cubby")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// FuzzExtract unpacks anything and looks whether something appeared or changed
// beside the directory that it was unpacked into.
func FuzzExtract(f *testing.F) {
	for _, headers := range [][]tar.Header{
		{{Name: "a"}, {Name: "d/", Typeflag: tar.TypeDir}, {Name: "d/b"}},
		{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../beside"}, {Name: "l/x"}},
		{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../beside/kept"}, {Name: "h"}},
		{{Name: "../x"}, {Name: "/x"}},
		{{Name: "p", Typeflag: tar.TypeFifo}},
		{{Name: strings.Repeat("long/", 60) + "x", Format: tar.FormatPAX}},
		{{Name: strings.Repeat("n", 200), Format: tar.FormatGNU}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if h.Typeflag == 0 {
				h.Typeflag, h.Size = tar.TypeReg, 3
			}
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				_, _ = w.Write([]byte("new"))
			}
		}
		w.Close()
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := memoryDir(t)
		beside := filepath.Join(dir, "workspace", "beside")
		if err := os.MkdirAll(beside, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(beside, "kept"), []byte("kept"), 0o644); err != nil {
			t.Fatal(err)
		}
		tree := Confined(Options{}, Mount{Path: "/workspace", Dir: filepath.Join(dir, "workspace")})
		// The same twice: the second time finds the first one's links.
		for range 2 {
			_ = tree.Extract(t.Context(), "/workspace/in", io.LimitReader(bytes.NewReader(data), 1<<20), "")
		}
		var found []string
		err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(dir, p)
			if strings.HasPrefix(rel, "workspace/in") {
				if !e.Type().IsRegular() && !e.IsDir() && e.Type() != fs.ModeSymlink {
					t.Errorf("extracted %s of type %v", rel, e.Type())
				}
				return nil
			}
			found = append(found, rel)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := ". workspace workspace/beside workspace/beside/kept"
		if got := strings.Join(found, " "); got != want {
			t.Errorf("beside the target there is %q, want %q", got, want)
		}
		if b, err := os.ReadFile(filepath.Join(beside, "kept")); string(b) != "kept" {
			t.Errorf("the file beside holds %q, %v", b, err)
		}
	})
}
