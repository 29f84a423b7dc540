package embedded

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/cubbyhq/cubby/internal/errs"
)

func program(t *testing.T, content []byte) Program {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	p, err := open(fstest.MapFS{
		"bin/x.zst":    {Data: w.EncodeAll(content, nil)},
		"bin/x.sha256": {Data: []byte(hex.EncodeToString(sum[:]) + "\n")},
	}, "x")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUnpack(t *testing.T) {
	content := bytes.Repeat([]byte("cubby"), 100_000)
	p := program(t, content)
	dir := filepath.Join(t.TempDir(), "runtimes")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			path, err := p.Unpack(dir)
			if err != nil {
				t.Errorf("Unpack: %v", err)
				return
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, content) {
				t.Errorf("%s has %d bytes that differ from the %d packed", path, len(got), len(content))
			}
		})
	}
	group.Wait()
	info, err := os.Stat(filepath.Join(dir, p.Digest, "x"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("stat = %v, %v; want mode 0755", info, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d entries are left, want the program's alone", len(entries))
	}
}

func TestUnpackRepairsEmptyDirectory(t *testing.T) {
	p := program(t, []byte("content"))
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, p.Digest), 0o755); err != nil {
		t.Fatal(err)
	}
	path, err := p.Unpack(dir)
	if err != nil {
		t.Fatalf("Unpack: %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "content" {
		t.Errorf("content = %q, want %q", got, "content")
	}
}

func TestUnpackRefusesWrongContent(t *testing.T) {
	p := program(t, []byte("good"))
	other := program(t, []byte("evil"))
	p.from = other.from
	dir := t.TempDir()
	if path, err := p.Unpack(dir); err == nil {
		t.Errorf("Unpack = %s, want an error", path)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%d entries are left, want none", len(entries))
	}
}

func TestOpenWithoutPrograms(t *testing.T) {
	tests := map[string]fstest.MapFS{
		"nothing":          {},
		"no digest":        {"bin/x.zst": {}},
		"malformed digest": {"bin/x.zst": {}, "bin/x.sha256": {Data: []byte("../../etc")}},
	}
	for name, files := range tests {
		if _, err := open(files, "x"); !errors.Is(err, errs.Unsupported) {
			t.Errorf("%s: open = %v, want unsupported", name, err)
		}
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	a, b := program(t, []byte("a")), program(t, []byte("b"))
	for _, p := range []Program{a, b} {
		if _, err := p.Unpack(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "note"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Prune(dir, map[string]bool{b.Digest: true}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{a.Digest: false, b.Digest: true, "note": true} {
		_, err := os.Stat(filepath.Join(dir, name))
		if got := err == nil; got != want {
			t.Errorf("%s exists = %v, want %v", name, got, want)
		}
	}
	if err := Prune(filepath.Join(dir, "missing"), nil); err != nil {
		t.Errorf("Prune of nothing = %v, want nil", err)
	}
}

// A program that is being started may still have the descriptor by which another was
// written: that one could not be executed.
func TestUnpackedProgramIsNotBusy(t *testing.T) {
	p := program(t, []byte("cubby"))
	syscall.ForkLock.Lock()
	done := make(chan error, 1)
	go func() {
		_, err := p.Unpack(t.TempDir())
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("Unpack = %v, while a program was being started", err)
		done <- nil
	case <-time.After(100 * time.Millisecond):
	}
	syscall.ForkLock.Unlock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
