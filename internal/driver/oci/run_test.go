package oci

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
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
		if _, err := d.open(b.uid, rec); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("open = %v, want a process that is done", err)
		}
	}
}

// A command of the runtime that a killed daemon began may hang. What waits for its end
// gives up when its own time is over: others wait for the sandbox meanwhile.
func TestARuntimeThatHangsIsNotWaitedForForEver(t *testing.T) {
	b := box{uid: sandbox.NewUID(), dir: t.TempDir()}
	hangs, err := b.lockRuntime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	gaveUp := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err := b.lockRuntime(ctx)
		gaveUp <- err
	}()
	select {
	case err := <-gaveUp:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lockRuntime = %v, want that its time is over", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("lockRuntime waits on")
	}
}

// A pause of which nobody knows whether it has ended is still in the notes: who takes the
// sandbox up again tries once more to end it.
func TestAPauseThatDidNotEndIsStillInTheNotes(t *testing.T) {
	d := &Driver{cfg: Config{StateDir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	n := note{UID: sandbox.NewUID()}
	b := d.box(n.UID)
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	rec := record{Secret: "s", Sleeping: true, Paused: true}
	if err := b.setRecord(rec); err != nil {
		t.Fatal(err)
	}
	p, err := pidfd.Open(os.Getpid(), 0) // a program that is no runtime
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := d.goOn(ctx, n, p, rec); err != nil {
		t.Fatal(err)
	}
	if got, _, err := b.record(); err != nil || !got.Sleeping {
		t.Errorf("the notes say %+v, %v; want that it may be paused", got, err)
	}
}
