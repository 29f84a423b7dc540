package cli

import (
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestShell types into a real terminal: what it shows, resizes, Ctrl-C and the
// exit code.
func TestShell(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	if res := cubby(t, d.URL, nil, "create", "--id", "box"); res.code != 0 {
		t.Fatalf("create: %+v", res)
	}
	user, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	resize := func(cols, rows uint16) {
		t.Helper()
		if err := pty.Setsize(user, &pty.Winsize{Cols: cols, Rows: rows}); err != nil {
			t.Fatal(err)
		}
	}
	resize(91, 31)
	done := make(chan int, 1)
	go func() {
		done <- Main(context.Background(), Env{
			Args: []string{"shell", "-e", "PS1=$ ", "box"}, Environ: []string{"CUBBY_URL=" + d.URL, "TERM=dumb"},
			Stdin: tty, Stdout: tty, Stderr: tty,
		})
		_ = tty.Close() // the reader below sees the end
	}()

	screen := newScreen(t, user)
	typed := func(s string) {
		t.Helper()
		if _, err := io.WriteString(user, s); err != nil {
			t.Fatal(err)
		}
	}
	typed("stty size\r")
	screen.wait("31 91")
	typed("echo $TERM-$((40+2))\r")
	screen.wait("dumb-42")

	resize(77, 22)
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	typed("until stty size | grep '22 77'; do sleep 0.05; done\r")
	screen.wait("\n22 77")

	typed("(trap 'exit 9' INT; echo begun; " + forever + ")\r")
	screen.wait("\nbegun")
	typed("\x03")
	typed("echo after-$?\r")
	screen.wait("\nafter-9")
	typed("exit 5\r")
	if code := screen.exitCode(done); code != 5 {
		t.Errorf("exit %d, want 5", code)
	}
}

// screen collects what the terminal shows.
type screen struct {
	t      *testing.T
	pieces <-chan []byte // closed at the end of the terminal
	text   string
}

// patience is how long a test waits for what a terminal shows, and for the end of the
// command on it: what never comes must fail the test and not hang it.
const patience = time.Minute

// newScreen watches a terminal. The read is one that nothing ends but the terminal's own
// end: a pty's file is in blocking mode.
func newScreen(t *testing.T, user *os.File) *screen {
	pieces, left := make(chan []byte), make(chan struct{})
	t.Cleanup(func() { close(left) })
	go func() {
		defer close(pieces)
		for {
			buf := make([]byte, 4096)
			n, err := user.Read(buf)
			select {
			case pieces <- buf[:n]:
			case <-left:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return &screen{t: t, pieces: pieces}
}

// wait reads until the text has come, which may have happened before, and returns what
// came before it.
func (s *screen) wait(text string) (before string) {
	s.t.Helper()
	limit := time.After(patience)
	for !strings.Contains(s.text, text) {
		select {
		case piece, ok := <-s.pieces:
			if !ok {
				s.t.Fatalf("the terminal ended before %q came; it shows:\n%s", text, s.text)
			}
			s.text += string(piece)
		case <-limit:
			s.t.Fatalf("%q did not come in %v; the screen shows:\n%s", text, patience, s.text)
		}
	}
	before, s.text, _ = strings.Cut(s.text, text)
	return before
}

// exitCode reads on until the command has ended, and is what done gets then.
func (s *screen) exitCode(done <-chan int) int {
	s.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case code := <-done:
			return code
		case piece, ok := <-s.pieces:
			if !ok {
				s.pieces = nil
			}
			s.text += string(piece)
		case <-limit:
			s.t.Fatalf("the command did not end in %v; the screen shows:\n%s", patience, s.text)
		}
	}
}
