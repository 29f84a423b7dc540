package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree/filetreetest"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/guestd"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// filesOverTheChannel is a real agent behind a real client; a path map stands
// in for the sandbox's mounts.
func filesOverTheChannel(t testing.TB, workspace, home string) *guest.Client {
	t.Helper()
	server := guestd.New(guestd.Config{
		Boot: &guestv1.Boot{},
		MapPath: func(name string) string {
			for from, to := range map[string]string{"/workspace": workspace, "/home/sandbox": home} {
				if rest, ok := strings.CutPrefix(name, from); ok && (rest == "" || rest[0] == '/') {
					return filepath.Join(to, rest)
				}
			}
			return name
		},
	})
	dir, err := os.MkdirTemp("", "cubby")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: server.Handler()}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	c := guest.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	})
	t.Cleanup(func() {
		c.Close()
		hs.Close()
		<-served
	})
	return c
}

func filesEnv(t *testing.T) filetreetest.Env {
	workspace, home := filetreetest.Dirs(t)
	return filetreetest.Env{Files: filesOverTheChannel(t, workspace, home), Workspace: workspace, Home: home}
}

func TestFiles(t *testing.T)        { filetreetest.Run(t, filesEnv) }
func TestFilesAttacks(t *testing.T) { filetreetest.Attacks(t, filesEnv) }

// An answer must arrive while the body is still being sent, however much of
// it there is.
func TestUploadErrorIsNotABrokenPipe(t *testing.T) {
	e := filesEnv(t)
	for range 20 {
		body := io.LimitReader(neverEnding('x'), 1<<40)
		_, err := e.Write(t.Context(), "/workspace", body, sandbox.FileWrite{})
		if !errors.Is(err, errs.Invalid) {
			t.Fatalf("Write of a terabyte to a directory = %v, want invalid", err)
		}
		err = e.Extract(t.Context(), "/workspace", neverEnding('x'), "")
		if !errors.Is(err, errs.Invalid) {
			t.Fatalf("Extract of what is no tar and never ends = %v, want invalid", err)
		}
	}
}

type neverEnding byte

func (c neverEnding) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c)
	}
	return len(b), nil
}

// Files of /proc say that they are empty.
func TestReadOfAFileWithoutASize(t *testing.T) {
	e := filesEnv(t)
	r, f, err := e.Read(t.Context(), "/proc/version", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || !bytes.HasPrefix(b, []byte("Linux")) || f.Size != 0 {
		t.Errorf("Read(/proc/version) = %.20q of size %d, %v", b, f.Size, err)
	}
}

func TestDevicesAreNotOpened(t *testing.T) {
	e := filesEnv(t)
	for _, name := range []string{"/dev/zero", "/dev/null", "/dev/tty"} {
		if _, _, err := e.Read(t.Context(), name, 0, -1); !errors.Is(err, errs.Invalid) {
			t.Errorf("Read(%s) = %v, want invalid", name, err)
		}
		if _, err := e.Write(t.Context(), name, strings.NewReader("x"), sandbox.FileWrite{}); !errors.Is(err, errs.Invalid) {
			t.Errorf("Write(%s) = %v, want invalid", name, err)
		}
	}
}

func TestWatch(t *testing.T) {
	e := filesEnv(t)
	c := e.Files.(*guest.Client)
	if _, err := e.MakeDir(t.Context(), "/workspace/old/deep", 0, true, ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Each step is taken when the one before it was reported.
	steps := []struct {
		do   func() error
		want string
	}{
		{func() error { return os.WriteFile(filepath.Join(e.Workspace, "a"), []byte("x"), 0o644) }, "write /workspace/a"},
		{func() error { return os.WriteFile(filepath.Join(e.Workspace, "old/deep/b"), nil, 0o644) }, "create /workspace/old/deep/b"},
		{func() error { return os.MkdirAll(filepath.Join(e.Workspace, "new/er"), 0o755) }, "create /workspace/new/er"},
		{func() error { return os.WriteFile(filepath.Join(e.Workspace, "new/er/c"), nil, 0o644) }, "create /workspace/new/er/c"},
		{func() error { return os.Chmod(filepath.Join(e.Workspace, "a"), 0o600) }, "chmod /workspace/a"},
		{func() error { return os.Rename(filepath.Join(e.Workspace, "a"), filepath.Join(e.Workspace, "z")) }, "create /workspace/z"},
		{func() error { return os.Remove(filepath.Join(e.Workspace, "z")) }, "remove /workspace/z"},
	}
	next := 0
	for change, err := range c.Watch(ctx, "/workspace", true) {
		if err != nil {
			t.Fatalf("Watch = %v while waiting for %q", err, steps[next-1].want)
		}
		if next > 0 && change.Op+" "+change.Path != steps[next-1].want {
			continue
		}
		if next == len(steps) {
			break
		}
		if err := steps[next].do(); err != nil {
			t.Fatal(err)
		}
		next++
	}
}

func TestWatchEndsWithItsDirectory(t *testing.T) {
	e := filesEnv(t)
	c := e.Files.(*guest.Client)
	if _, err := e.MakeDir(t.Context(), "/workspace/d", 0, true, ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last error
	for change, err := range c.Watch(ctx, "/workspace/d", false) {
		if change.Op == "ready" {
			if err := os.Remove(filepath.Join(e.Workspace, "d")); err != nil {
				t.Fatal(err)
			}
		}
		last = err
	}
	if !errors.Is(last, errs.NotFound) {
		t.Errorf("Watch of a directory that was removed ends with %v, want not found", last)
	}
	for _, err := range c.Watch(ctx, "/workspace/none", true) {
		if !errors.Is(err, errs.NotFound) {
			t.Errorf("Watch of nothing = %v, want not found", err)
		}
	}
}

// A host that does not keep up is told that it missed something.
func TestWatchReportsOverflow(t *testing.T) {
	e := filesEnv(t)
	c := e.Files.(*guest.Client)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for change, err := range c.Watch(ctx, "/workspace", false) {
		if err != nil {
			t.Fatalf("Watch = %v, want an overflow first", err)
		}
		if change.Op == "overflow" {
			return
		}
		if change.Op != "ready" {
			continue
		}
		// More than the kernel queues, while nobody reads.
		name := filepath.Join(e.Workspace, strings.Repeat("n", 200))
		for range 30_000 {
			if err := os.WriteFile(name, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func BenchmarkUpload100MB(b *testing.B) {
	c, _ := benchClient(b)
	data := bytes.Repeat([]byte("0123456789abcdef"), 100<<20/16)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := c.Write(b.Context(), "/workspace/f", bytes.NewReader(data), sandbox.FileWrite{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDownload100MB(b *testing.B) {
	c, workspace := benchClient(b)
	if err := os.WriteFile(filepath.Join(workspace, "f"), make([]byte, 100<<20), 0o644); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(100 << 20)
	for b.Loop() {
		r, _, err := c.Read(b.Context(), "/workspace/f", 0, -1)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

func benchClient(b *testing.B) (*guest.Client, string) {
	dir := b.TempDir()
	workspace, home := filepath.Join(dir, "w"), filepath.Join(dir, "h")
	for _, d := range []string{workspace, home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	return filesOverTheChannel(b, workspace, home), workspace
}
