package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/uptime"
)

// TestStdinEndsAfterTheCommand: a command may end when it has read what it wanted,
// before its standard input is closed. That is no error, and more data is one.
func TestStdinEndsAfterTheCommand(t *testing.T) {
	for _, tty := range []bool{false, true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		s := newStdin(w, tty)
		if at, err := s.write(t.Context(), 0, []byte("x\n"), false); at != 2 || err != nil {
			t.Fatalf("write = %d, %v", at, err)
		}
		if err := errors.Join(r.Close(), w.Close()); err != nil { // as the end of the command does
			t.Fatal(err)
		}
		if at, err := s.write(t.Context(), 2, []byte("y"), false); at != 2 || !errors.Is(err, errs.WrongState) {
			t.Errorf("tty %v: data for who has ended = %d, %v", tty, at, err)
		}
		if at, err := s.write(t.Context(), 2, nil, true); at != 2 || err != nil {
			t.Errorf("tty %v: the end of the input of who has ended = %d, %v", tty, at, err)
		}
	}
}

// The end of the input that a terminal had no room for counted as passed on: the
// host said it again and was told so, and the program waited for ever.
func TestEndOfInputOfATerminalWithoutRoom(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	full := fill(t, w)
	s := newStdin(w, true)
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.write(brief, 0, nil, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the end without room = %v, want that time is up", err)
	}
	if _, err := io.CopyN(io.Discard, r, full); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write(t.Context(), 0, nil, true); err != nil {
		t.Errorf("the end with room = %v", err)
	}
	if err := r.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	end := make([]byte, 2)
	if n, _ := io.ReadAtLeast(r, end, 1); string(end[:n]) != "\x04" {
		t.Errorf("the program read %q, want one end of transmission", end[:n])
	}
	if _, err := s.write(t.Context(), 0, []byte("x"), false); !errors.Is(err, errs.WrongState) {
		t.Errorf("data after the end = %v, want wrong state", err)
	}
}

// A terminal that another process still has open is read for a while after the end
// of its command. An agent that was not scheduled meanwhile read nothing of what the
// command had printed last.
func TestOutputOfATerminalThatEndsSlowly(t *testing.T) {
	s := &stdio{Files: &Files{null: -1}}
	defer s.close()
	if err := s.openTerminal(&guestv1.WindowSize{Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	o := s.outs[0]
	close(o.done) // copy has returned, at its deadline
	const last = "the last words"
	if _, err := unix.Write(s.fds[0], []byte(last)); err != nil {
		t.Fatal(err)
	}
	out := newOutput(newBudget(outputTotal))
	o.drain(t.Context(), out, Config{Uptime: uptime.New(), Now: time.Now})
	segments, _, err := out.After(0)
	if err != nil || len(segments) != 1 || string(segments[0].Data) != last {
		t.Errorf("output %v, %v, want %q", segments, err, last)
	}
}

// fill writes to w until it has no room, and returns how many bytes fit.
func fill(t *testing.T, w *os.File) (n int64) {
	t.Helper()
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Write(func(fd uintptr) bool {
		for _, size := range []int{4096, 1} {
			for full := false; !full; {
				m, err := unix.Write(int(fd), make([]byte, size))
				n += int64(max(m, 0))
				full = err != nil && err != unix.EINTR
			}
		}
		return true
	})
	if err != nil || n == 0 {
		t.Fatalf("%d bytes fit, %v", n, err)
	}
	return n
}
