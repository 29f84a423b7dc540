//go:build root

package oci

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/idrange"
	"github.com/cubbyhq/cubby/internal/driver/oci/userns"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Each run of a container has a range of ids that no other has, whatever daemon
// started it, and a sandbox that was stopped does not insist on the one that
// others have got meanwhile.
func TestContainersShareNoIDs(t *testing.T) {
	m := newMachine(t, crun)
	ctx := t.Context()
	// As few ranges as containers run: where one could be given twice, it is.
	two := idrange.Area{First: 0x7ffa_0000, End: 0x7ffc_0000}
	open := func() *Driver {
		d := m.open(t)
		d.namespaces.Close()
		d.namespaces = userns.New(idrange.Open(idrange.Locks, two), 0, 0) // those that are made ahead hold ranges too
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
