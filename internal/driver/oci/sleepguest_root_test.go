//go:build root

package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// guestClient talks to the agent of a running sandbox as core does.
type guestClient struct {
	*guest.Client
	t   *testing.T
	ctx context.Context
}

func (r *running) guest(t *testing.T) guestClient {
	t.Helper()
	c := guest.New(func(ctx context.Context) (net.Conn, error) { return r.d.DialGuest(ctx, r.h) })
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return guestClient{c, t, ctx}
}

// boot is the agent's boot id.
func (g guestClient) boot() string {
	g.t.Helper()
	hello, err := g.Hello(g.ctx)
	if err != nil || hello.BootID == "" {
		g.t.Fatalf("Hello = %+v, %v", hello, err)
	}
	return hello.BootID
}

// printed is what was read of an exec.
type printed struct {
	stdout, rich []byte
	next         int64
	exit         *guest.Exit
}

// read follows an exec from where p ends, until its end or, with until, until it
// has printed that.
func (g guestClient) read(uid sandbox.UID, start *guest.Start, p printed, until string) printed {
	g.t.Helper()
	s, err := g.Exec(g.ctx, uid, start, p.next)
	if err != nil {
		g.t.Fatalf("Exec = %v", err)
	}
	defer s.Close()
	for until == "" || !bytes.Contains(p.stdout, []byte(until)) {
		m, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			g.t.Fatalf("Next at %d, behind %q = %v", p.next, p.stdout, err)
		}
		switch {
		case m.Exit != nil:
			p.exit = m.Exit
		case m.Output != nil && m.Output.Stream == sandbox.Rich:
			p.rich = append(p.rich, m.Output.Data...)
		case m.Output != nil:
			p.stdout = append(p.stdout, m.Output.Data...)
		}
		if m.Output != nil {
			p.next += int64(len(m.Output.Data))
		}
	}
	if until != "" && p.exit != nil {
		g.t.Fatalf("ended with %+v before it printed %q: %q", p.exit, until, p.stdout)
	}
	return p
}

// begin starts an exec and returns what it printed up to a text.
func (g guestClient) begin(spec sandbox.ExecSpec, until string) (sandbox.UID, printed) {
	g.t.Helper()
	uid := sandbox.NewUID()
	return uid, g.read(uid, &guest.Start{ExecSpec: spec}, printed{}, until)
}

// end reads an exec on to its end.
func (g guestClient) end(uid sandbox.UID, p printed) printed {
	g.t.Helper()
	return g.read(uid, nil, p, "")
}

func (g guestClient) run(spec sandbox.ExecSpec) printed {
	g.t.Helper()
	return g.read(sandbox.NewUID(), &guest.Start{ExecSpec: spec}, printed{}, "")
}

// value runs a cell and returns its result.
func (g guestClient) value(name, language, code string) string {
	g.t.Helper()
	return g.run(cellOf(name, language, code)).value(g.t)
}

func cellOf(name, language, code string) sandbox.ExecSpec {
	return sandbox.ExecSpec{Cell: &sandbox.Cell{Kernel: name, Language: language, Code: code}}
}

// value is a cell's result as text, or what else it says.
func (p printed) value(t *testing.T) (text string) {
	t.Helper()
	for line := range bytes.Lines(p.rich) {
		var o kernel.Output
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatalf("record %q: %v", line, err)
		}
		switch {
		case o.Kernel != nil && o.Kernel.Restarted:
			return "restarted: " + o.Kernel.Reason
		case o.Error != nil:
			return o.Error.Name + ": " + o.Error.Value
		case o.Result != nil:
			_ = json.Unmarshal(o.Result.Data["text/plain"], &text)
		}
	}
	return text
}

// nap puts the sandbox to sleep for a while, and wakes it.
func (r *running) nap(length time.Duration) {
	r.t.Helper()
	r.do("Sleep", r.d.Sleep(r.ctx, r.h))
	r.phase(driver.PhaseAsleep)
	time.Sleep(length) // which clocks inside must not count
	r.do("Wake", r.d.Wake(r.ctx, r.h))
}

// Kernels keep their variables, their running cells and their history, and the
// time limits of cells do not count a sleep.
func TestKernelsSleep(t *testing.T) {
	for _, image := range []struct {
		name    string
		kernels []struct{ language, set, ask, want, slow string }
	}{
		{"base", []struct{ language, set, ask, want, slow string }{
			{"python", "x = [1, 2]; import threading; done = threading.Event(); 5", "x.append(3); (x, _, len(In))", "([1, 2, 3], 5, 3)",
				"import time; print('before', flush=True); time.sleep(0.5); end = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass\nprint('after')"},
			{"node", "let x = [1, 2]; x.length", "x.push(3); x.join()", "1,2,3",
				"console.log('before'); await new Promise((r) => setTimeout(r, 500)); for (const end = Date.now() + 500; Date.now() < end;); console.log('after')"},
		}},
		{"r", []struct{ language, set, ask, want, slow string }{
			{"r", "x <- c(1, 2); 5", "x <- c(x, 3); sum(x)", "[1] 6", "cat('before\\n'); flush.console(); Sys.sleep(1); cat('after\\n')"},
		}},
	} {
		t.Run(image.name, func(t *testing.T) {
			r := start(t, runsc, imageSpec(t, image.name))
			g := r.guest(t)
			type slow struct {
				uid sandbox.UID
				got printed
			}
			cells := map[string]slow{}
			limit := 8 * time.Second
			for _, k := range image.kernels {
				g.value(k.language, k.language, k.set)
				spec := cellOf("slow-"+k.language, k.language, k.slow)
				spec.Timeout = &limit
				uid, got := g.begin(spec, "before\n")
				cells[k.language] = slow{uid, got}
			}
			r.nap(limit)
			for _, k := range image.kernels {
				if got := g.value(k.language, "", k.ask); got != k.want {
					t.Errorf("%s after a wake: %q, want %q", k.language, got, k.want)
				}
				got := g.end(cells[k.language].uid, cells[k.language].got)
				if string(got.stdout) != "before\nafter\n" || got.exit.Reason != sandbox.EndExited || *got.exit.Code != 0 {
					t.Errorf("%s: a cell that ran over a sleep: %q, %+v", k.language, got.stdout, got.exit)
				}
				if got := g.value("slow-"+k.language, "", "1+1"); !strings.HasSuffix(got, "2") {
					t.Errorf("%s: the cell after that: %q", k.language, got)
				}
			}
		})
	}
}

// Commands go on as if nothing had been: their time limits, their terminals, the
// output that the host had not taken, what holds them together and what bounds
// their memory.
func TestCommandsSleep(t *testing.T) {
	spec := imageSpec(t, "base")
	spec.Limits.MemoryBytes = 512 << 20
	r := start(t, runsc, spec)
	g := r.guest(t)
	limit := func(d time.Duration) *time.Duration { return &d }

	stray, gotStray := g.begin(sandbox.ExecSpec{Shell: `echo on; setsid sh -c 'echo $$ > /tmp/stray; exec sleep 1000' & until [ -s /tmp/stray ]; do sleep 0.1; done; echo out; wait`}, "out\n")
	unread := sandbox.NewUID()
	g.read(unread, &guest.Start{ExecSpec: sandbox.ExecSpec{Shell: "echo one; echo two; until [ -e /tmp/go ]; do sleep 0.1; done; echo three"}}, printed{}, "two\n")
	tty, gotTTY := g.begin(sandbox.ExecSpec{Argv: []string{"python3", "-i", "-q", "-c", "x = 20"}, Env: map[string]string{"PYTHON_BASIC_REPL": "1"}, PTY: &sandbox.WindowSize{Cols: 80, Rows: 24}, Stdin: true}, ">>> ")
	g.run(sandbox.ExecSpec{Shell: "cd /tmp; v=7; f() { echo f; }", Session: "s"})
	session, gotSession := g.begin(sandbox.ExecSpec{Shell: "echo on; v=8; until [ -e /tmp/go ]; do sleep 0.1; done", Session: "s"}, "on\n")

	const asleep = 8 * time.Second
	within, gotWithin := g.begin(sandbox.ExecSpec{Shell: "echo on; until [ -e /tmp/go ]; do sleep 0.1; done; echo off", Timeout: limit(asleep)}, "on\n")
	beyond, gotBeyond := g.begin(sandbox.ExecSpec{Shell: "echo on; until [ -e /tmp/never ]; do sleep 0.1; done", Timeout: limit(asleep)}, "on\n")

	r.nap(asleep)
	r.nap(0)
	g.run(sandbox.ExecSpec{Shell: "touch /tmp/go"})

	if got := g.end(within, gotWithin); string(got.stdout) != "on\noff\n" || got.exit.Reason != sandbox.EndExited {
		t.Errorf("a command within its limit: %q, %+v", got.stdout, got.exit)
	}
	if got := g.end(unread, printed{}); string(got.stdout) != "one\ntwo\nthree\n" {
		t.Errorf("output that was not acknowledged: %q", got.stdout)
	}
	if got := g.end(session, gotSession); got.exit.Reason != sandbox.EndExited {
		t.Errorf("the session's command: %+v", got.exit)
	}
	if got := g.run(sandbox.ExecSpec{Shell: "pwd; echo $v; f", Session: "s"}); string(got.stdout) != "/tmp\n8\nf\n" {
		t.Errorf("the session: %q", got.stdout)
	}
	line := []byte("print(x + 22, open('/dev/tty').isatty())\n")
	if _, err := g.WriteStdin(g.ctx, tty, 0, line, false); err != nil {
		t.Errorf("WriteStdin to a terminal = %v", err)
	}
	// Python sets the size anew, as it read it, before each prompt.
	gotTTY = g.read(tty, nil, gotTTY, "42 True\r\n>>> ")
	if err := g.Resize(g.ctx, tty, sandbox.WindowSize{Cols: 100, Rows: 30}); err != nil {
		t.Errorf("Resize = %v", err)
	}
	if _, err := g.WriteStdin(g.ctx, tty, int64(len(line)), []byte("import os; print(os.get_terminal_size().columns); exit()\n"), false); err != nil {
		t.Errorf("WriteStdin to a terminal = %v", err)
	}
	if got := g.end(tty, gotTTY); got.exit.Reason != sandbox.EndExited || !strings.Contains(string(got.stdout), "\n100\r\n") {
		t.Errorf("the terminal: %q, %+v", got.stdout, got.exit)
	}

	// The cgroup that holds a command's processes together kills them.
	if err := g.Signal(g.ctx, stray, 9, true, sandbox.EndKilled); err != nil {
		t.Errorf("kill the tree: %v", err)
	}
	if got := g.end(stray, gotStray); got.exit.Reason != sandbox.EndKilled {
		t.Errorf("a command that was killed: %+v", got.exit)
	}
	if got := g.run(sandbox.ExecSpec{Shell: `kill -0 $(cat /tmp/stray) 2>/dev/null && echo alive || echo gone`, User: "root"}); string(got.stdout) != "gone\n" {
		t.Errorf("a daemon of the command that was killed: %s", got.stdout)
	}
	// So does the one that bounds them all, and the watchdog of memory looks on.
	if got := g.run(sandbox.ExecSpec{Shell: "for i in $(seq 1000); do sleep 1000 & done 2>&1; kill $(jobs -p)"}); !strings.Contains(string(got.stdout), "Resource temporarily unavailable") {
		t.Errorf("a fork storm after a wake: %q, %+v", got.stdout, got.exit)
	}
	if got := g.run(sandbox.ExecSpec{Argv: []string{"python3", "-c", "import time\nb = bytearray()\nwhile True: b += bytes(1 << 20); time.sleep(0.01)"}}); got.exit.Reason != sandbox.EndOOM {
		t.Errorf("a command that takes all memory: %+v", got.exit)
	}
	if got := g.end(beyond, gotBeyond); got.exit.Reason != sandbox.EndTimeout {
		t.Errorf("a command beyond its limit: %+v", got.exit)
	}
}
