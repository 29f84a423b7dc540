package journal

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestSpares(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	left := filepath.Join(dir, "spare", "1.log")
	if err := os.Mkdir(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("of a process that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := openDir(t, dir, Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := j.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	// More than are ready at once, and each is a log like any other.
	for seq := int64(1); seq <= 3*spareCount; seq++ {
		l := create(t, j, box, seq)
		write(t, l, sandbox.Stdout, "output")
		if seq%2 == 0 {
			if err := l.Finish(exited(0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel()
	running.Wait()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("after Run there is %v, %v, want the box's directory alone", entries, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = openDir(t, dir, Limits{})
	if uids, err := j.Boxes(); err != nil || len(uids) != 1 {
		t.Errorf("Boxes = %v, %v", uids, err)
	}
	for seq := int64(1); seq <= 3*spareCount; seq++ {
		l := create(t, j, box, seq)
		if l.Size() != 6 || (l.Exit() != nil) != (seq%2 == 0) {
			t.Errorf("log %d reopened: %d bytes, exit %v", seq, l.Size(), l.Exit())
		}
	}
}

// TestSpareNeverReplaces: a file that is there wins over a spare one.
func TestSpareNeverReplaces(t *testing.T) {
	dir := t.TempDir()
	j := openDir(t, filepath.Join(dir, "journal"), Limits{})
	if err := j.spares.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer j.spares.end()
	path := filepath.Join(dir, "taken")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := j.spares.take(path); f != nil {
		t.Error("a spare took the place of a file")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
		t.Errorf("the file is %q, %v", got, err)
	}
	before := len(j.spares.ready)
	l := create(t, j, sandbox.NewUID(), 1)
	if len(j.spares.ready) != before-1 || l.Size() != 0 {
		t.Errorf("Create used %d spares, want 1", before-len(j.spares.ready))
	}
}

// TestSparesComeWhenTheDirectoryWorksAgain: a directory that cannot be used for a while,
// at the start or later, ends neither Run, and the daemon with it, nor the making of spares.
func TestSparesComeWhenTheDirectoryWorksAgain(t *testing.T) {
	dir := t.TempDir()
	j := openDir(t, filepath.Join(dir, "journal"), Limits{})
	place := filepath.Join(dir, "place")
	j.spares.dir = filepath.Join(place, "spare")
	breakIt := func() {
		t.Helper()
		if err := os.WriteFile(place, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	breakIt()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	box, seq := sandbox.NewUID(), int64(0)
	ready := func() int {
		j.spares.mu.Lock()
		defer j.spares.mu.Unlock()
		return len(j.spares.ready)
	}
	more := func() {
		t.Helper()
		seq++
		create(t, j, box, seq)
		select {
		case err := <-ended:
			t.Fatalf("Run ended: %v", err)
		default:
		}
	}
	for range 3 {
		more()
	}
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	for ready() == 0 {
		more()
	}
	// And once more while it runs, after all that there were are used.
	if err := os.Rename(place, place+".gone"); err != nil { // at once: it is being filled
		t.Fatal(err)
	}
	breakIt()
	for ready() > 0 {
		more()
	}
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	for ready() == 0 {
		more()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
}
