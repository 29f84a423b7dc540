//go:build root

package cli

import (
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestRealRun: the two walls from the command line, with input, exit code and
// Ctrl-C.
func TestRealRun(t *testing.T) {
	url := harness.Start(t, harness.Options{}).URL
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			run := func(stdin io.Reader, args ...string) result {
				t.Helper()
				return cubby(t, url, stdin, append([]string{"run", "--isolation", isolation}, args...)...)
			}
			if res := run(nil, "--", "python3", "-c", "print(1+1)"); res != (result{"2\n", "", 0}) {
				t.Errorf("python: %+v", res)
			}
			text := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB
			if res := run(strings.NewReader(text), "--", "cat"); res.stdout != text || res.code != 0 {
				t.Errorf("cat: %d bytes, exit %d, %s", len(res.stdout), res.code, res.stderr)
			}
			if res := run(nil, "--", "sh", "-c", "kill -KILL $$"); res.code != 137 {
				t.Errorf("killed: %+v", res)
			}
			if res := run(nil, "--", "no-such-program"); res.code != 127 {
				t.Errorf("not found: %+v", res)
			}
			signals, stdout, done := make(chan os.Signal), watch("ready"), make(chan int, 1)
			go func() {
				done <- Main(context.Background(), Env{
					Args:    []string{"run", "--isolation", isolation, "--", "bash", "-c", "echo ready; " + forever},
					Environ: []string{"CUBBY_URL=" + url}, Stdout: stdout, Stderr: io.Discard, Signals: signals,
				})
			}()
			stdout.await(t, done)
			signals <- syscall.SIGINT
			if code := <-done; code != 130 {
				t.Errorf("Ctrl-C: exit %d, want 130", code)
			}
			wantNoBoxes(t, url)
		})
	}
}

// TestRealShell: a terminal into each wall.
func TestRealShell(t *testing.T) {
	url := harness.Start(t, harness.Options{}).URL
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			if res := cubby(t, url, nil, "create", "--id", isolation, "--isolation", isolation); res.code != 0 {
				t.Fatalf("create: %+v", res)
			}
			defer cubby(t, url, nil, "rm", isolation)
			user, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer user.Close()
			if err := pty.Setsize(user, &pty.Winsize{Cols: 91, Rows: 31}); err != nil {
				t.Fatal(err)
			}
			done := make(chan int, 1)
			go func() {
				done <- Main(context.Background(), Env{
					Args: []string{"shell", isolation}, Environ: []string{"CUBBY_URL=" + url, "TERM=dumb"}, Stdin: tty, Stdout: tty, Stderr: tty,
				})
				_ = tty.Close()
			}()
			screen := newScreen(t, user)
			for _, step := range []struct{ keys, want string }{
				{"stty size\r", "31 91"},
				{"(trap 'exit 9' INT; echo begun; " + forever + ")\r", "\nbegun"},
				{"\x03echo after-$?\r", "after-9"},
				{"tty && whoami\r", "sandbox"},
			} {
				if _, err := io.WriteString(user, step.keys); err != nil {
					t.Fatal(err)
				}
				screen.wait(step.want)
			}
			if _, err := io.WriteString(user, "exit 5\r"); err != nil {
				t.Fatal(err)
			}
			if code := screen.exitCode(done); code != 5 {
				t.Errorf("exit %d, want 5", code)
			}
		})
	}
}
