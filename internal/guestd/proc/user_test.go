package proc

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	testPasswd = `# comment
root:x:0:0:root:/var/root:/bin/bash
broken line
sandbox:x:77:77::/nowhere:/bin/false
web:x:33:34:web:/srv:/bin/sh
nohome:x:50:50::
max:x:4294967295:1::/:
`
	testGroup = `www:x:80:other,web
web:x:34:
dup:x:80:web
`
)

func writeAccounts(t *testing.T) (passwd, group string) {
	t.Helper()
	dir := t.TempDir()
	passwd, group = filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	for path, text := range map[string]string{passwd: testPasswd, group: testGroup} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return passwd, group
}

func TestLookupAccount(t *testing.T) {
	passwd, group := writeAccounts(t)
	tests := []struct {
		user   string
		uid    uint32
		groups []uint32
		home   string
	}{
		{"", 1000, []uint32{1000}, "/home/sandbox"},
		{"sandbox", 1000, []uint32{1000}, "/home/sandbox"}, // whatever the image says
		{"root", 0, []uint32{0}, "/var/root"},
		{"0", 0, []uint32{0}, "/var/root"},
		{"web", 33, []uint32{34, 80}, "/srv"},
		{"33", 33, []uint32{34, 80}, "/srv"},
		{"1234", 1234, []uint32{1234}, "/"},
	}
	for _, tt := range tests {
		a, err := lookupAccountIn(passwd, group, tt.user)
		if err != nil {
			t.Errorf("lookup(%q) = %v", tt.user, err)
			continue
		}
		if a.UID != tt.uid || a.GID != tt.groups[0] || !slices.Equal(a.groups, tt.groups) || a.home != tt.home {
			t.Errorf("lookup(%q) = %+v, want uid %d, groups %v, home %s", tt.user, a, tt.uid, tt.groups, tt.home)
		}
	}
	for _, user := range []string{"nobody", "-1", "4294967295", "99999999999", "web\n", "max", "nohome"} {
		if a, err := lookupAccountIn(passwd, group, user); !errors.Is(err, errs.Invalid) {
			t.Errorf("lookup(%q) = %+v, %v, want invalid", user, a, err)
		}
	}
}

// The guest owns /etc: nothing it puts there may hold the agent up.
func TestLookupAccountHostileFiles(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	endless := filepath.Join(dir, "endless")
	if err := os.WriteFile(endless, []byte(strings.Repeat("x", 3*maxAccountFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, endless, "/dev/zero", dir, filepath.Join(dir, "missing")} {
		if a, err := lookupAccountIn(path, path, "root"); err != nil || a.UID != 0 || a.home != "/root" {
			t.Errorf("lookup with %s = %+v, %v", path, a, err)
		}
	}
}

func TestSameVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	stat := func() os.FileInfo { st, _ := os.Stat(path); return st }
	if !sameVersion(stat(), stat()) {
		t.Error("a file that is missing twice changed")
	}
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := stat()
	if sameVersion(nil, first) || !sameVersion(first, stat()) {
		t.Error("appearing is a change, staying is none")
	}
	if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if sameVersion(first, stat()) {
		t.Error("another time of change is a change")
	}
}
