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
	if code := <-done; code != 5 {
		t.Errorf("exit %d, want 5", code)
	}
}

// screen collects what the terminal shows.
type screen struct {
	t    *testing.T
	r    io.Reader
	text string
}

// newScreen watches a terminal, for a minute at most: what never comes must
// fail the test and not hang it.
func newScreen(t *testing.T, user *os.File) *screen {
	limit := time.AfterFunc(time.Minute, func() { _ = user.Close() })
	t.Cleanup(func() { limit.Stop() })
	return &screen{t: t, r: user}
}

// wait reads until the text has come, which may have happened before.
func (s *screen) wait(text string) {
	s.t.Helper()
	buf := make([]byte, 4096)
	for !strings.Contains(s.text, text) {
		n, err := s.r.Read(buf)
		s.text += string(buf[:n])
		if err != nil {
			s.t.Fatalf("%v before %q came; the screen shows:\n%s", err, text, s.text)
		}
	}
	_, s.text, _ = strings.Cut(s.text, text)
}
