//go:build root

package filetree

import (
	"os"
	"path/filepath"
	"testing"
)

// A program that a caller put into /usr/local/bin was the sandbox's user's, who changed it
// before root ran it.
func TestWhatIsMadeInTheSystemsDirectoriesIsRoots(t *testing.T) {
	open := func(mode os.FileMode, uid int) *os.File {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "d")
		for _, err := range []error{os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid), os.Chmod(dir, mode)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	roots, users := open(0o755, 0), open(0o755, 1000)
	for _, tt := range []struct {
		name string
		dir  *os.File
		uid  uint32
	}{
		{"/usr/local/bin/git", roots, 0},
		{"/etc/profile.d/a.sh", roots, 0},
		{"/bin/a", roots, 0},
		{"/usr/local/share/theirs/a", users, 1000},
		{"/usrs/a", roots, 1000},
		{"/opt/app/a", roots, 1000},
		{"/workspace/a", users, 1000},
		{"/workspace/a", roots, 1000},
	} {
		uid, gid, err := Whole(Options{}).maker(tt.name, tt.dir, 1000, 1000)
		if err != nil || uid != tt.uid || gid != tt.uid {
			t.Errorf("%s belongs to %d:%d, %v, want %d", tt.name, uid, gid, err, tt.uid)
		}
	}
}
