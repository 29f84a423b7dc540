//go:build root

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// screen is a terminal and all that it has shown since the last wait.
type screen struct {
	*sdk.Terminal
	t     *testing.T
	ctx   context.Context
	shown chan string
	text  string
}

// watch looks at a terminal for at most two minutes: what never comes must
// fail the test and not hang it.
func watch(t *testing.T, url, id string, o sdk.TerminalOptions) *screen {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	term, err := sdk.New(url, sdk.WithResume(0)).OpenTerminal(ctx, id, o)
	if err != nil {
		t.Fatalf("open a terminal: %v", err)
	}
	s := &screen{Terminal: term, t: t, ctx: ctx, shown: make(chan string)}
	go func() {
		defer close(s.shown)
		buf := make([]byte, 64<<10)
		for {
			n, err := term.Read(buf)
			select {
			case s.shown <- string(buf[:n]):
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// wait returns when a text was shown, and forgets what was before it.
func (s *screen) wait(text string) {
	s.t.Helper()
	for !strings.Contains(s.text, text) {
		more, ok := <-s.shown
		if !ok {
			s.t.Fatalf("the terminal ended, or time was up, before %q; it shows\n%q", text, s.text)
		}
		s.text += more
	}
	_, s.text, _ = strings.Cut(s.text, text)
}

func (s *screen) typed(keys string) {
	s.t.Helper()
	if _, err := s.Write([]byte(keys)); err != nil {
		s.t.Fatalf("type %q: %v", keys, err)
	}
}

// end reads to the end of the program.
func (s *screen) end() {
	for more := range s.shown {
		s.text += more
	}
}

// TestTerminalOfARealSandbox does what people do in a terminal, kills the
// daemon in the middle and goes on.
func TestTerminalOfARealSandbox(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			h := newReal(t, harness.Options{})
			url, err := h.start(nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = h.kill() }) // the next one cleans up
			if status, body := call(t, "POST", url+"/v1/sandboxes", fmt.Sprintf(`{"id":"a","isolation":%q}`, isolation)); status != http.StatusCreated {
				t.Fatalf("create: %d %s", status, body)
			}
			s := watch(t, url, "a", sdk.TerminalOptions{Size: &sdk.WindowSize{Cols: 90, Rows: 30}})

			// The prompt shows the directory; a bare cd goes to the workspace.
			s.wait(":/workspace$ ")
			s.typed("cd /tmp\r")
			s.wait(":/tmp$ ")
			s.typed("mkdir foo && cd foo\r")
			s.wait(":/tmp/foo$ ")
			s.typed("pwd\r")
			s.wait("\r/tmp/foo\r\n")
			s.typed("cd /not/there\r")
			s.wait("No such file or directory")
			s.wait(":/tmp/foo$ ")
			s.typed("cd\r")
			s.wait(":/workspace$ ")
			s.typed("export FOO=bar; echo foo=$FOO=\r")
			s.wait("foo=bar=")

			s.typed("echo found-$((40+2)) > unique_file_name\r")
			s.wait(":/workspace$ ")
			s.typed("cat uniq\t")
			s.wait("unique_file_name")
			s.typed("\r")
			s.wait("found-42")

			// What says that it runs has the terminal by then.
			s.wait(":/workspace$ ")
			s.typed("bash -c 'echo go-$((1+1)); exec sleep 1000'\r")
			s.wait("go-2")
			s.typed("\x03")
			s.wait(":/workspace$ ")
			s.typed("echo status=$?=\r")
			s.wait("status=130=")
			s.wait(":/workspace$ ")

			s.typed("vim note.txt\r")
			s.wait(`"note.txt"`)
			s.typed("ihello from the editor")
			s.wait("editor")
			s.typed("\x1b")
			s.typed(":wq\r")
			s.wait(":/workspace$ ")
			s.typed("tr a-z A-Z < note.txt\r")
			s.wait("HELLO FROM THE EDITOR")
			s.wait(":/workspace$ ")

			s.typed("top -d 1\r")
			s.wait("load average")
			s.wait("COMMAND")
			s.typed("q")
			s.wait(":/workspace$ ")

			s.typed("htop\r")
			s.wait("Quit")
			s.typed("q")
			s.wait(":/workspace$ ")

			if err := s.Resize(s.ctx, sdk.WindowSize{Cols: 101, Rows: 41}); err != nil {
				t.Fatal(err)
			}
			s.typed("until stty size | grep '41 101'; do sleep 0.1; done\r")
			s.wait("\r41 101")

			// The daemon dies; the command in the terminal does not.
			s.typed("echo begun-$((1+1)); while test ! -e seen; do sleep 0.1; done; echo away-$((20+3))\r")
			s.wait("begun-2")
			if err := h.kill(); err != nil {
				t.Fatal(err)
			}
			s.end()
			if url, err = h.start(nil); err != nil {
				t.Fatal(err)
			}
			if status, body := call(t, "PUT", url+"/v1/sandboxes/a/files?path=seen", "x"); status != http.StatusOK {
				t.Fatalf("write: %d %s", status, body)
			}
			again := watch(t, url, "a", sdk.TerminalOptions{})
			if again.New || again.Seq != s.Seq {
				t.Errorf("after the kill: seq %d, new %v; want %d", again.Seq, again.New, s.Seq)
			}
			again.wait("found-42") // the replay
			again.wait("begun-2")
			again.wait("away-23")
			again.wait(":/workspace$ ")
			again.typed("echo foo=$FOO=\r")
			again.wait("foo=bar=")
			again.typed("exit 4\r")
			again.end()
			if x := again.Exit(); x == nil || x.ExitCode == nil || *x.ExitCode != 4 {
				t.Errorf("the terminal ended with %+v; it shows\n%q", x, again.text)
			}
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
