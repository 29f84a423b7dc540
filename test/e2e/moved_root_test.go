//go:build root

package e2e_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// asks is [call] whose answer has a status.
func asks(t *testing.T, want int, method, url, body string) (text string) {
	t.Helper()
	status, text := call(t, method, url, body)
	if status != want {
		t.Fatalf("%s %s = %d %s, want %d", method, url, status, text, want)
	}
	return text
}

// stdoutOf is what a command with a time limit prints.
func stdoutOf(t *testing.T, url, id, cmd string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"cmd": cmd, "timeout_seconds": 30, "user": "root"})
	if err != nil {
		t.Fatal(err)
	}
	var res struct{ Stdout string }
	text := asks(t, http.StatusOK, "POST", url+"/v1/sandboxes/"+id+"/exec", string(body))
	if err := json.Unmarshal([]byte(text), &res); err != nil {
		t.Fatal(err)
	}
	return res.Stdout
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// furnished has sandboxes of both isolations in a daemon, "g" and "c", with files and a
// snapshot each, of "g" with memory, and "s" that sleeps with a variable of its shell's.
func furnished(t *testing.T, url string) {
	t.Helper()
	box := url + "/v1/sandboxes/"
	for id, isolation := range map[string]string{"g": "gvisor", "c": "container", "s": "gvisor"} {
		asks(t, http.StatusCreated, "POST", url+"/v1/sandboxes", `{"id":"`+id+`","isolation":"`+isolation+`"}`)
		asks(t, http.StatusOK, "PUT", box+id+"/files?path=/workspace/kept", "0123456789")
		stdoutOf(t, url, id, "echo system > /etc/of-the-system; sync")
	}
	asks(t, http.StatusCreated, "POST", url+"/v1/snapshots", `{"source_sandbox_id":"g","name":"of-g","memory":true}`)
	asks(t, http.StatusCreated, "POST", url+"/v1/snapshots", `{"source_sandbox_id":"c","name":"of-c"}`)
	for _, id := range []string{"g", "c"} {
		asks(t, http.StatusOK, "PUT", box+id+"/files?path=/workspace/later", "later")
	}
	stdoutOf(t, url, "s", "sleep 1000 & echo $! > /workspace/pid")
	asks(t, http.StatusOK, "POST", box+"s/sleep", "")
}

// whole checks that all of [furnished] is there.
func whole(t *testing.T, url string) {
	t.Helper()
	box := url + "/v1/sandboxes/"
	for _, id := range []string{"g", "c"} {
		asks(t, http.StatusOK, "POST", box+id+"/start", "")
		same(t, id, stdoutOf(t, url, id, "cat /workspace/kept /workspace/later /etc/of-the-system; echo more >> /workspace/later"), "0123456789latersystem\n")
	}
	asks(t, http.StatusOK, "POST", box+"s/wake", "")
	same(t, "s", stdoutOf(t, url, "s", "cat /workspace/kept; kill -0 $(cat /workspace/pid) && echo alive"), "0123456789alive\n")
	for _, id := range []string{"g", "c"} {
		asks(t, http.StatusOK, "POST", box+id+"/rollback", `{"snapshot":"of-`+id+`"}`)
		same(t, id+" after the rollback", stdoutOf(t, url, id, "ls /workspace"), "kept\n")
	}
}

// TestADataDirectoryMoves: what is noted of sandboxes had absolute paths, so that none
// could be started elsewhere.
func TestADataDirectoryMoves(t *testing.T) {
	t.Parallel()
	moved := filepath.Join(harness.TempDir(t), "moved")
	h := newReal(t, harness.Options{})
	h.MustStart()
	furnished(t, h.URL)
	for _, id := range []string{"g", "c"} {
		asks(t, http.StatusOK, "POST", h.URL+"/v1/sandboxes/"+id+"/stop", "")
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(h.Dir, moved); err != nil {
		t.Fatal(err)
	}
	h.Dir = moved
	h.MustStart()
	h.WaitReady()
	whole(t, h.URL)
}

// TestACopyOfADataDirectoryInUseIsRefused: it took what the original ran for its own.
func TestACopyOfADataDirectoryInUseIsRefused(t *testing.T) {
	t.Parallel()
	h := newReal(t, harness.Options{})
	h.MustStart()
	box := h.URL + "/v1/sandboxes/"
	for id, isolation := range map[string]string{"g": "gvisor", "c": "container"} {
		asks(t, http.StatusCreated, "POST", h.URL+"/v1/sandboxes", `{"id":"`+id+`","isolation":"`+isolation+`"}`)
		asks(t, http.StatusOK, "PUT", box+id+"/files?path=/workspace/kept", "0123456789")
		stdoutOf(t, h.URL, id, "sync")
	}
	twin := newReal(t, harness.Options{Dir: filepath.Join(harness.TempDir(t), "copy")})
	// What is mounted in there is not a file that could be copied.
	if out, err := exec.Command("cp", "-ax", "--sparse=always", h.Dir, twin.Dir).CombinedOutput(); err != nil && !strings.Contains(string(out), "null-netns") {
		t.Fatalf("%v: %s", err, out)
	}
	refused := func(when, want string) {
		t.Helper()
		if err := twin.Start(); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s the copy's daemon = %v, want it to say %q", when, err, want)
		}
		_ = twin.Kill()
	}
	refused("while the original's runs", "is a copy of "+h.Dir+", which another daemon uses")
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	refused("while sandboxes run", "is a copy of "+h.Dir+", whose sandboxes still run")
	// One that was made before directories had an identity.
	if err := os.Remove(filepath.Join(twin.Dir, "instance.json")); err != nil {
		t.Fatal(err)
	}
	refused("without an identity", "whose sandboxes still run")
	h.MustStart()
	h.WaitReady()
	for _, id := range []string{"g", "c"} {
		same(t, id+" of the original", stdoutOf(t, h.URL, id, "cat /workspace/kept"), "0123456789")
		asks(t, http.StatusOK, "POST", h.URL+"/v1/sandboxes/"+id+"/stop", "")
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	twin.MustStart()
	twin.WaitReady()
	for _, id := range []string{"g", "c"} {
		asks(t, http.StatusOK, "POST", twin.URL+"/v1/sandboxes/"+id+"/start", "")
		same(t, id+" of the copy", stdoutOf(t, twin.URL, id, "cat /workspace/kept"), "0123456789")
	}
}

// TestADirectoryWithoutAnIdentityIsTakenOver: an earlier version made it, whose sandboxes
// run below a cgroup that followed from the path.
func TestADirectoryWithoutAnIdentityIsTakenOver(t *testing.T) {
	t.Parallel()
	h := newReal(t, harness.Options{})
	sum := sha256.Sum256([]byte(h.Dir))
	identity := filepath.Join(h.Dir, "instance.json")
	if err := os.WriteFile(identity, fmt.Appendf(nil, `{"id":"of-an-earlier-version","cgroups":"cubby-%x"}`, sum[:4]), 0o600); err != nil {
		t.Fatal(err)
	}
	h.MustStart()
	for id, isolation := range map[string]string{"g": "gvisor", "c": "container"} {
		asks(t, http.StatusCreated, "POST", h.URL+"/v1/sandboxes", `{"id":"`+id+`","isolation":"`+isolation+`"}`)
		stdoutOf(t, h.URL, id, "sleep 1000 & echo $! > /workspace/pid")
	}
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(identity); err != nil {
		t.Fatal(err)
	}
	h.MustStart()
	h.WaitReady()
	for _, id := range []string{"g", "c"} {
		same(t, id, stdoutOf(t, h.URL, id, "kill -0 $(cat /workspace/pid) && echo alive"), "alive\n")
	}
}
