package proc

import (
	"errors"
	"os"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
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
