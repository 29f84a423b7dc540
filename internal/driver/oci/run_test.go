package oci

import (
	"errors"
	"os"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestRecord(t *testing.T) {
	b := box{uid: sandbox.NewUID(), dir: t.TempDir()}
	if _, found, err := b.record(); found || err != nil {
		t.Fatalf("record of no run = %t, %v", found, err)
	}
	for _, want := range []record{{Secret: "s", HostID: "boot"}, {Secret: "s", HostID: "boot", PID: 42, StartTime: 7}} {
		if err := b.setRecord(want); err != nil {
			t.Fatal(err)
		}
		if got, found, err := b.record(); got != want || !found || err != nil {
			t.Errorf("record = %+v, %t, %v, want %+v", got, found, err, want)
		}
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left beside the record: %v, %v", entries, err)
	}
}

// A crash of the host can leave a file that was never written out. The run is
// over then, and the sandbox must not be stuck with a note that nobody reads.
func TestRecordEmptiedByACrash(t *testing.T) {
	b := box{uid: sandbox.NewUID(), dir: t.TempDir()}
	for _, left := range [][]byte{nil, make([]byte, 100)} {
		if err := os.WriteFile(b.runFile(), left, 0o600); err != nil {
			t.Fatal(err)
		}
		rec, found, err := b.record()
		if !found || err != nil {
			t.Fatalf("record = %t, %v, want one", found, err)
		}
		d := &Driver{hostID: "boot"}
		if _, err := d.open(rec); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("open = %v, want a process that is done", err)
		}
	}
}
