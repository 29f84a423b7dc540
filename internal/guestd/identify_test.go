package guestd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRenameHost(t *testing.T) {
	const boot = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tsandbox\n"
	tests := []struct{ name, text, from, to, want string }{
		{"of nobody", boot, "sandbox", "mine", strings.Replace(boot, "sandbox", "mine", 1)},
		{"again", strings.Replace(boot, "sandbox", "mine", 1), "sandbox", "mine", strings.Replace(boot, "sandbox", "mine", 1)},
		{"with what the sandbox added", "127.0.1.1 a a.local\n10.0.0.1 a\n", "a", "b", "127.0.1.1\tb a.local\n10.0.0.1 a\n"},
		{"on two lines", "127.0.1.1 a\n127.0.1.1 a c\n", "a", "b", "127.0.1.1\tb\n127.0.1.1\tc\n"},
		{"without the line", "127.0.0.1 localhost", "a", "b", "127.0.0.1 localhost\n127.0.1.1\tb\n"},
		{"empty", "", "a", "b", "127.0.1.1\tb\n"},
		{"in a comment", "# 127.0.1.1 a\n", "a", "b", "# 127.0.1.1 a\n127.0.1.1\tb\n"},
	}
	for _, tt := range tests {
		if got := string(renameHost([]byte(tt.text), tt.from, tt.to)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The file keeps its inode, because it is mounted, and what the sandbox put in
// its place is not touched.
func TestRewrite(t *testing.T) {
	dir := t.TempDir()
	path, secret := filepath.Join(dir, "hostname"), filepath.Join(dir, "secret")
	write := func(path, text string) os.FileInfo {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	text := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	name := func([]byte) []byte { return []byte("b\n") }
	before := write(path, "a long name\n")
	if err := rewrite(path, name); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) || text(path) != "b\n" {
		t.Errorf("the file is %q, another inode: %v, %v", text(path), !os.SameFile(before, after), err)
	}

	write(secret, "s")
	for what, place := range map[string]func() error{
		"a link":      func() error { return os.Symlink(secret, path) },
		"a directory": func() error { return os.Mkdir(path, 0o755) },
		"nothing":     func() error { return nil },
		"a large file": func() error {
			return os.WriteFile(path, make([]byte, maxNamesFile+1), 0o644)
		},
	} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := place(); err != nil {
			t.Fatal(err)
		}
		if err := rewrite(path, name); err != nil {
			t.Errorf("%s: %v, want that it is left alone", what, err)
		}
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() != maxNamesFile+1 {
			t.Errorf("%s was rewritten", what)
		}
		if got := text(secret); got != "s" {
			t.Errorf("%s: where it leads is now %q", what, got)
		}
	}
}
