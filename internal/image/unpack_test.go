package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
)

// file is one entry of a test's tar.
type file struct {
	name, body, link string
	kind             byte // 0: by the name's last slash
	mode             int64
}

func tarOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{
			Name: f.name, Linkname: f.link, Typeflag: f.kind, Mode: f.mode, Size: int64(len(f.body)),
			Uid: os.Getuid(), Gid: os.Getgid(), ModTime: time.Unix(1_600_000_000, 0),
		}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			if strings.HasSuffix(f.name, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		if h.Mode == 0 {
			h.Mode = 0o644
			if h.Typeflag == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpackAll unpacks layers into a directory with a bait beside it, and returns
// what is in it.
func unpackAll(t *testing.T, l limits, layers ...[]byte) (map[string]string, error) {
	t.Helper()
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := newUnpacker(filepath.Join(dir, "root"), l, false)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for _, layer := range layers {
		if err = u.layerTar(context.Background(), bytes.NewReader(layer), true, nil); err != nil {
			break
		}
	}
	if err == nil {
		err = u.finish()
	}
	if b, rerr := os.ReadFile(outside); rerr != nil || string(b) != "untouched" {
		t.Errorf("the file outside is %q, %v", b, rerr)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("outside are %v", entries)
	}
	return listing(t, filepath.Join(dir, "root")), err
}

func listing(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		switch {
		case d.IsDir():
			out[rel] = "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			out[rel] = "-> " + to
			return err
		default:
			b, err := os.ReadFile(p)
			out[rel] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUnpack(t *testing.T) {
	tests := []struct {
		name   string
		layers [][]file
		want   map[string]string
	}{
		{"files", [][]file{{{name: "./"}, {name: "./etc/"}, {name: "./etc/a", body: "1"}, {name: "/b", body: "2"}}},
			map[string]string{"etc": "/", "etc/a": "1", "b": "2"}},
		{"directories that nobody named", [][]file{{{name: "a/b/c", body: "1"}}},
			map[string]string{"a": "/", "a/b": "/", "a/b/c": "1"}},
		{"a later entry wins", [][]file{{{name: "a", body: "1"}, {name: "a", body: "2"}}},
			map[string]string{"a": "2"}},
		{"links", [][]file{{{name: "a", body: "1"}, {name: "b", kind: tar.TypeLink, link: "a"}, {name: "c", kind: tar.TypeSymlink, link: "/a"}}},
			map[string]string{"a": "1", "b": "1", "c": "-> /a"}},
		{"a hard link into a lower layer", [][]file{{{name: "a", body: "1"}}, {{name: "d/b", kind: tar.TypeLink, link: "/a"}}},
			map[string]string{"a": "1", "d": "/", "d/b": "1"}},
		{"writing to one name of a hard link", [][]file{{{name: "a", body: "1"}, {name: "b", kind: tar.TypeLink, link: "a"}}, {{name: "b", body: "2"}}},
			map[string]string{"a": "1", "b": "2"}},
		{"through a link to a directory", [][]file{{{name: "usr/bin/"}, {name: "bin", kind: tar.TypeSymlink, link: "usr/bin"}}, {{name: "bin/sh", body: "1"}}},
			map[string]string{"usr": "/", "usr/bin": "/", "usr/bin/sh": "1", "bin": "-> usr/bin"}},
		{"through an absolute link", [][]file{{{name: "run/"}, {name: "var/run", kind: tar.TypeSymlink, link: "/run"}}, {{name: "var/run/pid", body: "1"}}},
			map[string]string{"run": "/", "run/pid": "1", "var": "/", "var/run": "-> /run"}},
		{"through a link whose target climbs above the root", [][]file{{{name: "l", kind: tar.TypeSymlink, link: "../../../../d"}, {name: "l/f", body: "1"}}},
			map[string]string{"l": "-> ../../../../d", "d": "/", "d/f": "1"}},
		{"a whiteout", [][]file{{{name: "d/a", body: "1"}, {name: "d/b", body: "2"}}, {{name: "d/.wh.a"}}},
			map[string]string{"d": "/", "d/b": "2"}},
		{"a whiteout of a directory", [][]file{{{name: "d/e/a", body: "1"}, {name: "f", body: "2"}}, {{name: ".wh.d"}}},
			map[string]string{"f": "2"}},
		{"a whiteout through a link", [][]file{{{name: "usr/lib/a", body: "1"}, {name: "lib", kind: tar.TypeSymlink, link: "usr/lib"}}, {{name: "lib/.wh.a"}}},
			map[string]string{"usr": "/", "usr/lib": "/", "lib": "-> usr/lib"}},
		{"a whiteout of a link takes the link", [][]file{{{name: "a", body: "1"}, {name: "l", kind: tar.TypeSymlink, link: "a"}}, {{name: ".wh.l"}}},
			map[string]string{"a": "1"}},
		{"a whiteout of nothing", [][]file{{{name: "a", body: "1"}}, {{name: ".wh.x"}, {name: "y/.wh.z"}}},
			map[string]string{"a": "1", "y": "/"}},
		{"an opaque directory", [][]file{{{name: "d/a", body: "1"}, {name: "d/s/b", body: "2"}}, {{name: "d/s/c", body: "3"}, {name: "d/.wh..wh..opq"}, {name: "d/n", body: "4"}}},
			map[string]string{"d": "/", "d/s": "/", "d/s/c": "3", "d/n": "4"}},
		{"bookkeeping of aufs", [][]file{{{name: "a", body: "1"}, {name: ".wh..wh.plnk/"}, {name: ".wh..wh.aufs"}}},
			map[string]string{"a": "1"}},
		{"a directory over a link", [][]file{{{name: "l", kind: tar.TypeSymlink, link: "/etc"}, {name: "etc/"}}, {{name: "l/"}, {name: "l/a", body: "1"}}},
			map[string]string{"l": "/", "l/a": "1", "etc": "/"}},
		{"a file over a directory", [][]file{{{name: "d/a", body: "1"}}, {{name: "d", body: "2"}}},
			map[string]string{"d": "2"}},
		{"devices and FIFOs are left out", [][]file{{{name: "dev/null", kind: tar.TypeChar}, {name: "dev/sda", kind: tar.TypeBlock}, {name: "p", kind: tar.TypeFifo}, {name: "a", body: "1"}}},
			map[string]string{"a": "1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tt.layers {
				layers = append(layers, tarOf(t, l...))
			}
			got, err := unpackAll(t, defaultLimits(), layers...)
			if err != nil {
				t.Fatalf("unpack = %v", err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("tree (-want +got):\n%s", d)
			}
		})
	}
}

// Every one of these tries to write outside, or to cost more than it may.
func TestUnpackRefuses(t *testing.T) {
	small := defaultLimits()
	small.bytes, small.entries, small.path, small.depth = 1000, 20, 200, 10
	many := make([]file, 30)
	for i := range many {
		many[i] = file{name: strings.Repeat("a", i+1)}
	}
	chain := []file{}
	for i := range 70 {
		chain = append(chain, file{name: "l" + strings.Repeat("x", i), kind: tar.TypeSymlink, link: "l" + strings.Repeat("x", i+1)})
	}
	tests := []struct {
		name  string
		kind  errs.Kind
		l     limits
		files []file
	}{
		{"dot-dot", errs.Invalid, small, []file{{name: "../outside", body: "x"}}},
		{"dot-dot inside", errs.Invalid, small, []file{{name: "a/../../outside", body: "x"}}},
		{"dot-dot that stays inside", errs.Invalid, small, []file{{name: "a/../b", body: "x"}}},
		{"hard link out", errs.Invalid, small, []file{{name: "a", kind: tar.TypeLink, link: "../outside"}}},
		{"hard link to nothing", errs.Invalid, small, []file{{name: "a", kind: tar.TypeLink, link: "outside"}}},
		{"hard link to a directory", errs.Invalid, small, []file{{name: "d/"}, {name: "a", kind: tar.TypeLink, link: "d"}}},
		{"whiteout of the parent", errs.Invalid, small, []file{{name: "d/.wh..", body: ""}}},
		{"whiteout of its directory", errs.Invalid, small, []file{{name: "d/.wh."}}},
		{"root as a file", errs.Invalid, small, []file{{name: ".", kind: tar.TypeReg, body: "x"}}},
		{"root as a link", errs.Invalid, small, []file{{name: ".", kind: tar.TypeSymlink, link: "/tmp"}}},
		{"link loop", errs.Invalid, small, []file{{name: "a", kind: tar.TypeSymlink, link: "b"}, {name: "b", kind: tar.TypeSymlink, link: "a"}, {name: "a/x"}}},
		{"long link chain", errs.Invalid, defaultLimits(), append(chain, file{name: "l/x"})},
		{"through a file", errs.Invalid, small, []file{{name: "a", body: "x"}, {name: "a/b", body: "x"}}},
		{"too many entries", errs.TooLarge, small, many},
		{"too many bytes", errs.TooLarge, small, []file{{name: "a", body: strings.Repeat("x", 600)}, {name: "b", body: strings.Repeat("x", 600)}}},
		{"path too long", errs.Invalid, small, []file{{name: strings.Repeat("a/", 120)}}},
		{"path too deep", errs.Invalid, small, []file{{name: strings.Repeat("a/", 12)}}},
		{"link without target", errs.Invalid, small, []file{{name: "a", kind: tar.TypeSymlink}}},
		{"unknown type", errs.Invalid, small, []file{{name: "a", kind: 'Z'}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := unpackAll(t, tt.l, tarOf(t, tt.files...)); !errors.Is(err, tt.kind) {
				t.Errorf("unpack = %v, want %v", err, tt.kind)
			}
		})
	}
}

// A link that leads out of the tree is harmless as a file of the image, and a
// write through it lands inside.
func TestUnpackWritesThroughLinksStayInside(t *testing.T) {
	for _, target := range []string{"/outside", "../outside", "../../../../../../outside", "/proc/self/cwd/outside"} {
		got, err := unpackAll(t, defaultLimits(),
			tarOf(t, file{name: "l", kind: tar.TypeSymlink, link: target}, file{name: "l", body: "replaced"}),
			tarOf(t, file{name: "m", kind: tar.TypeSymlink, link: target}, file{name: "m/f", body: "inside"}))
		if err != nil {
			t.Errorf("%s: %v", target, err)
		}
		if got["l"] != "replaced" {
			t.Errorf("%s: l = %q, want the file itself", target, got["l"])
		}
	}
}

func TestUnpackKeepsModesAndTimes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	u, err := newUnpacker(dir, defaultLimits(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	layer := tarOf(t, file{name: "tmp/", mode: 0o1777}, file{name: "su", body: "x", mode: 0o4755}, file{name: "ro/", mode: 0o500})
	if err := u.layerTar(t.Context(), bytes.NewReader(layer), true, nil); err != nil {
		t.Fatal(err)
	}
	if err := u.finish(); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{
		"tmp": fs.ModeDir | fs.ModeSticky | 0o777, "su": fs.ModeSetuid | 0o755, "ro": fs.ModeDir | 0o500,
	} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode() != mode || info.ModTime().Unix() != 1_600_000_000 {
			t.Errorf("%s: %v, %v, want mode %v and the archive's time", name, info, err, mode)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, file{name: "a/b", body: "1"}, file{name: "l", kind: tar.TypeSymlink, link: "../.."}, file{name: "l/x", body: "2"}))
	f.Add(tarOf(f, file{name: "d/.wh..wh..opq"}, file{name: "h", kind: tar.TypeLink, link: "a"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		l := defaultLimits()
		l.bytes, l.entries = 1<<20, 200
		u, err := newUnpacker(filepath.Join(dir, "root"), l, false)
		if err != nil {
			t.Fatal(err)
		}
		defer u.close()
		if u.layerTar(context.Background(), bytes.NewReader(data), true, nil) == nil {
			_ = u.finish()
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "root" }) {
			t.Fatalf("beside the root: %v, %v", entries, err)
		}
	})
}
