//go:build root

package walls_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/test/harness"
)

// tellTales are where a process finds paths: its mounts, what it has mapped and
// opened, its agent's, and what the kernel says of file systems and cgroups.
const tellTales = `
for p in self 1; do
	for f in mountinfo mounts mountstats maps cgroup cmdline environ; do
		echo "== $p/$f"; cat /proc/$p/$f 2>&1 | tr '\0' '\n'
	done
	ls -l /proc/$p/exe /proc/$p/cwd /proc/$p/root /proc/$p/fd 2>&1
done
echo "== unix"; cat /proc/net/unix 2>&1
echo "== locks"; cat /proc/locks /proc/swaps 2>&1
env
`

// A container's mountinfo had the host's paths of its channel and its agent, and
// /proc/net/unix that of the channel's socket.
func TestNoPathOfTheHostIsShown(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	c := client.New(d.URL)
	var data syscall.Stat_t
	if err := syscall.Stat(d.Dir, &data); err != nil {
		t.Fatal(err)
	}
	device := fmt.Sprintf(" %d:%d ", unix.Major(data.Dev), unix.Minor(data.Dev))
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			b, err := c.Create(t.Context(), client.CreateOptions{Isolation: isolation})
			if err != nil {
				t.Fatal(err)
			}
			for _, user := range []string{"sandbox", "root"} {
				x, err := c.Exec(t.Context(), b.ID, client.ExecOptions{Shell: tellTales, User: user})
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(x.Stdout, driver.InitPath) || !strings.Contains(x.Stdout, "/workspace") {
					t.Fatalf("it shows nothing at all: %s", x.Stdout)
				}
				for line := range strings.Lines(x.Stdout) {
					for _, path := range []string{d.Dir, filepath.Base(d.Dir), harness.Images(t), d.Program, device} {
						if strings.Contains(line, path) {
							t.Errorf("%s sees %s in %q", user, path, line)
						}
					}
				}
			}
		})
	}
}
