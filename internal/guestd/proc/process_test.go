package proc

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

func TestDirectLearnsHowChildrenEnd(t *testing.T) {
	d := &direct{}
	defer d.close()
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -9 $$": -1} {
		_, ended, err := d.start("/bin/sh", []string{"sh", "-c", script}, attr)
		if err != nil {
			t.Fatal(err)
		}
		if ws := <-ended; ws.ExitStatus() != want {
			t.Errorf("%q ended with %d, want %d", script, ws.ExitStatus(), want)
		}
	}
	if _, _, err := d.start("/no/such", []string{"x"}, attr); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("start of nothing = %v, want ENOENT", err)
	}
}

// A child can be reaped before the fork that made it has returned its pid.
func TestReaperKeepsEarlyEnds(t *testing.T) {
	r := &reaper{early: map[int]syscall.WaitStatus{}, waiting: map[int]chan<- syscall.WaitStatus{}}
	r.starting = 1
	r.settle(4242, syscall.WaitStatus(7<<8))
	ended := make(chan syscall.WaitStatus, 1)
	r.expect(4242, ended)
	if ws := <-ended; ws.ExitStatus() != 7 {
		t.Errorf("exit status = %d, want 7", ws.ExitStatus())
	}
	r.starting = 0
	r.settle(4343, 0) // an orphan: nobody waits for it
	if len(r.early)+len(r.waiting) != 0 {
		t.Errorf("%d and %d entries are left", len(r.early), len(r.waiting))
	}
	r.expect(4444, ended)
	r.settle(4444, syscall.WaitStatus(9))
	if ws := <-ended; ws.Signal() != syscall.SIGKILL {
		t.Errorf("signal = %v, want SIGKILL", ws.Signal())
	}
}
