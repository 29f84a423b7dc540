//go:build root

package guest_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestSandboxUsers(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		t.Logf("ready after %v", b.ready)
		for user, want := range map[string]string{
			"":        "1000 1000 1000 /home/sandbox\n",
			"sandbox": "1000 1000 1000 /home/sandbox\n",
			"root":    "0 0 0 /root\n",
			"daemon":  "7 8 8 55 /\n",
			"7":       "7 8 8 55 /\n",
			"4242":    "4242 4242 4242 /\n",
		} {
			r := b.run(t, sandbox.ExecSpec{Shell: "echo $(id -u) $(id -g) $(id -G) $HOME", User: user})
			if string(r.stdout) != want {
				t.Errorf("user %q is %q %q, want %q (%+v)", user, r.stdout, r.stderr, want, r.exit)
			}
		}
	})
}

func TestSandboxTerminal(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		ctx := testContext(t)
		uid := sandbox.NewUID()
		spec := sandbox.ExecSpec{
			Shell: `echo $(tty) $(stat -c %u $(tty)); trap 'echo int; exit 5' INT; while read line; do eval "$line"; done`,
			PTY:   &sandbox.WindowSize{Cols: 80, Rows: 24},
		}
		s, err := b.Exec(ctx, uid, &guest.Start{ExecSpec: spec}, 0)
		must(t, err)
		defer s.Close()
		var r result
		var typed int64
		enter := func(line, want string) {
			t.Helper()
			var err error
			typed, err = b.WriteStdin(ctx, uid, typed, []byte(line), false)
			must(t, err)
			for !strings.Contains(string(r.stdout), want) {
				m, err := s.Next()
				if err != nil {
					t.Fatalf("Next = %v after %q", err, r.stdout)
				}
				r.take(m)
			}
		}
		enter("stty size; echo o'ne'\n", "24 80\r\none")
		must(t, b.Resize(ctx, uid, sandbox.WindowSize{Cols: 132, Rows: 43}))
		enter("stty size; echo t'wo'\n", "43 132\r\ntwo")
		// Job control: the shell leads a session on this terminal.
		enter("\x03", "int\r\n")
		for r.exit == nil {
			m, err := s.Next()
			must(t, err)
			r.take(m)
		}
		if *r.exit.Code != 5 || !bytes.Contains(r.stdout, []byte("/dev/pts/0 1000\r\n")) {
			t.Errorf("exit %+v, output %q", r.exit, r.stdout)
		}
	})
}

func TestSandboxShutdown(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		ctx := testContext(t)
		b.sh(t, "", `setsid sleep 1000 & sleep 1001 &`)
		s, err := b.Exec(ctx, sandbox.NewUID(), &guest.Start{ExecSpec: shell(trapping("term", 9))}, 0)
		must(t, err)
		defer s.Close()
		var r result
		for r.next == 0 {
			m, err := s.Next()
			must(t, err)
			r.take(m)
		}
		gone := b.channel.Gone()
		must(t, b.Shutdown(ctx, 5*time.Second))
		for r.exit == nil {
			m, err := s.Next()
			must(t, err)
			r.take(m)
		}
		if string(r.stdout) != "ready\nterm\n" || *r.exit.Code != 9 {
			t.Errorf("output %q, exit %+v, want the command's own end", r.stdout, r.exit)
		}
		select {
		case <-gone:
		case <-ctx.Done():
			t.Error("the agent is still there after its shutdown")
		}
	})
}
