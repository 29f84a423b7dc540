//go:build root

package guestd

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"
)

// A login shell of root whose HOME was the sandbox's took programs from there.
func TestRootsLoginShellTakesNoProgramsOfAnotherUser(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	writeProfile(dir)
	if err := os.Chown(home, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"bash", "sh"} {
		cmd := osexec.Command("/bin/"+shell, "-euc", ". "+filepath.Join(dir, profileName)+"; echo $PATH")
		cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "/usr/bin:/bin\n" {
			t.Errorf("%s: PATH = %q, %v", shell, out, err)
		}
	}
}
