//go:build root

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fillAtOnce takes all room before the daemon can look, and keeps it taken.
func (h *smallHost) fillAtOnce() {
	h.t.Helper()
	f, err := os.Create(h.filler)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Statfs(h.mnt, &st); err != nil {
		h.t.Fatal(err)
	}
	for size, more := int64(0), int64(st.Bavail)*st.Bsize; more >= 4096; {
		if unix.Fallocate(int(f.Fd()), 0, size, more) == nil {
			size += more
		} else {
			more /= 2
		}
	}
}

// TestHostDiskFillsUpAtOnce: nothing could be held in time, and the kernel makes a
// sandbox's disk read-only for good. The sandbox says so, writes are answered with
// the reason, and when there is room again it is repaired without anybody's help.
func TestHostDiskFillsUpAtOnce(t *testing.T) {
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			h := newSmallHost(t, 2<<30)
			url := mustStart(t, h.realHost, "--disk-reserve=64MiB", "--disk-pool=0")
			const limits = `"limits":{"disk_bytes":134217728}`
			if status, text := call(t, "POST", url+"/v1/sandboxes", fmt.Sprintf(`{"id":"a","isolation":%q,%s,
				"services":[{"name":"web","command":"exec sleep 100000"}]}`, isolation, limits)); status != http.StatusCreated {
				t.Fatalf("create = %d %s", status, text)
			}
			box := url + "/v1/sandboxes/a"
			if status, text := call(t, "PUT", box+"/files?path=kept", "whole"); status >= 300 {
				t.Fatalf("PUT = %d %s", status, text)
			}
			if _, text := call(t, "POST", box+"/exec", `{"cmd":"sync"}`); !strings.Contains(text, `"exit_code":0`) {
				t.Fatalf("sync: %s", text)
			}
			if status, text := call(t, "POST", box+"/exec", `{"wait":false,"timeout_seconds":600,
				"cmd":"i=0; while mkdir wear$i; do sync; i=$((i+1)); done; sleep 600"}`); status != http.StatusAccepted {
				t.Fatalf("exec = %d %s", status, text)
			}
			h.fillAtOnce()
			failed := func() bool {
				_, text := call(t, "GET", box, "")
				return strings.Contains(text, `"disk_failed"`) && strings.Contains(text, `"status":"running"`)
			}
			eventually(t, time.Minute, "the sandbox says that its disk failed", failed)
			for _, act := range [][3]string{
				{"PUT", box + "/files?path=more", "more"}, {"POST", box + "/sleep", ""}, {"POST", url + "/v1/snapshots", `{"source_sandbox_id":"a","name":"s"}`},
			} {
				if status, text := call(t, act[0], act[1], act[2]); status != http.StatusBadGateway && status != http.StatusServiceUnavailable {
					t.Errorf("%s %s on the broken disk = %d %s", act[0], act[1], status, text)
				} else {
					t.Logf("%s %s: %d %s", act[0], act[1], status, text)
				}
			}
			if status, text := call(t, "GET", box+"/files/content?path=kept", ""); status != http.StatusOK || text != "whole" {
				t.Errorf("reading from the broken disk = %d %q", status, text)
			}
			if _, text := call(t, "GET", url+"/metrics", ""); !strings.Contains(text, "\ncubby_disks_failed 1\n") || !strings.Contains(text, "\ncubby_disk_failures_total 1\n") {
				t.Error("the metrics do not say that a disk failed")
			}
			h.makeRoom()
			eventually(t, 2*time.Minute, "the disk is repaired", func() bool {
				status, _ := call(t, "PUT", box+"/files?path=more", "more")
				return status < 300
			})
			eventually(t, time.Minute, "the events and metrics say so", func() bool {
				_, events := call(t, "GET", box+"/events", "")
				_, metrics := call(t, "GET", url+"/metrics", "")
				return strings.Contains(events, `"disk.failed"`) && strings.Contains(events, `"disk.repaired"`) && strings.Contains(metrics, "\ncubby_disks_failed 0\n")
			})
			if _, text := call(t, "GET", box, ""); strings.Contains(text, "conditions") || !strings.Contains(text, `"status":"running"`) {
				t.Errorf("the repaired sandbox is %s", text)
			}
			if _, text := call(t, "GET", box+"/files/content?path=kept", ""); text != "whole" {
				t.Errorf("what was on the disk is %q", text)
			}
			if _, text := call(t, "GET", box+"/execs/3", ""); !strings.Contains(text, "restarted to repair") {
				t.Errorf("the command that ran says %s", text)
			}
			eventually(t, time.Minute, "its service runs again", func() bool {
				_, text := call(t, "GET", box+"/services/web", "")
				return strings.Contains(text, `"running"`)
			})
			if n := strings.Count(h.Log(), "cannot be frozen"); n > 3 {
				t.Errorf("the log says %d times that a disk cannot be frozen", n)
			}
			if err := h.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCallsToAFrozenDiskAreBounded: while what writes is held, each call that would
// wait for it ends soon and says why, what only reads goes on, and a sandbox can be
// destroyed. With room again what was held goes on.
func TestCallsToAFrozenDiskAreBounded(t *testing.T) {
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			h := newSmallHost(t, 4<<30)
			url := mustStart(t, h.realHost, "--disk-reserve=1GiB", "--disk-pool=0")
			for _, id := range []string{"a", "b"} {
				if status, text := call(t, "POST", url+"/v1/sandboxes", fmt.Sprintf(`{"id":%q,"isolation":%q,"limits":{"disk_bytes":268435456}}`, id, isolation)); status != http.StatusCreated {
					t.Fatalf("create = %d %s", status, text)
				}
				if status, text := call(t, "POST", url+"/v1/sandboxes/"+id+"/exec", `{"wait":false,"timeout_seconds":600,
					"cmd":"i=0; while echo x > f && sync f; do i=$((i+1)); test -e go && { echo went on; exit; }; sleep 0.05; done"}`); status != http.StatusAccepted {
					t.Fatalf("exec = %d %s", status, text)
				}
			}
			box := url + "/v1/sandboxes/a"
			slow := newTrickle()
			streamed := make(chan string, 1)
			go func() {
				req, _ := http.NewRequest(http.MethodPut, box+"/files?path=slow", slow)
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					streamed <- err.Error()
					return
				}
				res.Body.Close()
				streamed <- res.Status
			}()
			<-slow.begun
			h.fill(256 << 20)
			eventually(t, time.Minute, "the disks are held", func() bool {
				_, text := call(t, "GET", box, "")
				return strings.Contains(text, `"disk_held"`)
			})
			eventually(t, time.Minute, "the upload that was under way ends", func() bool {
				select {
				case status := <-streamed:
					if !strings.HasPrefix(status, "503") {
						t.Errorf("the upload that was under way = %s", status)
					}
					return true
				default:
					return false
				}
			})
			slow.end()
			for _, act := range []struct {
				method, path, body string
				want               []int
			}{
				{"PUT", box + "/files?path=more", "more", []int{503}},
				{"DELETE", box + "/files?path=f", "", []int{503}},
				{"POST", box + "/sleep", "", []int{503}},
				{"POST", box + "/stop", "", []int{503}},
				{"POST", url + "/v1/snapshots", `{"source_sandbox_id":"a","name":"s"}`, []int{503}},
				{"POST", box + "/fork", `{"count":1}`, []int{409, 503}},
				{"POST", box + "/execs/1/cancel", "", []int{200, 202, 204, 503}},
				{"GET", box + "/files?path=/workspace", "", []int{200, 503}},
				{"POST", box + "/exec", `{"cmd":"echo fine"}`, []int{200, 503}},
				{"GET", box + "/services", "", []int{200}},
			} {
				began := time.Now()
				status, text := callWithin(t, time.Minute, act.method, act.path, act.body)
				t.Logf("%s %s: %d after %s: %.200s", act.method, act.path, status, time.Since(began).Round(time.Millisecond), text)
				ok := false
				for _, want := range act.want {
					ok = ok || status == want
				}
				if !ok {
					t.Errorf("%s %s = %d %s", act.method, act.path, status, text)
				}
			}
			began := time.Now()
			if status, text := callWithin(t, time.Minute, "DELETE", url+"/v1/sandboxes/a", ""); status >= 300 {
				t.Errorf("DELETE of the sandbox = %d %s", status, text)
			}
			t.Logf("DELETE: %s", time.Since(began).Round(time.Millisecond))
			h.makeRoom()
			eventually(t, time.Minute, "writes go through again", func() bool {
				status, _ := call(t, "PUT", url+"/v1/sandboxes/b/files?path=go", "x")
				return status < 300
			})
			if _, text := call(t, "GET", url+"/v1/sandboxes/b/execs/1?wait_seconds=60", ""); !strings.Contains(text, "went on") {
				t.Errorf("what was held ended: %s", text)
			}
			if err := h.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// trickle is an upload that has begun and goes on until end.
type trickle struct {
	begun chan struct{}
	ended chan struct{}
	first bool
}

func newTrickle() *trickle { return &trickle{begun: make(chan struct{}), ended: make(chan struct{})} }

func (s *trickle) Read(p []byte) (int, error) {
	if !s.first {
		s.first = true
		close(s.begun)
		return copy(p, "begun"), nil
	}
	select {
	case <-s.ended:
		return 0, unix.ECANCELED
	case <-time.After(10 * time.Millisecond):
		return copy(p, strings.Repeat("x", 4096)), nil
	}
}

func (s *trickle) end() { close(s.ended) }

// callWithin is call for what must not hang. 0 is no answer.
func callWithin(t *testing.T, limit time.Duration, method, url, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}
