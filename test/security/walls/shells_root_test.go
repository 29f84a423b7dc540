//go:build root

package walls_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// shellStorm is the storm as a line of a shell.
const shellStorm = "python3 -c '" + storm + "'"

// shellLeave is one that leaves its shell, and ends what holds it together.
const shellLeave = "python3 -c '" + leave + storm + "'"

// What a session's command or a terminal began to fork ends with it, or with the
// cancel of what it left, as the storm of any other command; the session goes on
// with its state.
func TestForkStormOfAShellEndsWithIt(t *testing.T) {
	sandboxesOf(t, 96, func(t *testing.T, c *client.Client, id string) {
		session := func(cmd string, limit time.Duration) client.Exec {
			t.Helper()
			x, err := c.Exec(t.Context(), id, client.ExecOptions{Shell: cmd, Session: "s", User: "root", Timeout: limit})
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		session("state=kept", time.Minute)
		if x := session(shellStorm, time.Second); x.Reason != "timeout" {
			t.Errorf("a command of a session ended with %s: %s", x.Reason, x.Message)
		}
		none(t, c, id)

		left := session(shellLeave, time.Minute)
		if err := c.Process(id, left.Seq).Cancel(t.Context()); err != nil {
			t.Errorf("cancel what a command of a session left: %v", err)
		}
		none(t, c, id)
		if x := session("echo $state", time.Minute); x.Stdout != "kept\n" {
			t.Errorf("the next command of the session printed %q and ended with %s: %s", x.Stdout, x.Reason, x.Message)
		}

		// A terminal that is closed, and one that has ended before.
		for _, line := range []string{shellStorm + " &\n sleep 0.3; echo be''gun\n", shellLeave + "\nexit\n"} {
			terminal, err := c.OpenTerminal(t.Context(), id, client.TerminalOptions{Name: "t", User: "root"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := terminal.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(line, "exit\n") {
				if _, err = io.Copy(io.Discard, terminal); err == nil {
					err = c.Process(id, terminal.Seq).Cancel(t.Context())
				}
			} else {
				await(t, terminal, "begun")
				err = c.CloseTerminal(t.Context(), id, "t")
			}
			if err != nil {
				t.Errorf("end a terminal: %v", err)
			}
			none(t, c, id)
			if err := terminal.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// await reads until a terminal has shown a text.
func await(t *testing.T, terminal *client.Terminal, text string) {
	t.Helper()
	var seen strings.Builder
	part := make([]byte, 4096)
	for !strings.Contains(seen.String(), text) {
		n, err := terminal.Read(part)
		if err != nil {
			t.Fatalf("%v after %q", err, seen.String())
		}
		seen.Write(part[:n])
	}
}
