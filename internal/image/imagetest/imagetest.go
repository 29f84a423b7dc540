// Package imagetest makes small root filesystems for tests, out of the programs
// of a large one.
package imagetest

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Tiny is the tar of a root filesystem with programs of usr/bin below root, a
// directory of the host, the libraries that these need and a user named root.
func Tiny(t testing.TB, root string, programs ...string) []byte {
	t.Helper()
	tiny := &tiny{t: t, root: root, has: map[string]bool{}}
	tiny.tar = tar.NewWriter(&tiny.out)
	for _, dir := range []string{"usr/", "usr/bin/", "usr/sbin/", "usr/lib/", "etc/", "opt/"} {
		tiny.write(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		tiny.write(&tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: "usr/" + name}, nil)
	}
	tiny.write(&tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	for _, p := range programs {
		tiny.program("usr/bin/" + p)
	}
	if err := tiny.tar.Close(); err != nil {
		t.Fatal(err)
	}
	return tiny.out.Bytes()
}

type tiny struct {
	t    testing.TB
	root string
	out  bytes.Buffer
	tar  *tar.Writer
	has  map[string]bool
}

func (t *tiny) write(h *tar.Header, data []byte) {
	t.t.Helper()
	h.Size = int64(len(data))
	err := t.tar.WriteHeader(h)
	if err == nil {
		_, err = t.tar.Write(data)
	}
	if err != nil {
		t.t.Fatal(err)
	}
}

// program adds a file of the root, under its own name with the content that it
// leads to, and the libraries that it is linked with.
func (t *tiny) program(name string) {
	t.t.Helper()
	if t.has[name] {
		return
	}
	t.has[name] = true
	data, err := os.ReadFile(t.real(name))
	if err != nil {
		t.t.Fatal(err)
	}
	t.write(&tar.Header{Name: name, Mode: 0o755}, data)
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return // a script
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text := make([]byte, p.Filesz)
			if _, err := p.ReadAt(text, 0); err != nil {
				t.t.Fatal(err)
			}
			t.program("usr" + strings.TrimRight(string(text), "\x00")) // /lib64 is a link
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.t.Fatal(err)
	}
	for _, library := range libraries {
		t.program(t.library(library))
	}
}

// library finds a library by its name.
func (t *tiny) library(name string) string {
	t.t.Helper()
	for _, pattern := range []string{"usr/lib/*-linux-gnu", "usr/lib64", "usr/lib"} {
		found, err := filepath.Glob(filepath.Join(t.root, pattern, name))
		if err != nil {
			t.t.Fatal(err)
		}
		if len(found) > 0 {
			rel, err := filepath.Rel(t.root, found[0])
			if err != nil {
				t.t.Fatal(err)
			}
			return filepath.ToSlash(rel)
		}
	}
	t.t.Fatalf("no library %s below %s", name, t.root)
	return ""
}

// real follows the links of a name within the root.
func (t *tiny) real(name string) string {
	t.t.Helper()
	for range 16 {
		host := filepath.Join(t.root, name)
		info, err := os.Lstat(host)
		if err != nil {
			t.t.Fatal(err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return host
		}
		target, err := os.Readlink(host)
		if err != nil {
			t.t.Fatal(err)
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name), target)
		}
		name = strings.TrimPrefix(path.Clean(target), "/")
	}
	t.t.Fatalf("too many links at %s", name)
	return ""
}
