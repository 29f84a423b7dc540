//go:build root

package core_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/imagebuild"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/image/imagetest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// buildWorld is a real world with an image store of its own, whose image tiny
// has a shell and little else.
func buildWorld(t *testing.T, isolation sandbox.Isolation) (*world, *image.Store) {
	t.Helper()
	all, err := image.Open(os.Getenv("CUBBY_TEST_IMAGE_DIR"), nil)
	if err != nil {
		t.Fatal(err)
	}
	all.LooksCount(time.Hour)
	base, err := all.Resolve(t.Context(), "base")
	if err != nil {
		t.Fatal(err)
	}
	images, err := image.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	data := imagetest.Tiny(t, base.Dir, "sh", "bash", "cat", "chmod", "chown", "id", "ln", "mkdir", "rm", "timeout", "touch")
	if _, err := images.Import(t.Context(), bytes.NewReader(data), 0, "tiny.tar", "tiny", nil); err != nil {
		t.Fatal(err)
	}
	w, _ := realWorld(t, func(c *core.Config) {
		c.Images = images
		if isolation == sandbox.Container {
			c.Driver = containersOnly{c.Driver}
		}
	})
	return w, images
}

// containersOnly is a driver of a host that has no gVisor.
type containersOnly struct{ driver.Driver }

func (d containersOnly) Capabilities() driver.Capabilities {
	c := d.Driver.Capabilities()
	c.Isolations = slices.DeleteFunc(slices.Clone(c.Isolations), func(s driver.IsolationSupport) bool { return s.Isolation == sandbox.GVisor })
	return c
}

// built runs commands on tiny, and returns the image and what they printed.
func built(t *testing.T, w *world, steps image.Steps) (image.Image, string, error) {
	t.Helper()
	var printed strings.Builder
	img, err := w.Builds().Build(w.ctx, image.BuildRequest{Name: "made", From: "tiny", Steps: steps}, func(o imagebuild.Output) {
		if o.Printed != nil {
			printed.Write(o.Printed.Data)
		}
	})
	return img, printed.String(), err
}

// What the steps leave in the root is in the image, with its owner and mode;
// what is mounted over it and what is cached is not.
func TestBuildInASandbox(t *testing.T) {
	for _, isolation := range []sandbox.Isolation{sandbox.GVisor, sandbox.Container} {
		t.Run(string(isolation), func(t *testing.T) {
			w, images := buildWorld(t, isolation)
			img, printed, err := built(t, w, image.Steps{Run: []string{`
id -u > /opt/uid; ln /opt/uid /opt/hard
mkdir /opt/d; chown 1234:5678 /opt/d; chmod 1770 /opt/d
touch /opt/suid; chown 1:2 /opt/suid; chmod 4755 /opt/suid
ln -s ../../../../etc/passwd /opt/out; ln -s / /opt/root; rm -f /usr/bin/touch
mkdir -p /root/.cache /root/kept; echo x > /root/.cache/x; echo x > /root/kept/x
for dir in /tmp /var/tmp /home/sandbox /workspace /run; do mkdir -p $dir; echo x > $dir/x; done
echo changed > /etc/hosts
`, `test ! -e /usr/bin/touch; echo second`}})
			if err != nil || !strings.HasSuffix(printed, "second\n") {
				t.Fatalf("Build = %v, printed %q", err, printed)
			}
			for path, want := range map[string][3]uint32{
				"opt/uid": {0o100644, 0, 0}, "opt/hard": {0o100644, 0, 0}, "opt/d": {0o41770, 1234, 5678}, "opt/suid": {0o104755, 1, 2},
				"opt/out": {0o120777, 0, 0}, "opt/root": {0o120777, 0, 0}, "root/kept/x": {0o100644, 0, 0}, "usr/sbin/cubby-init": {0o100755, 0, 0},
				"workspace": {0o40755, 1000, 1000}, "home/sandbox": {0o40755, 1000, 1000}, "tmp": {0o41777, 0, 0},
			} {
				var st unix.Stat_t
				err := unix.Lstat(filepath.Join(img.Dir, path), &st)
				if got := [3]uint32{st.Mode, st.Uid, st.Gid}; err != nil || got != want {
					t.Errorf("%s: %o, %v, want %o", path, got, err, want)
				}
			}
			if uid, err := os.ReadFile(filepath.Join(img.Dir, "opt/uid")); err != nil || string(uid) != "0\n" {
				t.Errorf("the steps ran as %q, %v", uid, err)
			}
			if a, b := stat(t, img.Dir, "opt/uid"), stat(t, img.Dir, "opt/hard"); !os.SameFile(a, b) {
				t.Error("a hard link has become a file of its own")
			}
			for _, path := range []string{"usr/bin/touch", "root/.cache", "tmp/x", "var/tmp/x", "home/sandbox/x", "workspace/x", "run/x", "etc/profile.d/cubby.sh"} {
				if _, err := os.Lstat(filepath.Join(img.Dir, path)); !os.IsNotExist(err) {
					t.Errorf("%s: %v, want it not there", path, err)
				}
			}
			for path, size := range map[string]int64{"usr/sbin/cubby-init": 0, "etc/hosts": 0} {
				if got := stat(t, img.Dir, path).Size(); got != size {
					t.Errorf("%s has %d bytes, want what it has in tiny: %d", path, got, size)
				}
			}
			if _, err := images.Verify(w.ctx, "made", nil); err != nil {
				t.Errorf("Verify = %v", err)
			}
			if d := img.Definition; d == nil || d.Image == "" || len(d.Steps) != 1 || len(d.Steps[0].Run) != 2 {
				t.Errorf("the definition is %+v", d)
			}
			w.noSandbox()
			left, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(img.Dir)), ".tmp-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
}

func stat(t *testing.T, dir, name string) fs.FileInfo {
	t.Helper()
	info, err := os.Lstat(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// A command of a build reaches neither the host nor another host than it was
// allowed, by no way.
func TestBuildReachesNothing(t *testing.T) {
	host, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := host.Accept()
			if err != nil {
				close(reached)
				return
			}
			_, _ = conn.Write([]byte("reached\n"))
			conn.Close()
			reached <- struct{}{}
		}
	}()
	port := host.Addr().(*net.TCPAddr).Port
	attack := fmt.Sprintf(`
direct() { timeout 5 bash -c 'exec 3<>/dev/tcp/$0/$1; read -t 3 line <&3; echo "$0 $line"' $1 $2 || true; }
proxied() { timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf "CONNECT $0 HTTP/1.1\r\nHost: $0\r\n\r\n" >&3; read -t 3 line <&3; echo "$0 $line"' $1 || true; }
direct 127.0.0.1 %[1]d; direct 169.254.169.254 80; direct other.example 443
proxied 127.0.0.1:%[1]d; proxied localhost:%[1]d; proxied 169.254.169.254:80; proxied other.example:443
`, port)
	for _, isolation := range []sandbox.Isolation{sandbox.GVisor, sandbox.Container} {
		for _, allow := range [][]string{nil, {"allowed.example"}} {
			t.Run(fmt.Sprintf("%s with %q", isolation, allow), func(t *testing.T) {
				w, _ := buildWorld(t, isolation)
				_, printed, err := built(t, w, image.Steps{Run: []string{attack}, Allow: allow})
				if err != nil {
					t.Fatalf("Build = %v", err)
				}
				if strings.Contains(printed, "reached") || strings.Contains(printed, " 200") {
					t.Errorf("it came through:\n%s", printed)
				}
				if got := strings.Count(printed, " 403"); got != 4 {
					t.Errorf("%d of 4 requests were refused by the proxy:\n%s", got, printed)
				}
			})
		}
	}
	host.Close()
	for range reached {
		t.Error("the host was reached")
	}
}

// A build that fails at the end leaves the image of before and nothing else.
func TestFailedBuildLeavesTheImageOfBefore(t *testing.T) {
	w, images := buildWorld(t, sandbox.GVisor)
	before, _, err := built(t, w, image.Steps{Run: []string{"echo 1 > /opt/v"}})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = built(t, w, image.Steps{Run: []string{"echo 2 > /opt/v", "exit 7"}})
	if !strings.Contains(errs.Public(err).Message, "exit code 7") {
		t.Errorf("Build = %v", err)
	}
	if now, err := images.Resolve(w.ctx, "made"); err != nil || now.Digest != before.Digest {
		t.Errorf("made is %+v, %v, want %s", now, err, before.Digest)
	}
	if all, err := images.List(w.ctx); err != nil || len(all) != 2 {
		t.Errorf("there are %+v, %v, want tiny and made", all, err)
	}
	w.noSandbox()
}
