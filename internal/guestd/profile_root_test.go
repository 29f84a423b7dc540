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
	dir, theirs, everybodys := t.TempDir(), t.TempDir(), t.TempDir()
	writeProfile(dir)
	for _, err := range []error{
		os.Chown(theirs, 1000, 1000), os.Chmod(everybodys, os.ModeSticky|0o777), // as HOME=/tmp
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, shell := range []string{"bash", "sh"} {
		for _, home := range []string{theirs, everybodys} {
			cmd := osexec.Command("/bin/"+shell, "-euc", ". "+filepath.Join(dir, profileName)+"; echo $PATH")
			cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "/usr/bin:/bin\n" {
				t.Errorf("%s: PATH = %q, %v", shell, out, err)
			}
		}
	}
}
