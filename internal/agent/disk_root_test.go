//go:build root

package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/disktest"
)

// TestFullDisk: a run that can write neither its journal nor its rows ends when there
// is room again, its followers with it, and the thread goes on.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	f := counted(w)
	dir, makeRoom := disktest.Small(t, "8m", 2<<20)
	w.dir = dir
	s, _ := w.daemon()
	thread := newThread(t, s)
	do(t, s, thread, says("one"))
	run := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	ended := make(chan conversation.Run)
	go func() {
		got, _ := wait(t, s, thread, run)
		ended <- got
	}()
	fill(t, filepath.Join(dir, "full"))
	close(w.model.release)
	// The end of the run is owed from here on, and not known to anybody.
	until(t, func() bool { return f.n.Load() > 0 })
	if got := status(t, s, thread); got != conversation.ThreadBusy {
		t.Errorf("the thread is %s", got)
	}
	makeRoom()
	got := <-ended
	if !got.Status.Ended() {
		t.Errorf("run = %+v", got)
	}
	if status := status(t, s, thread); status == conversation.ThreadBusy {
		t.Errorf("the thread is %s", status)
	}
	_, said := do(t, s, thread, says("two"))
	equal(t, "last", said[len(said)-1], "ai:said two")
}

// fill writes until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for data := make([]byte, 64<<10); len(data) > 0; {
		n, err := f.Write(data)
		switch {
		case errors.Is(err, unix.ENOSPC):
			data = data[:len(data)/2]
		case err != nil:
			t.Fatal(err)
		case n < len(data):
			data = data[:len(data)/2]
		}
	}
}
