//go:build root

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/test/harness"
)

// smallHost is a daemon whose data directory is on a small file system of its
// own, and a filler file that takes what room it is told to.
type smallHost struct {
	realHost
	t      *testing.T
	mnt    string
	filler string
}

func newSmallHost(t *testing.T, bytes int64) *smallHost {
	t.Helper()
	// Not below t.TempDir: the paths of sockets are short.
	dir, err := os.MkdirTemp("/var/tmp", "small")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	image, mnt := filepath.Join(dir, "img"), filepath.Join(dir, "m")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, bytes); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", image},
		{"mount", "-o", "loop", image, mnt},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		// A device that is going away may hold it for a moment.
		eventually(t, time.Minute, "the small file system is free", func() bool { return unix.Unmount(mnt, 0) == nil })
	})
	data := filepath.Join(mnt, "d")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	h := &smallHost{realHost: newReal(t, harness.Options{Dir: data}), t: t, mnt: mnt, filler: filepath.Join(mnt, "filler")}
	t.Cleanup(func() { _ = h.kill() })
	return h
}

// fill takes room until so many bytes are free.
func (h *smallHost) fill(free int64) {
	h.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(h.mnt, &st); err != nil {
		h.t.Fatal(err)
	}
	f, err := os.Create(h.filler)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-free); err != nil {
		h.t.Fatal(err)
	}
}

func (h *smallHost) makeRoom() {
	h.t.Helper()
	if err := os.Remove(h.filler); err != nil {
		h.t.Fatal(err)
	}
}

// eventually polls for what happens elsewhere.
func mustStart(t *testing.T, h realHost, flags ...string) (url string) {
	t.Helper()
	url, err := h.start(flags)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// TestHostNearlyFull: sandboxes write more than the host has. They are held
// while what they wrote still fits, new sandboxes are refused, a daemon that is
// killed in between changes nothing, and when there is room again they go on
// and have lost nothing.
func TestHostNearlyFull(t *testing.T) {
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			h := newSmallHost(t, 4<<30)
			// The smallest that a daemon sets by itself.
			const reserve = "--disk-reserve=1GiB"
			url := mustStart(t, h.realHost, reserve)
			for _, id := range []string{"a", "b"} {
				body := fmt.Sprintf(`{"id":%q,"isolation":%q,"limits":{"disk_bytes":%d}}`, id, isolation, 1<<30)
				if status, text := call(t, "POST", url+"/v1/sandboxes", body); status != http.StatusCreated {
					t.Fatalf("create = %d %s", status, text)
				}
			}
			// They are held at half the reserve, where one of two files of 430
			// MiB fits and both do not. No two MiB of a file are the same, and to
			// make them is cheap.
			h.fill(1152 << 20)
			const write = `python3 -c '
import os
def block(i): return b"%015d\n" % i * 65536
with open("big", "wb") as f:
	for i in range(430): f.write(block(i))
	f.flush()
	os.fsync(f.fileno())
with open("big", "rb") as f:
	assert all(f.read(1 << 20) == block(i) for i in range(430)) and not f.read()
' && echo whole`
			cmd, err := json.Marshal(map[string]any{"cmd": write, "wait": false, "timeout_seconds": 600})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"a", "b"} {
				if status, text := call(t, "POST", url+"/v1/sandboxes/"+id+"/exec", string(cmd)); status != http.StatusAccepted {
					t.Fatalf("exec = %d %s", status, text)
				}
			}
			nearlyFull := func() bool {
				status, text := call(t, "GET", url+"/readyz", "")
				return status == http.StatusServiceUnavailable && strings.Contains(text, "nearly full")
			}
			frozen := func() bool {
				_, text := call(t, "GET", url+"/metrics", "")
				return strings.Contains(text, "\ncubby_disk_frozen 1\n")
			}
			eventually(t, 3*time.Minute, "the disks are frozen", func() bool { return nearlyFull() && frozen() })
			if status, text := call(t, "POST", url+"/v1/sandboxes", fmt.Sprintf(`{"isolation":%q}`, isolation)); status != http.StatusServiceUnavailable {
				t.Errorf("create on the full host = %d %s", status, text)
			}
			if err := h.kill(); err != nil {
				t.Fatal(err)
			}
			url = mustStart(t, h.realHost, reserve)
			eventually(t, time.Minute, "the disks are frozen again", func() bool { return nearlyFull() && frozen() })

			h.makeRoom()
			for _, id := range []string{"a", "b"} {
				_, text := call(t, "GET", url+"/v1/sandboxes/"+id+"/execs/1?wait_seconds=170", "")
				if !strings.Contains(text, `"stdout":"whole\n"`) || !strings.Contains(text, `"reason":"exited"`) {
					t.Errorf("the writer in %s ended: %s", id, text)
				}
			}
			eventually(t, time.Minute, "the host is ready", func() bool {
				status, _ := call(t, "GET", url+"/readyz", "")
				return status == http.StatusOK && !frozen()
			})
			if err := h.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestHostReallyFull: not a byte is left for journals and the store. A command
// whose output cannot be kept ends with that as its reason, what was
// acknowledged stays, and with room everything goes on. The disks of this
// daemon are plain directories: a file system in an image is lost on such a
// host, which is what the reserve is for.
func TestHostReallyFull(t *testing.T) {
	dir, err := os.MkdirTemp("", "full")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	images := t.TempDir()
	elsewhere := func(c *config.Config) { c.ImageDir = images }
	d := daemontest.Start(t, daemontest.Options{Dir: filepath.Join(dir, "d"), Config: elsewhere})
	if status, text := call(t, "POST", d.URL+"/v1/sandboxes", `{"id":"a"}`); status != http.StatusCreated {
		t.Fatalf("create = %d %s", status, text)
	}
	box := d.URL + "/v1/sandboxes/a"
	call(t, "POST", box+"/exec", `{"cmd":"echo before"}`)
	go1 := filepath.Join(dir, "go")
	script := fmt.Sprintf(`{"cmd":"echo ready; while ! test -e %s; do sleep 0.02; done; seq 2000000; sleep 600","wait":false}`, go1)
	if status, text := call(t, "POST", box+"/exec", script); status != http.StatusAccepted {
		t.Fatalf("exec = %d %s", status, text)
	}
	eventually(t, time.Minute, "it runs", func() bool {
		_, text := call(t, "GET", box+"/execs/2/output", "")
		return text == "ready\n"
	})
	if err := os.WriteFile(go1, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	eventually(t, time.Minute, "the command ends", func() bool {
		_, text := call(t, "GET", box+"/execs/2?max_output_bytes=10", "")
		return strings.Contains(text, `"reason":"disk_full"`)
	})
	if status, text := call(t, "POST", d.URL+"/v1/sandboxes", `{"id":"b"}`); status < 400 || strings.Contains(text, "internal error") {
		t.Errorf("create on the full host = %d %s", status, text)
	}
	// What fits into what the journals hold ready may run.
	if status, text := call(t, "POST", box+"/exec", `{"cmd":"true"}`); strings.Contains(text, "internal error") {
		t.Errorf("exec on the full host = %d %s", status, text)
	}
	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, text := call(t, "POST", box+"/exec", `{"cmd":"echo after"}`); !strings.Contains(text, `"stdout":"after\n"`) {
			t.Errorf("with room again: %s", text)
		}
		if _, text := call(t, "GET", box+"/execs/1", ""); !strings.Contains(text, `"stdout":"before\n"`) {
			t.Errorf("what was acknowledged before is %s", text)
		}
		if _, text := call(t, "GET", box+"/execs/2?max_output_bytes=10", ""); !strings.Contains(text, `"reason":"disk_full"`) {
			t.Errorf("the command is %s", text)
		}
		if err := d.Stop(); err != nil {
			t.Fatal(err)
		}
		d = daemontest.Start(t, daemontest.Options{Dir: d.Dir, Driver: d.Driver.Restart(t), Config: elsewhere})
		box = d.URL + "/v1/sandboxes/a"
	}
}
