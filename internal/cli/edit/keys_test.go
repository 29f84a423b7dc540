package edit_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/cubbyhq/cubby/internal/cli/edit"
	"github.com/cubbyhq/cubby/internal/poll"
)

// terminal is both ends of one in raw mode.
func terminal(t *testing.T) (user, tty *os.File) {
	t.Helper()
	user, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close(); tty.Close() })
	if _, err := term.MakeRaw(int(tty.Fd())); err != nil {
		t.Fatal(err)
	}
	return user, tty
}

func typed(t *testing.T, user *os.File, keys string) {
	t.Helper()
	if _, err := io.WriteString(user, keys); err != nil {
		t.Fatal(err)
	}
}

// TestLentTerminal: what is typed while another program has the terminal is its.
func TestLentTerminal(t *testing.T) {
	user, tty := terminal(t)
	e := edit.New(edit.ReadKeys(tty), io.Discard, &edit.History{})
	read := func(want string) {
		t.Helper()
		line, _, err := e.Line(t.Context(), "> ", nil)
		if line != want || err != nil {
			t.Errorf("the line is %q, %v, want %q", line, err, want)
		}
	}
	typed(t, user, "one\r")
	read("one")
	for range 3 {
		takeBack, err := e.Keys.Lend()
		if err != nil {
			t.Fatal(err)
		}
		typed(t, user, "theirs")
		buf := make([]byte, 6)
		if _, err := io.ReadFull(tty, buf); err != nil || string(buf) != "theirs" {
			t.Errorf("the other program reads %q, %v", buf, err)
		}
		takeBack()
		typed(t, user, "ours\r")
		read("ours")
	}
	user.Close()
	if line, _, err := e.Line(t.Context(), "> ", nil); !errors.Is(err, io.EOF) {
		t.Errorf("after the end there is %q, %v", line, err)
	}
	if _, err := e.Keys.Lend(); err == nil {
		t.Error("a terminal that is gone is lent")
	}
	if _, err := edit.ReadKeys(strings.NewReader("x")).Lend(); err == nil {
		t.Error("what is no file is lent")
	}
}

// TestLentAfterTypingAhead: keys that were read and that nobody has taken yet hold up no
// loan, and are there afterwards.
func TestLentAfterTypingAhead(t *testing.T) {
	user, tty := terminal(t)
	e := edit.New(edit.ReadKeys(tty), io.Discard, &edit.History{})
	typed(t, user, "early\r")
	if err := poll.Until(t.Context(), time.Millisecond, 10*time.Millisecond, func() (bool, error) {
		n, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCINQ)
		return n == 0, err
	}); err != nil {
		t.Fatalf("the keys are not read: %v", err)
	}
	takeBack, err := e.Keys.Lend()
	if err != nil {
		t.Fatal(err)
	}
	takeBack()
	if line, _, err := e.Line(t.Context(), "> ", nil); line != "early" || err != nil {
		t.Errorf("the line is %q, %v", line, err)
	}
}

func TestKeys(t *testing.T) {
	user, tty := terminal(t)
	k := edit.ReadKeys(tty)
	e := edit.New(k, io.Discard, &edit.History{})
	pressed := ""
	e.OnKey(func(key rune) bool { pressed += string(key); return key == 0x0f })
	typed(t, user, "a\x0fb\r")
	if line, _, err := e.Line(t.Context(), "> ", nil); line != "ab" || err != nil || pressed != "\x0f" {
		t.Errorf("the line is %q, %v; keys %q", line, err, pressed)
	}
	typed(t, user, "half\x03next\r")
	if _, _, err := e.Line(t.Context(), "> ", nil); !errors.Is(err, edit.ErrInterrupted) {
		t.Errorf("Ctrl-C gives %v", err)
	}
	if line, _, err := e.Line(t.Context(), "> ", nil); line != "next" || err != nil {
		t.Errorf("the line after Ctrl-C is %q, %v", line, err)
	}

	// What is typed meanwhile is kept for the next line, and not what a Ctrl-C takes back.
	typed(t, user, "ahead")
	if k.Hold(<-k.Pieces()) || k.Interrupted() {
		t.Error("an interrupt that was none")
	}
	typed(t, user, "x\x03kept\r")
	if !k.Hold(<-k.Pieces()) {
		t.Error("no interrupt")
	}
	if line, _, err := e.Line(t.Context(), "> ", nil); line != "kept" || err != nil {
		t.Errorf("the line is %q, %v", line, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := e.Line(ctx, "> ", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled line gives %v", err)
	}
}

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	getenv := func(name string) string { return map[string]string{"HOME": dir}[name] }
	h := edit.OpenHistory(getenv, "test_history")
	for _, line := range []string{"a", "a", " ", "b "} {
		h.Add(line)
	}
	h = edit.OpenHistory(getenv, "test_history")
	if h.Len() != 2 || h.At(0) != "b" || h.At(1) != "a" {
		t.Errorf("%d lines, the newest %q", h.Len(), h.At(0))
	}
	if got, want := edit.StateDir(getenv), dir+"/.local/state/cubby"; got != want {
		t.Errorf("the state is in %q, want %q", got, want)
	}
	if got := edit.StateDir(func(string) string { return "" }); got != "" {
		t.Errorf("without a home it is in %q", got)
	}
}
