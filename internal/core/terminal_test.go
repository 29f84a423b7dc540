package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// look is a viewer whose output is collected until the terminal ends.
type look struct {
	*live.Viewer
	w      *world
	cancel context.CancelFunc

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
	at   int64        // offset of the next byte; guarded by mu
	gaps int64        // guarded by mu
	more chan struct{}
	done chan struct{} // closed at the end of the output
	exit *sandbox.Exit // set before done
}

func (w *world) look(id string, spec live.TerminalSpec) *look {
	w.t.Helper()
	v, err := w.Terminals().Open(w.ctx, id, spec)
	if err != nil {
		w.t.Fatalf("OpenTerminal %+v: %v", spec, err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	l := &look{Viewer: v, w: w, cancel: cancel, at: v.Offset, more: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for e, err := range v.Output(ctx) {
			if err != nil {
				return
			}
			if e.Exit != nil {
				l.exit = e.Exit
				return
			}
			l.mu.Lock()
			l.gaps += e.Output.Offset - l.at
			l.at = e.Output.Offset + int64(len(e.Output.Data))
			l.text.Write(e.Output.Data)
			l.mu.Unlock()
			select {
			case l.more <- struct{}{}:
			default:
			}
		}
	}()
	return l
}

// leave ends the look as a viewer does that goes away.
func (l *look) leave() {
	l.cancel()
	<-l.done
	l.Close()
}

func (l *look) shown() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait returns when the terminal has shown a text.
func (l *look) wait(text string) {
	l.w.t.Helper()
	from := 0
	shows := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		found := bytes.Contains(l.text.Bytes()[from:], []byte(text))
		from = max(0, l.text.Len()-len(text))
		return found
	}
	for !shows() {
		select {
		case <-l.more:
		case <-l.done:
			if !shows() {
				l.w.t.Fatalf("the terminal ended before %q; it showed:\n%q", text, l.shown())
			}
			return
		case <-l.w.ctx.Done():
			l.w.t.Fatalf("no %q; the terminal shows:\n%q", text, l.shown())
		}
	}
}

func (l *look) typed(keys string) {
	l.w.t.Helper()
	if err := l.Write(l.w.ctx, []byte(keys)); err != nil {
		l.w.t.Fatalf("type %q: %v", keys, err)
	}
}

func TestTerminalIsShared(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	one := w.look("a", live.TerminalSpec{Size: sandbox.WindowSize{Cols: 91, Rows: 31}})
	if !one.New || one.Name != live.DefaultTerminal {
		t.Errorf("the first viewer has %+v", one.Viewer)
	}
	one.typed("stty size\r")
	one.wait("31 91")
	two := w.look("a", live.TerminalSpec{Size: sandbox.WindowSize{Cols: 70, Rows: 20}})
	if two.New || two.Seq != one.Seq || two.Offset != 0 {
		t.Errorf("the second viewer has %+v, the first %+v", two.Viewer, one.Viewer)
	}
	two.wait("31 91") // what was before it came
	two.typed("stty size; A=b\r")
	one.wait("20 70")
	one.typed("echo =$A=\r")
	two.wait("=b=")
	other := w.look("a", live.TerminalSpec{Name: "other", Shell: "cat"})
	if other.Seq == one.Seq {
		t.Error("another name is the same terminal")
	}

	list, err := w.Terminals().List(w.ctx, "a")
	if err != nil || len(list) != 2 {
		t.Fatalf("Terminals = %+v, %v", list, err)
	}
	if m := list[0]; m.Name != "main" || m.Viewers != 2 || m.Size != (sandbox.WindowSize{Cols: 70, Rows: 20}) || m.Shell != "" {
		t.Errorf("main is listed as %+v", m)
	}
	if o := list[1]; o.Name != "other" || o.Viewers != 1 || o.Shell != "cat" || o.Size != (sandbox.WindowSize{Cols: 80, Rows: 24}) {
		t.Errorf("other is listed as %+v", o)
	}
	two.leave()
	if list, _ = w.Terminals().List(w.ctx, "a"); list[0].Viewers != 1 {
		t.Errorf("%d viewers after one left", list[0].Viewers)
	}
	one.typed("exit 3\r")
	<-one.done
	if one.exit == nil || one.exit.Code == nil || *one.exit.Code != 3 || one.exit.Reason != sandbox.EndExited {
		t.Errorf("the terminal ended with %+v", one.exit)
	}
	if err := one.Write(w.ctx, []byte("x")); !errors.Is(err, errs.WrongState) {
		t.Errorf("typing after the end = %v", err)
	}
	if err := w.Terminals().Close(w.ctx, "a", "other"); err != nil {
		t.Errorf("CloseTerminal = %v", err)
	}
	<-other.done
	if other.exit == nil || other.exit.Reason != sandbox.EndKilled {
		t.Errorf("a closed terminal ended with %+v", other.exit)
	}
	if err := w.Terminals().Close(w.ctx, "a", "other"); !errors.Is(err, errs.NotFound) {
		t.Errorf("CloseTerminal again = %v", err)
	}

	// The name is free, and the one that ended can still be seen.
	again := w.look("a", live.TerminalSpec{})
	if !again.New || again.Seq == one.Seq {
		t.Errorf("after the end: %+v", again.Viewer)
	}
	past := w.look("a", live.TerminalSpec{Seq: one.Seq})
	<-past.done
	if past.exit == nil || *past.exit.Code != 3 || !strings.Contains(past.shown(), "=b=") {
		t.Errorf("the ended terminal shows %q and %+v", past.shown(), past.exit)
	}
	past.leave()
	again.leave()
	other.leave()
	one.leave()
	if err := w.Terminals().Close(w.ctx, "a", live.DefaultTerminal); err != nil {
		t.Error(err)
	}
}

// TestTerminalBehavesLikeAShell: a bare cd goes to the workspace, a bad one
// changes nothing, what is exported stays, Ctrl-C ends a command and not the
// shell.
func TestTerminalBehavesLikeAShell(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	l := w.look("a", live.TerminalSpec{})
	l.typed("cd /tmp; cd /nowhere/at/all; echo at=$PWD=\r")
	l.wait("at=/tmp=")
	l.typed("cd 2>&1 | grep -o '/workspace' || cd; echo $?-cd-$(type -t cd)\r")
	l.wait("-cd-function")
	l.typed("export FOO=bar; (exec bash -c 'echo foo=$FOO=')\r")
	l.wait("foo=bar=")
	l.typed("(trap 'exit 9' INT; echo begun; for i in $(seq 600); do sleep 0.1; done)\r")
	l.wait("\rbegun")
	l.typed("\x03")
	l.typed("echo after=$?=\r")
	l.wait("after=")
	l.typed("exit\r")
	<-l.done
	l.leave()
}

// TestTerminalOutlivesTheDaemon: the program goes on, and what it wrote is
// there for who looks next, from where they were.
func TestTerminalOutlivesTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	l := w.look("a", live.TerminalSpec{Shell: "echo hello; read x; echo got-$x; read y"})
	l.wait("hello\r\n")
	l.leave()
	seq, at := l.Seq, l.at

	w.restart()
	l = w.look("a", live.TerminalSpec{})
	if l.New || l.Seq != seq {
		t.Fatalf("after a restart: %+v", l.Viewer)
	}
	l.typed("x1\r")
	l.wait("got-x1")
	if !strings.HasPrefix(l.shown(), "hello\r\n") {
		t.Errorf("the replay is %q", l.shown())
	}
	on := w.look("a", live.TerminalSpec{Seq: seq, After: at})
	on.wait("got-x1")
	if strings.Contains(on.shown(), "hello") || on.Offset != at {
		t.Errorf("reading on at %d shows %q", at, on.shown())
	}
	l.leave()
	on.leave()
	if err := w.Terminals().Close(w.ctx, "a", live.DefaultTerminal); err != nil {
		t.Error(err)
	}
}

// TestTerminalIsBounded: one that prints far more than is kept goes on, a
// viewer that reads nothing holds up nobody, and a later one sees the newest.
func TestTerminalIsBounded(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	const lines = 500_000 // 5.5 MB: more than is kept
	stuck, err := w.Terminals().Open(w.ctx, "a", live.TerminalSpec{Shell: fmt.Sprintf("read x; seq -f %%09.0f %d; echo all; read y; echo still here; read z", lines)})
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	l := w.look("a", live.TerminalSpec{})
	l.typed("\r")
	l.wait("\nall\r\n")
	l.typed("\r")
	l.wait("still here")
	late := w.look("a", live.TerminalSpec{After: -1})
	late.wait("still here")
	first, _, _ := strings.Cut(late.shown(), "\r\n")
	if len(first) != 9 || first < "000470000" {
		t.Errorf("the replay begins with %q, want a whole line near the end", first)
	}
	if usage, err := w.journals.Usage(b.UID); err != nil || usage > 6<<20 {
		t.Errorf("the journal takes %d bytes, %v", usage, err)
	}
	gone := w.look("a", live.TerminalSpec{Seq: l.Seq, After: 0})
	gone.wait("still here")
	if gone.Offset == 0 {
		t.Error("the oldest output is still there")
	}
	if first, _, _ := strings.Cut(gone.shown(), "\r\n"); len(first) != 9 {
		t.Errorf("what is left begins with %q, want a whole line", first)
	}
	for _, l := range []*look{l, late, gone} {
		l.leave()
	}
	if err := w.Terminals().Close(w.ctx, "a", live.DefaultTerminal); err != nil {
		t.Error(err)
	}
}

func TestTerminalRefusals(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	x := w.sh("a", "true").Exec
	w.create("stopped")
	if _, err := w.Sandboxes().Stop(w.ctx, "stopped", 0); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, id string
		spec     live.TerminalSpec
		want     error
	}{
		{"no sandbox", "none", live.TerminalSpec{}, errs.NotFound},
		{"stopped", "stopped", live.TerminalSpec{}, errs.WrongState},
		{"name", "a", live.TerminalSpec{Name: "../x"}, errs.Invalid},
		{"size", "a", live.TerminalSpec{Size: sandbox.WindowSize{Cols: 80}}, errs.Invalid},
		{"seq", "a", live.TerminalSpec{Seq: 99}, errs.NotFound},
		{"a command's seq", "a", live.TerminalSpec{Seq: x.Seq}, errs.NotFound},
		{"user", "a", live.TerminalSpec{User: "no\nbody"}, errs.Invalid},
	} {
		if _, err := w.Terminals().Open(w.ctx, tt.id, tt.spec); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	stranger := auth.WithPrincipal(w.ctx, auth.Principal{Name: "s", Tenant: "strange"})
	if _, err := w.Terminals().Open(stranger, "a", live.TerminalSpec{}); !errors.Is(err, errs.NotFound) {
		t.Errorf("another tenant's terminal = %v", err)
	}
	if list, err := w.Terminals().List(w.ctx, "stopped"); err != nil || len(list) != 0 {
		t.Errorf("the terminals of a stopped sandbox = %v, %v", list, err)
	}
	var all []*live.Viewer
	for i := 0; ; i++ {
		v, err := w.Terminals().Open(w.ctx, "a", live.TerminalSpec{Name: fmt.Sprint("t", i), Shell: "cat"})
		if errors.Is(err, errs.Exhausted) {
			break
		}
		if err != nil || i > 100 {
			t.Fatalf("terminal %d: %v", i, err)
		}
		all = append(all, v)
	}
	if len(all) != 16 {
		t.Errorf("%d terminals, want 16", len(all))
	}
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		v.Close()
	}
}
