//go:build root

package local

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKeepHasWhatIsNotOnTheImageYet: a disk that is mounted has more than its image, and
// its snapshots are as old as they are.
func TestKeepHasWhatIsNotOnTheImageYet(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 64<<20)
	note := filepath.Join(disk.Dir, "workspace", "note")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(note, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("before")
	if _, _, err := d.Snapshot(t.Context(), disk.UID, "first"); err != nil {
		t.Fatal(err)
	}
	write("0123456789")
	dir, done, err := d.Keep(t.Context(), disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	write("later")
	for in, want := range map[string]string{dir: "0123456789", filepath.Join(dir, snapshotsName, "first"): "before"} {
		if err := mountImage(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(in, mountName, "workspace", "note"))
		if err != nil || string(text) != want {
			t.Errorf("%s has %q, %v; want %q", in, text, err, want)
		}
		if err := unmountDir(in); err != nil {
			t.Fatal(err)
		}
	}
	done()
	if left, err := os.ReadDir(filepath.Join(d.cfg.Dir, poolName)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if all, err := d.Snapshots(t.Context(), disk.UID); err != nil || len(all) != 1 {
		t.Errorf("the disk's own snapshots: %v, %v", all, err)
	}
}
