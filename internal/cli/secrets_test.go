package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestSecretIsAskedForWithoutEcho types a value on a terminal.
func TestSecretIsAskedForWithoutEcho(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := sit(t, d.URL, "secret", "set", "KEY", "--tenant", "acme")
	s.wait("Value of KEY: ")
	s.typed("hush-5be00d21\r")
	s.wait("\nKEY")
	if code := s.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if text := s.text; strings.Contains(text, "hush") {
		t.Errorf("the terminal shows %q", text)
	}
	res := cubby(t, d.URL, nil, "secret", "ls", "--tenant", "acme", "--json")
	var list []client.Secret
	if err := json.Unmarshal([]byte(res.stdout), &list); err != nil || len(list) != 1 || list[0].Name != "KEY" || list[0].TenantID != "acme" {
		t.Errorf("ls = %+v, %v", res, err)
	}
}

// TestSecretThatIsTooLongToBeTyped: the part that a terminal takes is not set.
func TestSecretThatIsTooLongToBeTyped(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := sit(t, d.URL, "secret", "set", "KEY")
	s.wait("Value of KEY: ")
	for range 5 {
		s.typed(strings.Repeat("x", 1000))
	}
	s.typed("\r")
	s.wait("a file or a pipe")
	if code := s.exit(); code == 0 {
		t.Error("exit code 0")
	}
	if res := cubby(t, d.URL, nil, "secret", "ls"); res.code != 0 || strings.Contains(res.stdout, "KEY") {
		t.Errorf("ls = %+v", res)
	}
}

// TestSecretOnATerminalIsLeftBySignal: what was interrupted sets nothing, and the
// terminal shows again what is typed.
func TestSecretOnATerminalIsLeftBySignal(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	user, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	screen := newScreen(t, user)
	signals, done := make(chan os.Signal), make(chan result, 1)
	go func() {
		var stdout, stderr bytes.Buffer
		code := Main(t.Context(), Env{
			Args: []string{"secret", "set", "KEY"}, Environ: []string{"CUBBY_URL=" + d.URL}, Stdin: tty, Stdout: &stdout, Stderr: tty, Signals: signals,
		})
		done <- result{stdout.String(), stderr.String(), code}
	}()
	screen.wait("Value of KEY: ")
	signals <- syscall.SIGINT
	if res := <-done; res.code == 0 || res.stdout != "" {
		t.Errorf("the command ended with %+v", res)
	}
	if after, err := term.GetState(int(tty.Fd())); err != nil || *after != *before {
		t.Errorf("the terminal is left as %+v, %v, want %+v", after, err, before)
	}
	if res := cubby(t, d.URL, nil, "secret", "ls"); res.code != 0 || strings.Contains(res.stdout, "KEY") {
		t.Errorf("ls = %+v", res)
	}
	user.Close() // ends the read that was left
	tty.Close()
}
