//go:build root

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestDeaths kills sandboxes under their commands in the ways that a host has.
// Each death is told with its reason to the sandbox and to the command that ran,
// takes no place, and can be undone by a start.
func TestDeaths(t *testing.T) {
	t.Parallel()
	deaths := []struct {
		name      string
		isolation string // "" is both
		kill      func(t *testing.T, v victim)
		want      string // of the reason, after CONTAINER_DIED
		end       string // of the command
	}{
		{"its runtime is killed", "", func(t *testing.T, v victim) { v.signal(t, syscall.SIGKILL) },
			"it was killed by SIGKILL", "container_died"},
		{"its runtime's notes are removed", "", func(t *testing.T, v victim) {
			// Something is mounted there; what can go goes.
			dir := filepath.Join(filepath.Dir(v.record), "runtime")
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) == 0 {
				t.Fatalf("%s: %v, %v", dir, entries, err)
			}
			for _, e := range entries {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, syscall.EBUSY) {
					t.Fatal(err)
				}
			}
			v.signal(t, syscall.SIGKILL)
		}, "it was removed from the host", "container_died"},
		{"the host has no more memory for it", "gvisor", func(t *testing.T, v victim) {
			v.shrink(t, 8<<20)
			// Where the agent is faster than the kernel the next one is too big.
			call(t, "POST", v.url+"/v1/sandboxes/a/exec", `{"cmd":"tail /dev/zero","wait":false}`)
		}, "OOM-killed: out of memory", "oom"},
	}
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			h := newReal(t, harness.Options{})
			url, err := h.start([]string{"--max-sandboxes=1"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := h.stop(); err != nil {
					t.Error(err)
				}
			}()
			box := url + "/v1/sandboxes/a"
			must(t, http.StatusCreated, "POST", url+"/v1/sandboxes", fmt.Sprintf(`{"id":"a","isolation":%q,"user":"root"}`, isolation))
			must(t, http.StatusOK, "POST", box+"/exec", `{"cmd":"echo precious > kept"}`)
			for _, d := range deaths {
				if d.isolation != "" && d.isolation != isolation {
					continue
				}
				v := victim{url: url, record: onlyFile(t, filepath.Join(h.Dir, "run/oci/*/run.json"))}
				var x struct{ Seq int64 }
				decode(t, must(t, http.StatusAccepted, "POST", box+"/exec", `{"cmd":"echo ready; sleep 1000","wait":false}`), &x)
				began := time.Now()
				d.kill(t, v)
				// The command's end is what waits for the death.
				var end struct {
					Status, Reason, Message string
					FinishedAt              time.Time `json:"finished_at"`
				}
				decode(t, must(t, http.StatusOK, "GET", fmt.Sprintf("%s/execs/%d?wait_seconds=60", box, x.Seq), ""), &end)
				t.Logf("%s: told after %s", d.name, end.FinishedAt.Sub(began))
				if end.Status != "error" || end.Reason != d.end || !strings.HasPrefix(end.Message, "CONTAINER_DIED: "+d.want) {
					t.Errorf("%s: the command ended %+v, want %s and %q", d.name, end, d.end, d.want)
				}
				var b struct{ Status, Reason string }
				eventually(t, time.Minute, d.name+": it is stopped", func() bool {
					decode(t, must(t, http.StatusOK, "GET", box, ""), &b)
					return b.Status == "stopped"
				})
				if b.Reason != end.Message {
					t.Errorf("%s: the sandbox says %q, its command %q", d.name, b.Reason, end.Message)
				}
				if _, events := call(t, "GET", box+"/events?limit=1000", ""); !strings.Contains(events, "sandbox.died") {
					t.Errorf("%s: there is no event of the death", d.name)
				}
				if status, text := call(t, "POST", box+"/exec", `{"cmd":"true"}`); status != http.StatusConflict || !strings.Contains(text, "CONTAINER_DIED") {
					t.Errorf("%s: a further command = %d %s, want 409 and why", d.name, status, text)
				}
				must(t, http.StatusCreated, "POST", url+"/v1/sandboxes", fmt.Sprintf(`{"id":"next","isolation":%q}`, isolation))
				must(t, http.StatusNoContent, "DELETE", url+"/v1/sandboxes/next", "")
				must(t, http.StatusOK, "POST", box+"/start", "")
				if text := must(t, http.StatusOK, "POST", box+"/exec", `{"cmd":"cat kept"}`); !strings.Contains(text, "precious") {
					t.Errorf("%s: after it the files are gone: %s", d.name, text)
				}
			}
		})
	}
}

// victim is a sandbox that is going to die.
type victim struct {
	url    string
	record string // the driver's note of the run
}

func (v victim) pid(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(v.record)
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ PID int }
	decode(t, string(data), &record)
	if record.PID <= 1 {
		t.Fatalf("the run has no process: %s", data)
	}
	return record.PID
}

// signal goes to the process with which the run ends.
func (v victim) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(v.pid(t), sig); err != nil {
		t.Fatal(err)
	}
}

// shrink leaves the sandbox's cgroup room bytes above what it uses now.
func (v victim) shrink(t *testing.T, room int64) {
	t.Helper()
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", v.pid(t)))
	if err != nil {
		t.Fatal(err)
	}
	dir, use, limits := "", "memory.usage_in_bytes", []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	for _, line := range strings.Split(string(groups), "\n") {
		fields := strings.SplitN(line, ":", 3)
		switch {
		case len(fields) < 3:
		case fields[1] == "memory":
			dir = filepath.Join("/sys/fs/cgroup/memory", fields[2])
		case fields[0] == "0" && dir == "":
			if path := filepath.Join("/sys/fs/cgroup", fields[2]); exists(filepath.Join(path, "memory.max")) {
				dir, use, limits = path, "memory.current", []string{"memory.max"}
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, use))
	if err != nil {
		t.Fatal(err)
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range limits {
		file := filepath.Join(dir, name)
		if !exists(file) {
			continue
		}
		if err := os.WriteFile(file, []byte(strconv.FormatInt(used+room, 10)), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func onlyFile(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v, want one", pattern, found, err)
	}
	return found[0]
}

func must(t *testing.T, want int, method, url, body string) string {
	t.Helper()
	status, text := call(t, method, url, body)
	if status != want {
		t.Fatalf("%s %s = %d %s, want %d", method, url, status, text, want)
	}
	return text
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
