//go:build root

package oci

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Containers have user ids of their own where nobody but root may run the
// daemon's program, and where the daemon may not trace processes.
func TestUserNamespacesOfARestrictedDaemon(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "oci.test")
	copyProgram(t, program)
	const test = "-test.run=^TestContainersShareNoIDs$"
	for name, cmd := range map[string]*exec.Cmd{
		"program for root alone": exec.Command(program, test, "-test.v"),
		"no right to trace":      exec.Command("setpriv", "--bounding-set", "-sys_ptrace", "--", self, test, "-test.v"),
	} {
		t.Run(name, func(t *testing.T) {
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--- PASS: TestContainersShareNoIDs") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, from); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
