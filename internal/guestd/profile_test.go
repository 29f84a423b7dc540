package guestd

import (
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoginShellKeepsItsPath sources the profile as /etc/profile does, which has
// set another PATH before.
func TestLoginShellKeepsItsPath(t *testing.T) {
	dir := t.TempDir()
	writeProfile(dir)
	file := filepath.Join(dir, profileName)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Fatalf("the profile: %v, %v", info, err)
	}
	const usual = "/usr/local/bin:/usr/bin:/bin"
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	home := me.HomeDir // root's programs are from its own home alone
	programs := home + "/.local/bin:" + home + "/.npm-global/bin:"
	for _, tt := range []struct{ name, path, want string }{
		{"the sandbox's", programs + "/opt/go/bin:" + usual, programs + "/opt/go/bin:" + usual},
		{"that of su", usual, programs + usual},
	} {
		for _, shell := range []string{"bash", "sh"} {
			cmd := osexec.Command("/bin/"+shell, "-euc", "PATH=/usr/bin:/bin; . "+file+"; echo $PATH; env | grep -c ^cubby_ || :")
			cmd.Env = []string{"HOME=" + home, "PATH=" + tt.path}
			out, err := cmd.CombinedOutput()
			if got := string(out); err != nil || got != tt.want+"\n0\n" {
				t.Errorf("%s, %s: PATH = %q, %v, want %q", tt.name, shell, got, err, tt.want)
			}
		}
	}
	// An image's own file of the name stays.
	if err := os.WriteFile(file, []byte("own"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeProfile(dir)
	if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), "own") || len(b) != 3 {
		t.Errorf("the image's own file: %q, %v", b, err)
	}
}
