package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shownLog is how much of a daemon's log a failed test prints.
const shownLog = 64 << 10

// clean purges every sandbox that the test left and checks that nothing of
// them stays on the host.
func (d *Daemon) clean() {
	if d.t.Failed() {
		d.mu.Lock()
		before := d.before
		d.mu.Unlock()
		for name, log := range map[string]string{"daemon's log": d.Log(), "log of the daemon before it": before} {
			if log != "" {
				d.t.Logf("the end of the %s:\n%s", name, log[max(0, len(log)-shownLog):])
			}
		}
	}
	if d.URL != "" {
		d.purgeAll()
	}
	Unmount(d.t, d.Dir)
}

// Unmount frees a data directory that no daemon uses. What should not be
// mounted there fails the test.
func Unmount(t testing.TB, dir string) {
	t.Helper()
	for _, left := range MountsBelow(dir) {
		// Disks of the pool are the daemon's own and stay mounted while it is
		// away.
		if !strings.Contains(left, "/disks/pool/") {
			t.Errorf("left mounted: %s", left)
		}
		if err := syscall.Unmount(left, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", left, err)
		}
	}
}

// purgeAll leaves a stopped daemon without sandboxes.
func (d *Daemon) purgeAll() {
	// The daemon that runs can do it, unless it asks for tokens.
	if !d.Running() || PurgeAll(d.URL) != nil {
		_ = d.Stop() // says so itself
		if err := d.Start(); err != nil {
			d.t.Errorf("start again to clean up: %v", err)
			return
		}
		if err := PurgeAll(d.URL); err != nil {
			d.t.Error(err)
		}
	}
	_ = d.Stop() // as above
}

// PurgeAll purges every sandbox of a daemon that asks for no token.
func PurgeAll(url string) error {
	client := &http.Client{Timeout: 2 * time.Minute}
	res, err := client.Get(url + "/v1/sandboxes?limit=1000")
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	defer res.Body.Close()
	var list struct {
		Sandboxes []struct {
			ID string `json:"id"`
		} `json:"sandboxes"`
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("list: %s", res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for _, box := range list.Sandboxes {
		res, err := client.Post(url+"/v1/sandboxes/"+box.ID+"/purge", "", nil)
		if err != nil {
			return fmt.Errorf("purge %s: %w", box.ID, err)
		}
		_ = res.Body.Close() // its status is all that counts
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("purge %s: %s", box.ID, res.Status)
		}
	}
	return nil
}

// OwnMount reports whether a mount below a data directory is the daemon's own, and
// no sandbox's: disks that are ready, and what gVisor's sandboxes share.
func OwnMount(path string) bool {
	return strings.Contains(path, "/disks/pool/") || strings.HasSuffix(path, "/run/oci/shared/null-netns")
}

// MountsBelow lists what is mounted below a directory, the innermost first.
func MountsBelow(dir string) []string {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			found = append(found, f[1])
		}
	}
	slices.Reverse(found)
	return found
}
