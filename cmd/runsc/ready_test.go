package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cmd/sandboxsetup"
	"gvisor.dev/gvisor/runsc/flag"
)

func memfd(t *testing.T, content string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// kernelSide calls a line as a kernel does.
func kernelSide(t *testing.T) (l *sentryLine, line int) {
	t.Helper()
	// Longer than the path of a socket may be.
	bundle := filepath.Join(t.TempDir(), strings.Repeat("b", 120))
	if err := os.Mkdir(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := openLine(bundle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	if line, err = dial(bundle); err != nil {
		t.Fatal(err)
	}
	if err := l.meet(); err != nil {
		t.Fatal(err)
	}
	return l, line
}

// TestStoresAreReplaced: what a kernel holds under the numbers that it was made with are
// the files that it was given.
func TestStoresAreReplaced(t *testing.T) {
	l, line := kernelSide(t)
	held := []*os.File{memfd(t, "nobody's root"), memfd(t, "nobody's tmp")}
	done := make(chan error, 1)
	go func() {
		err := replace(line, []int{int(held[0].Fd()), int(held[1].Fd())})
		_, _ = unix.Write(line, []byte{word})
		_ = unix.Close(line)
		done <- err
	}()
	if err := l.give([]*os.File{memfd(t, "root"), memfd(t, "tmp")}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"root", "tmp"} {
		if got, err := io.ReadAll(io.NewSectionReader(held[i], 0, 100)); string(got) != want {
			t.Errorf("store %d is %q, %v, want %q", i, got, err, want)
		}
	}
}

// TestAKernelWithoutItsFiles does not begin: its line ends, or brings others than it
// holds.
func TestAKernelWithoutItsFiles(t *testing.T) {
	t.Run("nobody gives them", func(t *testing.T) {
		l, line := kernelSide(t)
		defer unix.Close(line)
		l.close()
		if err := replace(line, []int{0}); err == nil {
			t.Error("it has files of nobody")
		}
	})
	t.Run("too few", func(t *testing.T) {
		l, line := kernelSide(t)
		held := memfd(t, "nobody's")
		done := make(chan error, 1)
		go func() {
			done <- replace(line, []int{int(held.Fd()), int(held.Fd())})
			_ = unix.Close(line)
		}()
		if err := l.give([]*os.File{memfd(t, "root")}); err == nil {
			t.Error("the kernel took one file in the place of two")
		}
		if err := <-done; err == nil {
			t.Error("it has one file in the place of two")
		}
	})
	t.Run("it is gone", func(t *testing.T) {
		l, line := kernelSide(t)
		_ = unix.Close(line)
		if err := l.give([]*os.File{memfd(t, "root")}); err == nil {
			t.Error("a kernel that is gone took a file")
		}
	})
}

// TestAKernelIsToldThatItWasMade: whoever made it goes on when it has done what it does
// ahead, and does not when it is gone.
func TestAKernelIsToldThatItWasMade(t *testing.T) {
	t.Run("done ahead", func(t *testing.T) {
		l, line := kernelSide(t)
		defer unix.Close(line)
		told := make(chan error, 1)
		go func() {
			err := awaitMade(line)
			_, _ = unix.Write(line, []byte{word})
			told <- err
		}()
		if err := l.made(); err != nil {
			t.Error(err)
		}
		if err := <-told; err != nil {
			t.Error(err)
		}
	})
	t.Run("it could not", func(t *testing.T) {
		l, line := kernelSide(t)
		told := make(chan error, 1)
		go func() {
			told <- awaitMade(line)
			_ = unix.Close(line)
		}()
		if err := l.made(); err == nil {
			t.Error("what a kernel did not do ahead counts as done")
		}
		if err := <-told; err != nil {
			t.Error(err)
		}
	})
	t.Run("nobody made it", func(t *testing.T) {
		l, line := kernelSide(t)
		defer unix.Close(line)
		l.close()
		if err := awaitMade(line); err == nil {
			t.Error("a kernel that nobody made goes on")
		}
	})
}

func TestHeldStores(t *testing.T) {
	var fds sandboxsetup.IntFlags
	f := flag.NewFlagSet("boot", flag.ContinueOnError)
	if _, err := heldStores(f); err == nil {
		t.Error("stores without a flag")
	}
	f.Var(&fds, "gofer-filestore-fds", "")
	if _, err := heldStores(f); err == nil {
		t.Error("stores of an empty flag")
	}
	for _, fd := range []string{"13", "14"} { // as upstream passes them
		if err := f.Set("gofer-filestore-fds", fd); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := heldStores(f); err != nil || len(got) != 2 || got[0] != 13 || got[1] != 14 {
		t.Errorf("stores = %v, %v", got, err)
	}
}

func TestSameKind(t *testing.T) {
	bind := func(source, to string, options ...string) specs.Mount {
		return specs.Mount{Type: "bind", Source: source, Destination: to, Options: options}
	}
	spec := func(root string, mounts ...specs.Mount) *specs.Spec {
		return &specs.Spec{Root: &specs.Root{Path: root}, Mounts: mounts}
	}
	has := spec("/image", bind("/nobodys", "/workspace", "rw"), bind("/channel", "/run/cubby", "ro"))
	for name, tt := range map[string]struct {
		wants *specs.Spec
		same  bool
	}{
		"other sources":      {spec("/image", bind("/disk", "/workspace", "rw"), bind("/mine", "/run/cubby", "ro")), true},
		"another image":      {spec("/other", bind("/disk", "/workspace", "rw"), bind("/mine", "/run/cubby", "ro")), false},
		"one mount more":     {spec("/image", bind("/disk", "/workspace", "rw"), bind("/mine", "/run/cubby", "ro"), bind("/x", "/x")), false},
		"another place":      {spec("/image", bind("/disk", "/elsewhere", "rw"), bind("/mine", "/run/cubby", "ro")), false},
		"read-only":          {spec("/image", bind("/disk", "/workspace", "ro"), bind("/mine", "/run/cubby", "ro")), false},
		"another filesystem": {spec("/image", specs.Mount{Type: "tmpfs", Destination: "/workspace", Options: []string{"rw"}}, bind("/mine", "/run/cubby", "ro")), false},
	} {
		if err := sameKind(has, tt.wants); (err == nil) != tt.same {
			t.Errorf("%s: %v", name, err)
		}
	}
}
