package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestStampsOfEarlierVersionsHold: the stamp of a tree is over its files in
// lexical order of their paths' parts, as image.json has it since its first
// version.
func TestStampsOfEarlierVersionsHold(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"b", "a", "a/sub", "a.d", "empty"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o751); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"a/z", "a/sub/ü \"\n", "a.d/1", "b/\xff", "a-file"} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(file), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		size := info.Size()
		if d.IsDir() {
			size = 0 // it differs between file systems
		}
		st := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // Lstat on Linux
		_, err = fmt.Fprintf(h, "%q %o %d %d %d %d\n", rel, st.Mode, st.Uid, st.Gid, size, info.ModTime().UnixNano())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := stampTree(t.Context(), root)
	if want := hex.EncodeToString(h.Sum(nil)); err != nil || got != want {
		t.Errorf("stamp = %s, %v, want %s", got, err, want)
	}
}

// TestOneWalkForAllWhoAsk: who asks for an image while its files are looked at
// waits for the answer, no longer than it likes, and does not look itself.
func TestOneWalkForAllWhoAsk(t *testing.T) {
	s := openStore(t, t.TempDir())
	img := importRoot(t, s, "one", "1")
	s = openStore(t, s.dir)
	s.walking <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Resolve(ctx, "one"); !errors.Is(err, context.Canceled) {
		t.Errorf("Resolve of one who left = %v", err)
	}
	answer := make(chan error)
	go func() {
		_, err := s.Resolve(t.Context(), "one")
		answer <- err
	}()
	// A second look would see this.
	if err := os.Truncate(filepath.Join(img.Dir, "usr/bin/sh"), 0); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.whole[img.Digest] = true
	s.mu.Unlock()
	<-s.walking
	if err := <-answer; err != nil {
		t.Errorf("Resolve = %v", err)
	}
}
