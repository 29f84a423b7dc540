package core_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Files of a running sandbox and of a stopped one answer alike.
func TestFiles(t *testing.T) {
	for _, state := range []string{"running", "stopped"} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			if state == "stopped" {
				if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
					t.Fatal(err)
				}
			}
			f, err := w.Files().Write(w.ctx, "a", "dir/file.txt", strings.NewReader("hello"), sandbox.FileWrite{Parents: true})
			if err != nil || f.Path != "/workspace/dir/file.txt" || f.Size != 5 || f.Mode != 0o644 {
				t.Fatalf("WriteFile = %+v, %v", f, err)
			}
			if f, err = w.Files().Write(w.ctx, "a", "dir/file.txt", strings.NewReader(" world"), sandbox.FileWrite{Append: true}); err != nil || f.Size != 11 {
				t.Errorf("append = %+v, %v", f, err)
			}
			if got := w.read("a", "/workspace/dir/file.txt", 6, 3); got != "wor" {
				t.Errorf("ReadFile of a range = %q", got)
			}
			if f, err := w.Files().Stat(w.ctx, "a", "dir", true); err != nil || f.Type != sandbox.Directory {
				t.Errorf("Stat = %+v, %v", f, err)
			}
			if _, err := w.Files().MakeDir(w.ctx, "a", "other/deep", 0, true); err != nil {
				t.Errorf("MakeDir: %v", err)
			}
			if _, err := w.Files().Move(w.ctx, "a", "dir/file.txt", "other/moved", false); err != nil {
				t.Errorf("MoveFile: %v", err)
			}
			var names []string
			for f, err := range w.Files().List(w.ctx, "a", "", true) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, f.Path)
			}
			slices.Sort(names)
			if want := []string{"/workspace/dir", "/workspace/other", "/workspace/other/deep", "/workspace/other/moved"}; !slices.Equal(names, want) {
				t.Errorf("ListFiles = %v, want %v", names, want)
			}
			if err := w.Files().Remove(w.ctx, "a", "dir", true); err != nil {
				t.Errorf("RemoveFile: %v", err)
			}
			if _, err := w.Files().Stat(w.ctx, "a", "dir", true); !errors.Is(err, errs.NotFound) {
				t.Errorf("Stat of what was removed = %v, want not found", err)
			}
			if _, err := w.Files().Stat(w.ctx, "a", "a\x00", true); !errors.Is(err, errs.Invalid) {
				t.Errorf("Stat of a NUL = %v, want invalid", err)
			}
			if _, _, err := w.Files().Read(w.ctx, "a", "other/moved", -1, -1); !errors.Is(err, errs.Invalid) {
				t.Errorf("ReadFile at -1 = %v, want invalid", err)
			}
			if state == "stopped" {
				if _, err := w.Files().Stat(w.ctx, "a", "/etc/passwd", true); err == nil {
					t.Error("a stopped sandbox showed a file of the host")
				}
				if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
					t.Fatal(err)
				}
				if got := w.sh("a", "cat other/moved"); string(got.Stdout) != "hello world" {
					t.Errorf("inside it reads %q", got.Stdout)
				}
			}
		})
	}
}

func (w *world) read(id, path string, offset, length int64) string {
	w.t.Helper()
	r, _, err := w.Files().Read(w.ctx, id, path, offset, length)
	if err != nil {
		w.t.Fatalf("ReadFile %s: %v", path, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		w.t.Fatalf("read %s: %v", path, err)
	}
	return string(b)
}

func TestArchiveRoundTrip(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", `mkdir -p src/sub src/empty; echo one > src/1; head -c 300000 /dev/urandom > src/sub/big; ln -s 1 src/link; chmod 755 src/1`)
	want := w.sh("a", "cd src; cat 1 sub/big | sha256sum; readlink link; stat -c %a 1; find . | sort").Stdout
	for _, format := range []sandbox.ArchiveFormat{sandbox.Tar, sandbox.TarGz} {
		r, err := w.Files().Archive(w.ctx, "a", "src", format)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		into := "into-" + strings.ReplaceAll(string(format), ".", "-")
		if _, err := w.Files().MakeDir(w.ctx, "a", into, 0, false); err != nil {
			t.Fatal(err)
		}
		if err := w.Files().Extract(w.ctx, "a", into, bytes.NewReader(body)); err != nil {
			t.Fatalf("Extract %s: %v", format, err)
		}
		base := into
		if names := tarNames(t, body); len(names) > 0 && strings.HasPrefix(names[0], "src") {
			base += "/src"
		}
		got := w.sh("a", "cd "+base+"; cat 1 sub/big | sha256sum; readlink link; stat -c %a 1; find . | sort").Stdout
		if !bytes.Equal(got, want) {
			t.Errorf("%s came back as\n%s\nwant\n%s", format, got, want)
		}
	}
	r, err := w.Files().Archive(w.ctx, "a", "src", sandbox.Zip)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range z.File {
		name := strings.TrimPrefix(f.Name, "src/")
		found[name] = true
		c, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(c)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		switch name {
		case "1":
			if string(content) != "one\n" || f.Mode().Perm() != 0o755 {
				t.Errorf("%s is %q, %s", f.Name, content, f.Mode())
			}
		case "link":
			if string(content) != "1" || f.Mode().Type() != os.ModeSymlink {
				t.Errorf("%s is %q, %s", f.Name, content, f.Mode())
			}
		}
	}
	for _, name := range []string{"1", "link", "sub/", "sub/big", "empty/"} {
		if !found[name] {
			t.Errorf("the zip has no %s: %v", name, found)
		}
	}
	if _, err := w.Files().Archive(w.ctx, "a", "src", "rar"); !errors.Is(err, errs.Invalid) {
		t.Errorf("Archive rar = %v, want invalid", err)
	}
	if _, err := w.Files().Archive(w.ctx, "a", "nowhere", sandbox.Zip); !errors.Is(err, errs.NotFound) {
		t.Errorf("Archive of nothing = %v, want not found", err)
	}
}

func tarNames(t *testing.T, body []byte) (names []string) {
	t.Helper()
	var r io.Reader = bytes.NewReader(body)
	if z, err := gzip.NewReader(r); err == nil {
		r = z
	} else {
		r = bytes.NewReader(body)
	}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err != nil {
			return names
		}
		names = append(names, h.Name)
	}
}

// A reader that goes away ends the archive's goroutine and the agent's work;
// goleak looks.
func TestArchiveThatNobodyReadsToItsEnd(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "mkdir src; head -c 5000000 /dev/urandom > src/big")
	for _, format := range []sandbox.ArchiveFormat{sandbox.Tar, sandbox.TarGz, sandbox.Zip} {
		r, err := w.Files().Archive(w.ctx, "a", "src", format)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestExtractOfRubbish(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	tw := tar.NewWriter(g)
	if err := tw.WriteHeader(&tar.Header{Name: "f", Size: 100000, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if _, err := tw.Write(bytes.Repeat([]byte("x"), 100000)); err != nil {
		t.Fatal(err)
	}
	g.Close()
	for name, body := range map[string][]byte{
		"text":          []byte("this is not a tar, but it is long enough to be looked at" + strings.Repeat("!", 600)),
		"cut gzip":      z.Bytes()[:z.Len()-20],
		"gzipped text":  {0x1f, 0x8b, 1, 2, 3},
		"climbing name": tarOf(t, "../../escape"),
	} {
		if err := w.Files().Extract(w.ctx, "a", ".", bytes.NewReader(body)); !errors.Is(err, errs.Invalid) && !errors.Is(err, errs.Forbidden) {
			t.Errorf("Extract of %s = %v, want invalid or forbidden", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(w.dir, "escape")); err == nil {
		t.Error("an entry escaped")
	}
}

func tarOf(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	if err := tw.WriteHeader(&tar.Header{Name: name, Size: 1, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if _, err := tw.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	tw.Close()
	return b.Bytes()
}

func TestDialOfAPort(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	l, err := net.Listen("tcp", "127.0.0.1:0") // the Fake shares the host's loopback
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c)
	}()
	c, err := w.Ports().Dial(w.ctx, "a", l.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("echo")); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); string(got) != "echo" {
		t.Errorf("read %q, %v", got, err)
	}
	for _, port := range []int{0, -1, 65536} {
		if _, err := w.Ports().Dial(w.ctx, "a", port); !errors.Is(err, errs.Invalid) {
			t.Errorf("Dial %d = %v, want invalid", port, err)
		}
	}
}

// The disk of a stopped sandbox is in use exactly as long as somebody reads.
func TestFilesOfAStoppedSandboxAreInUse(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.sh("a", "echo kept > file")
	if !w.disks.InUse(b.DiskUID) {
		t.Error("the disk of a running sandbox is not in use")
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if w.disks.InUse(b.DiskUID) {
		t.Error("the disk of a stopped sandbox is in use")
	}
	r, _, err := w.Files().Read(w.ctx, "a", "file", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if !w.disks.InUse(b.DiskUID) {
		t.Error("the disk of a file that is read is not in use")
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "kept\n" {
		t.Errorf("the file has %q, %v", got, err)
	}
	r.Close()
	if w.disks.InUse(b.DiskUID) {
		t.Error("the disk is in use after the reader was closed")
	}
}
