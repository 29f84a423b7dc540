//go:build root

package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/spare"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Each run of a container has a range of ids that no other has, whatever daemon
// started it, and a sandbox that was stopped does not insist on the one that
// others have got meanwhile.
func TestContainersShareNoIDs(t *testing.T) {
	m := newMachine(t, crun)
	ctx := t.Context()
	// As few ranges as containers run: where one could be given twice, it is.
	two := []idArea{{0x7ffa_0000, 0x7ffc_0000}}
	open := func() *Driver {
		d := m.open(t)
		d.namespaces.ranges.areas, d.namespaces.ranges.reserved = two, nil
		d.namespaces.spares = spare.New(0, 0, d.namespaces.newRange, d.namespaces.discard) // they hold ranges too
		return d
	}
	d := open()
	handles := make(map[sandbox.UID]driver.Handle)
	t.Cleanup(func() {
		d := m.open(t)
		for _, h := range handles {
			if err := d.Destroy(context.Background(), h); err != nil {
				t.Error(err)
			}
		}
		m.left(t)
	})
	launch := func() sandbox.UID {
		spec := testSpec(t, sandbox.Container)
		h, err := d.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		handles[spec.UID] = h
		if err := d.Start(ctx, h); err != nil {
			t.Fatal(err)
		}
		return spec.UID
	}
	apart := func(when string, uids ...sandbox.UID) {
		t.Helper()
		seen := make(map[string]bool)
		for _, uid := range uids {
			rec, _, err := d.box(uid).record()
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile("/proc/" + itoa(rec.PID) + "/uid_map")
			if err != nil {
				t.Fatal(err)
			}
			if ids := strings.Join(strings.Fields(string(data)), " "); seen[ids] || !strings.HasSuffix(ids, " 65536") {
				t.Errorf("%s, %s has the ids %q, another one too: %v", when, uid, ids, seen[ids])
			} else {
				seen[ids] = true
			}
		}
	}
	a := launch()
	// Its daemon is killed, and the next one has not looked at what runs.
	d = open()
	b := launch()
	apart("after a daemon that was killed", a, b)
	if err := d.Adopt(ctx, handles[a]); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(ctx, handles[a], time.Second); err != nil {
		t.Fatal(err)
	}
	c := launch()
	apart("with one stopped", b, c)
	if err := d.Destroy(ctx, handles[b]); err != nil {
		t.Fatal(err)
	}
	delete(handles, b)
	if err := d.Start(ctx, handles[a]); err != nil {
		t.Fatalf("start again, with the range of another one: %v", err)
	}
	apart("started again", a, c)
}

// A range that a program of the host runs in, or was given, is not taken.
func TestIDRangesOfOthers(t *testing.T) {
	r := testRanges(t, filepath.Join(t.TempDir(), "locks"), 4)
	// A process in the first, what is left of one in another, and some of the
	// host's own users.
	const fields = " 1 2 2 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0\n"
	for pid, p := range map[string]struct {
		uid  int
		stat string
	}{
		"1":    {0, "1 (init) S" + fields},
		"20":   {1000, "20 (sh) S" + fields},
		"21":   {0x7000_0000 + 1000, "21 (a) b) S" + fields},
		"22":   {0x7003_0000, "22 (sh) Z" + fields},
		"self": {0x7003_0000, "1 (sh) S" + fields},
	} {
		dir := filepath.Join(r.proc, pid)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(p.stat), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, p.uid, p.uid); err != nil {
			t.Fatal(err)
		}
	}
	// The second overlaps with a user's subordinate ids.
	file := filepath.Join(t.TempDir(), "subuid")
	content := "# comment\nme:100000:65536\nyou:1879115000:10\nhe:x:y\n"
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	r.reserved = []string{file, "/no/such/file"}
	for range 2 {
		if base := claim(t, r); base != 0x7002_0000 && base != 0x7003_0000 {
			t.Errorf("claimed %#x, which is somebody else's", base)
		}
	}
	// What is only set aside is better than none, what is used is not.
	if base := claim(t, r); base != 0x7001_0000 {
		t.Errorf("claimed %#x, want the reserved one", base)
	}
	if _, err := r.claim(); !errors.Is(err, errs.Exhausted) {
		t.Errorf("claimed a range that a process runs in: %v", err)
	}
}
