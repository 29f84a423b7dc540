package cli

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// seat is a person before a terminal in which cubby runs.
type seat struct {
	*screen
	user *os.File
	done chan int // gets the exit code
}

func sit(t *testing.T, url string, args ...string) *seat {
	t.Helper()
	user, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	if err := pty.Setsize(user, &pty.Winsize{Cols: 88, Rows: 28}); err != nil {
		t.Fatal(err)
	}
	s := &seat{newScreen(t, user), user, make(chan int, 1)}
	go func() {
		code := Main(context.Background(), Env{Args: args, Environ: []string{"CUBBY_URL=" + url}, Stdin: tty, Stdout: tty, Stderr: tty})
		_ = tty.Close() // the reader sees the end
		s.done <- code
	}()
	return s
}

// exit is the code that the command ends with.
func (s *seat) exit() int {
	s.t.Helper()
	return s.exitCode(s.done)
}

func (s *seat) typed(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.user, keys); err != nil {
		s.t.Fatal(err)
	}
}

// enter types and waits for what is shown then, one text after another.
func (s *seat) enter(keys string, shown ...string) {
	s.t.Helper()
	s.typed(keys)
	for _, text := range shown {
		s.wait(text)
	}
}

// TestTerminalDetach leaves a terminal and comes back to it.
func TestTerminalDetach(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	if res := cubby(t, d.URL, nil, "create", "--id", "box"); res.code != 0 {
		t.Fatalf("create: %+v", res)
	}
	s := sit(t, d.URL, "terminal", "box")
	s.typed("A=kept; stty size\r")
	s.wait("28 88")
	s.typed("\x10\x11") // ctrl-p ctrl-q
	s.wait("left terminal main of box")
	if code := s.exit(); code != 0 {
		t.Errorf("a detach exits with %d", code)
	}
	if res := cubby(t, d.URL, nil, "terminal", "--list", "box"); res.code != 0 || !strings.Contains(res.stdout, "main") || !strings.Contains(res.stdout, "88×28") {
		t.Errorf("list: %+v", res)
	}

	s = sit(t, d.URL, "terminal", "--detach-keys", "ctrl-],d", "box")
	s.wait("28 88") // what it showed
	s.typed("\x1dx\x7f\x7fecho a=$A=\r")
	s.wait("a=kept=")
	s.typed("exit 6\r")
	if code := s.exit(); code != 6 {
		t.Errorf("the program's end exits with %d, want 6", code)
	}

	s = sit(t, d.URL, "terminal", "-n", "other", "--cmd", "echo begun; exec sleep 600", "box")
	s.wait("begun")
	if res := cubby(t, d.URL, nil, "terminal", "--kill", "-n", "other", "box"); res.code != 0 {
		t.Errorf("kill: %+v", res)
	}
	if code := s.exit(); code != 137 {
		t.Errorf("a killed terminal exits with %d, want 137", code)
	}
	if res := cubby(t, d.URL, nil, "terminal", "--kill", "-n", "other", "box"); res.code != 125 {
		t.Errorf("kill again: %+v", res)
	}
}

func TestDetacher(t *testing.T) {
	for _, tt := range []struct {
		keys, typed, want string
		done              bool
	}{
		{"ctrl-p,ctrl-q", "ab\x10c", "ab\x10c", false},
		{"ctrl-p,ctrl-q", "ab\x10\x11cd", "ab", true},
		{"ctrl-p,ctrl-q", "\x10\x10\x11", "\x10", true},
		{"ctrl-p,ctrl-q", "\x11\x10", "\x11", false}, // held back
		{"ctrl-],d", "\x1d\x1dx", "\x1d\x1dx", false},
		{"q", "abq", "ab", true},
		{"", "\x10\x11", "\x10\x11", false},
	} {
		keys, err := parseKeys(tt.keys)
		if err != nil {
			t.Fatal(err)
		}
		for cut := range len(tt.typed) + 1 {
			d := detacher{keys: keys}
			got, done := d.next([]byte(tt.typed[:cut]))
			if !done {
				var more []byte
				more, done = d.next([]byte(tt.typed[cut:]))
				got = append(got, more...)
			}
			if string(got) != tt.want || done != tt.done {
				t.Errorf("%s: %q, cut at %d = %q, %v; want %q, %v", tt.keys, tt.typed, cut, got, done, tt.want, tt.done)
			}
		}
	}
	for _, bad := range []string{"ctrl-", "ctrl-1", "alt-x", "a,,b", "ctrl-p ctrl-q", "a,b,c,d,e,f,g,h,i"} {
		if keys, err := parseKeys(bad); err == nil {
			t.Errorf("%q gives %q", bad, keys)
		}
	}
}
