package live

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/replay"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A terminal is an exec with a PTY and a name. Whoever looks at it reads its
// journal, so viewers come and go, none holds up another or the program, and
// the daemon can die in between.

const (
	// DefaultTerminal is the name of a terminal that was given none.
	DefaultTerminal = "main"
	// ringKept is how much of the output of a terminal or a service is kept: the
	// newest.
	ringKept = 4 << 20
	// maxTerminals bounds what the journals of terminals take beside the cap
	// of the sandbox.
	maxTerminals = 16
)

// TerminalSpec says which terminal to look at, and what it is when it has to
// be made.
type TerminalSpec struct {
	Name string // "": DefaultTerminal
	// Seq, when not 0, means exactly this one instead of the one that has the
	// name now. It may have ended.
	Seq int64
	// After is the output offset to begin at. A negative one, or one that the
	// terminal never reached, begins a screenful or more before the end.
	After int64
	// Size is zero for no change; a new terminal is 80 × 24 then.
	Size sandbox.WindowSize

	// What a new one runs. Shell "" is an interactive shell.
	Shell, User, Cwd string
}

// Terminal is one that is open.
type Terminal struct {
	Name      string
	Seq       int64
	Shell     string // "": an interactive shell
	User      string
	Size      sandbox.WindowSize
	CreatedAt time.Time
	Viewers   int
}

// Terminals is the terminals of running sandboxes.
type Terminals struct {
	s     *Sandboxes
	locks keylock.Locks // by sandbox.UID and name; held by whoever opens one
}

// Open attaches to the terminal that has the name, and makes it when
// there is none. The sandbox is in use until the viewer is closed. WrongState
// when the sandbox does not run, NotFound when there is no such seq,
// Exhausted when too many are open.
func (h *Terminals) Open(ctx context.Context, id string, spec TerminalSpec) (*Viewer, error) {
	leave, err := h.s.cfg.Gate.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	spec.Name = cmp.Or(spec.Name, DefaultTerminal)
	if err := sandbox.ValidateName("terminal", spec.Name); err != nil {
		return nil, err
	}
	if spec.Size != (sandbox.WindowSize{}) {
		if err := spec.Size.Validate(); err != nil {
			return nil, err
		}
	}
	v, done, err := h.find(ctx, id, spec)
	if err != nil {
		return nil, err
	}
	defer done()
	v.id = id
	if e := v.exec; e != nil && !v.New && spec.Size != (sandbox.WindowSize{}) {
		// A program that ends just now has no size; its end is what the
		// viewer gets to see.
		if err := v.Resize(ctx, spec.Size); err != nil && !errors.Is(err, errs.WrongState) {
			return nil, err
		}
	}
	if v.Offset, v.replay, err = replay.From(ctx, h.s.cfg.Journals, v.box, v.Seq, spec.After); err != nil {
		return nil, err
	}
	if v.exec != nil {
		v.look(ctx, v.exec)
	}
	return v, nil
}

// find finds or makes the terminal. The sandbox is in use until done.
func (h *Terminals) find(ctx context.Context, id string, spec TerminalSpec) (v *Viewer, done func(), err error) {
	if spec.Seq != 0 {
		v, err = h.bySeq(ctx, id, spec.Seq)
		return v, func() {}, err
	}
	b, r, used, err := h.s.Use(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			used()
		}
	}()
	unlock, err := h.locks.Lock(ctx, string(b.UID)+"/"+spec.Name)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	open := r.terminals()
	for _, e := range open {
		if x := e.Snapshot(); x.Spec.Terminal == spec.Name {
			return &Viewer{Name: spec.Name, Seq: e.seq, box: b.UID, exec: e, s: h.s}, used, nil
		}
	}
	if len(open) >= maxTerminals {
		return nil, nil, errs.E(errs.Exhausted, "%d terminals are open in this sandbox already", len(open)).Hint("close one, or look at one of them: several can")
	}
	e, err := h.s.begin(ctx, id, terminalExec(spec))
	if err != nil {
		return nil, nil, err
	}
	return &Viewer{Name: spec.Name, Seq: e.seq, New: true, box: e.run.UID, exec: e, s: h.s}, used, nil
}

func (h *Terminals) bySeq(ctx context.Context, id string, seq int64) (*Viewer, error) {
	b, err := h.s.cfg.Scope.FindHistory(ctx, id)
	if err != nil {
		return nil, err
	}
	if h.s.asleep(b) {
		if err := h.s.execs.rouseFor(ctx, id, seq); err != nil {
			return nil, err
		}
	}
	// In this order: what is not live any more is finished in the store.
	e := h.s.exec(b.UID, seq)
	x, err := h.s.cfg.Store.Exec(ctx, b.UID, seq)
	if err != nil {
		return nil, err
	}
	if x.Spec.Terminal == "" {
		return nil, errs.E(errs.NotFound, "command %d is not a terminal's", seq)
	}
	return &Viewer{Name: x.Spec.Terminal, Seq: seq, box: b.UID, exec: e, end: x.Exit, s: h.s}, nil
}

// terminalExec is the command of a new terminal.
func terminalExec(spec TerminalSpec) sandbox.ExecSpec {
	var none time.Duration
	size := spec.Size
	if size == (sandbox.WindowSize{}) {
		size = sandbox.WindowSize{Cols: 80, Rows: 24}
	}
	x := sandbox.ExecSpec{
		Terminal: spec.Name, Shell: spec.Shell, User: spec.User, Cwd: spec.Cwd,
		Env: map[string]string{"TERM": "xterm-256color"}, Stdin: true, PTY: &size, Timeout: &none,
	}
	if x.Shell == "" {
		x.Argv = []string{"/bin/sh", "-c", interactiveShell}
	}
	return x
}

// interactiveShell is what a terminal runs: bash, as an interactive shell of
// the user, where a bare cd goes to the workspace and a prompt that nobody
// chose shows the directory. Descriptor 3 is what bash reads instead of
// ~/.bashrc.
const interactiveShell = `command -v bash >/dev/null 2>&1 || exec sh -i
exec bash --rcfile /proc/self/fd/3 -i 3<<'END'
exec 3<&-
[ -r ~/.bashrc ] && . ~/.bashrc
[ "$PS1" = '\s-\v\$ ' ] && PS1='\u@\h:\w\$ '
[ "$(type -t cd)" = builtin ] && cd() {
  if [ $# -eq 0 ]; then builtin cd ` + sandbox.WorkspaceDir + `; else builtin cd "$@"; fi
}
true
END`

// openJournal opens the log of an exec, for a terminal and for a run of a service
// one that keeps the end: they print for as long as the sandbox runs.
func (s *Sandboxes) openJournal(x sandbox.Exec) (*journal.Log, error) {
	if x.Spec.Terminal != "" || x.Spec.Service != nil {
		return s.cfg.Journals.CreateRing(x.Box, x.Seq, ringKept)
	}
	return s.cfg.Journals.Create(x.Box, x.Seq)
}

// terminals returns the terminals whose program runs.
func (r *Run) terminals() []*Exec {
	return slices.DeleteFunc(r.execs.all(), func(e *Exec) bool {
		x := e.Snapshot()
		return x.Spec.Terminal == "" || x.Status.Finished()
	})
}

// List lists the open terminals of a sandbox by name, also of one that sleeps. It
// wakes nothing.
func (h *Terminals) List(ctx context.Context, id string) ([]Terminal, error) {
	b, err := h.s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	var all []Terminal
	if r := h.s.Of(b.UID); r != nil {
		for _, e := range r.terminals() {
			all = append(all, terminalOf(e.Snapshot(), int(e.viewers.Load())))
		}
	} else if all, err = h.asleep(ctx, b.UID); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Terminal) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// asleep lists the terminals that a sandbox sleeps with.
func (h *Terminals) asleep(ctx context.Context, box sandbox.UID) (all []Terminal, err error) {
	for after := int64(0); ; {
		page, err := h.s.unfinished(ctx, box, after)
		if err != nil || len(page) == 0 {
			return all, err
		}
		for _, x := range page {
			if after = x.Seq; x.Spec.Terminal != "" {
				all = append(all, terminalOf(x, 0))
			}
		}
	}
}

func terminalOf(x sandbox.Exec, viewers int) Terminal {
	t := Terminal{
		Name: x.Spec.Terminal, Seq: x.Seq, Shell: x.Spec.Shell, User: x.Spec.User, CreatedAt: x.CreatedAt, Viewers: viewers,
	}
	if x.Spec.PTY != nil {
		t.Size = *x.Spec.PTY
	}
	return t
}

// Close kills the program of a terminal and everything that descends from it.
// NotFound when there is no such terminal.
func (h *Terminals) Close(ctx context.Context, id, name string) error {
	open, err := h.List(ctx, id)
	if err != nil {
		return err
	}
	for _, t := range open {
		if t.Name == name {
			_, err := h.s.execs.Cancel(ctx, id, t.Seq)
			return err
		}
	}
	return errs.E(errs.NotFound, "no terminal %.64q is open", name)
}
