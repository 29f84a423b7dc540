//go:build root

package journal

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/disktest"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestFullHostDisk fills a real file system: the log refuses, keeps what it
// acknowledged, and goes on when there is room.
func TestFullHostDisk(t *testing.T) {
	dir, makeRoom := disktest.Small(t, "1m", 512<<10)
	box := sandbox.NewUID()
	j := openDir(t, filepath.Join(dir, "journal"), Limits{})
	l := create(t, j, box, 1)
	var refused error
	for refused == nil && l.Size() < 4<<20 {
		at := l.Size()
		refused = l.Append(sandbox.Output{Offset: at, Stream: sandbox.Stdout, Data: pattern(at, 40_000)})
	}
	if !errors.Is(refused, errs.Exhausted) {
		t.Fatalf("Append to a full disk = %v, want exhausted", refused)
	}
	full := l.Size()
	makeRoom()
	if err := l.Append(sandbox.Output{Offset: full, Stream: sandbox.Stdout, Data: pattern(full, 1000)}); err != nil {
		t.Fatalf("Append after there was room = %v", err)
	}
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	c, err := j.Collect(t.Context(), box, 1, Caps{Stdout: -1, Stderr: -1, Rich: -1})
	if err != nil || string(c.Stdout) != string(pattern(0, int(full)+1000)) {
		t.Errorf("Collect = %d bytes, %v, want %d", len(c.Stdout), err, full+1000)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}
