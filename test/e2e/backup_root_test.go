//go:build root

package e2e_test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/store/postgrestest"
	"github.com/cubbyhq/cubby/test/harness"
)

// cubby runs the program with a daemon's data directory and URL.
func cubby(t *testing.T, h realHost, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(h.Program, args...)
	cmd.Env = append(os.Environ(), "CUBBY_URL="+h.URL, "CUBBY_DATA_DIR="+h.Dir, harness.AnyDisk)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// restored is a daemon on what a backup has, beside the one that was backed up.
func restored(t *testing.T, of realHost, file string) realHost {
	t.Helper()
	twin := newReal(t, harness.Options{Dir: filepath.Join(harness.TempDir(t), "restored")})
	if out, err := cubby(t, of, "restore", "--data-dir", twin.Dir, file); err != nil {
		t.Fatalf("restore: %v: %s", err, out)
	}
	twin.MustStart()
	twin.WaitReady()
	return twin
}

// TestABackupHasWhatWasWritten: a copy of the data directory had nothing of what a
// sandbox wrote that went on running when the daemon was stopped.
func TestABackupHasWhatWasWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(harness.TempDir(t), "backup.tar")
	h := newReal(t, harness.Options{})
	h.MustStart()
	furnished(t, h.URL)
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := cubby(t, h, "backup", file); err != nil {
		t.Fatalf("backup: %v: %s", err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is %v, %v; want one for its owner alone", info, err)
	}
	if out, err := cubby(t, h, "backup", file); err == nil || !strings.Contains(out, "exists already") {
		t.Errorf("a second backup of the same name: %v, %s", err, out)
	}
	if out, err := cubby(t, h, "restore", file); err == nil || !strings.Contains(out, "is not empty") {
		t.Errorf("restore over the data directory: %v, %s", err, out)
	}
	twin := restored(t, h, file)
	// What gVisor has of the system's files is in its memory until a stop.
	box := twin.URL + "/v1/sandboxes/"
	for id, want := range map[string]string{"g": "0123456789later", "c": "0123456789latersystem\n"} {
		asks(t, http.StatusOK, "POST", box+id+"/start", "")
		same(t, id, stdoutOf(t, twin.URL, id, "cat /workspace/kept /workspace/later; cat /etc/of-the-system 2>/dev/null"), want)
	}
	asks(t, http.StatusOK, "POST", box+"s/wake", "")
	same(t, "s", stdoutOf(t, twin.URL, "s", "cat /workspace/kept; kill -0 $(cat /workspace/pid) && echo alive"), "0123456789alive\n")
	for _, id := range []string{"g", "c"} {
		asks(t, http.StatusOK, "POST", box+id+"/rollback", `{"snapshot":"of-`+id+`"}`)
		same(t, id+" after the rollback", stdoutOf(t, twin.URL, id, "ls /workspace"), "kept\n")
	}
	// The original's own sandboxes ran on beside all that.
	h.MustStart()
	h.WaitReady()
	for _, id := range []string{"g", "c"} {
		same(t, id+" of the original", stdoutOf(t, h.URL, id, "cat /workspace/kept /workspace/later"), "0123456789later")
	}
}

// TestABackupUnderLoad: what was acknowledged before the backup began is in it, while
// programs write on.
func TestABackupUnderLoad(t *testing.T) {
	t.Parallel()
	file := filepath.Join(harness.TempDir(t), "backup.tar")
	h := newReal(t, harness.Options{})
	h.MustStart()
	const counter = `import os, itertools
f = os.open("/workspace/count", os.O_CREAT | os.O_RDWR)
for n in itertools.count(1):
    os.pwrite(f, b"%020d" % n, 0)
    os.fsync(f)
    print(n, flush=True)
`
	for id, isolation := range map[string]string{"g": "gvisor", "c": "container"} {
		asks(t, http.StatusCreated, "POST", h.URL+"/v1/sandboxes", `{"id":"`+id+`","isolation":"`+isolation+`"}`)
		asks(t, http.StatusOK, "PUT", h.URL+"/v1/sandboxes/"+id+"/files?path=/workspace/count.py", counter)
		stdoutOf(t, h.URL, id, "nohup python3 /workspace/count.py > /workspace/acknowledged 2>&1 &")
	}
	acknowledged := make(map[string]int)
	for id := range map[string]bool{"g": true, "c": true} {
		for deadline := time.Now().Add(harness.Patience); acknowledged[id] < 10; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s counted to %d", id, acknowledged[id])
			}
			text := strings.TrimSpace(stdoutOf(t, h.URL, id, "tail -n 1 /workspace/acknowledged"))
			acknowledged[id], _ = strconv.Atoi(text) // a line may be cut
		}
	}
	if out, err := cubby(t, h, "backup", file); err != nil {
		t.Fatalf("backup: %v: %s\n%s", err, out, h.Log())
	}
	twin := restored(t, h, file)
	for id, least := range acknowledged {
		asks(t, http.StatusOK, "POST", twin.URL+"/v1/sandboxes/"+id+"/start", "")
		text := stdoutOf(t, twin.URL, id, "cat /workspace/count")
		if n, err := strconv.Atoi(strings.TrimLeft(text, "0")); err != nil || n < least {
			t.Errorf("%s counted to %q, %v; want at least %d", id, text, err, least)
		}
	}
}

// TestADamagedBackupIsRefused: nothing of it is left.
func TestADamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	dir := harness.TempDir(t)
	h := newReal(t, harness.Options{})
	h.MustStart()
	asks(t, http.StatusCreated, "POST", h.URL+"/v1/sandboxes", `{"id":"a","isolation":"container"}`)
	file := filepath.Join(dir, "backup.tar")
	if out, err := cubby(t, h, "backup", "--without", "images", file); err != nil {
		t.Fatalf("backup: %v: %s", err, out)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, content := range map[string][]byte{"cut": whole[:len(whole)/2], "flipped": flipped, "without its last byte": whole[:len(whole)-1]} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, "to")
		if out, err := cubby(t, h, "restore", "--data-dir", to, file); err == nil || !strings.Contains(out, "the backup is damaged") {
			t.Errorf("%s: %v, %s", name, err, out)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s left %v, %v", name, left, err)
		}
	}
}

// TestABackupWithoutAServersDatabase: the database is on a server, and is backed up there.
func TestABackupWithoutAServersDatabase(t *testing.T) {
	t.Parallel()
	file := filepath.Join(harness.TempDir(t), "backup.tar")
	database := postgrestest.New(t)
	h := newReal(t, harness.Options{Database: database})
	twin := newReal(t, harness.Options{Database: database, Dir: filepath.Join(harness.TempDir(t), "restored")})
	h.MustStart()
	asks(t, http.StatusCreated, "POST", h.URL+"/v1/sandboxes", `{"id":"a","isolation":"container"}`)
	asks(t, http.StatusOK, "PUT", h.URL+"/v1/sandboxes/a/files?path=/workspace/kept", "0123456789")
	if out, err := cubby(t, h, "backup", file); err == nil || !strings.Contains(out, "--without database") {
		t.Errorf("a backup with the database: %v, %s", err, out)
	}
	if out, err := cubby(t, h, "backup", "--without", "database", file); err != nil {
		t.Fatalf("backup: %v: %s", err, out)
	}
	asks(t, http.StatusOK, "POST", h.URL+"/v1/sandboxes/a/stop", "")
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := cubby(t, h, "restore", "--data-dir", twin.Dir, file); err != nil {
		t.Fatalf("restore: %v: %s", err, out)
	}
	twin.MustStart()
	twin.WaitReady()
	asks(t, http.StatusOK, "POST", twin.URL+"/v1/sandboxes/a/start", "")
	same(t, "a", stdoutOf(t, twin.URL, "a", "cat /workspace/kept"), "0123456789")
}
