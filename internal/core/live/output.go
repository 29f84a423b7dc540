package live

import (
	"context"
	"errors"
	"iter"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// OutputCaps bound how many bytes of each stream a [Result] holds; a negative
// one is all.
type OutputCaps struct {
	Stdout, Stderr, Rich int64
	// Hold is how much of stdout and stderr together a Result holds: what is
	// longer is its Long. 0 is all.
	Hold int64
	Ends bool // keeps the beginning and the end, see [journal.Caps]
}

// Result is an exec with its output. The cut counts are the bytes that are
// missing, whether the journal or the caps left them out. Pruned says that the
// output was removed to make room for later ones: how much it was is not known
// then, and the cut counts are what was missing before.
type Result struct {
	Exec                          sandbox.Exec
	Stdout, Stderr                []byte
	StdoutEnd, StderrEnd          []byte // with [OutputCaps.Ends]: what follows what is missing
	Rich                          []byte // of a cell: see [cell.Execution]
	StdoutCut, StderrCut, RichCut int64
	Pruned                        bool
	// Long is output that is longer than Hold; Stdout and Stderr are empty
	// then.
	Long *LongOutput
}

// LongOutput is output that is read when it is needed.
type LongOutput struct{ Stdout, Stderr LongText }

// LongText is a stream of output that is not held.
type LongText struct {
	Size int64
	Text bool // it is UTF-8
	read func(context.Context) iter.Seq2[[]byte, error]
}

// Read returns the bytes, piece by piece, as often as it is called. It is
// errs.NotFound or errs.Unavailable when they were removed meanwhile.
func (t LongText) Read(ctx context.Context) iter.Seq2[[]byte, error] { return t.read(ctx) }

// mostShown bounds the output of an operation whose result is made of it.
const mostShown = 8 << 20

// Result returns an exec with its output so far.
func (h *Execs) Result(ctx context.Context, id string, seq int64, caps OutputCaps) (Result, error) {
	x, err := h.Get(ctx, id, seq)
	if err != nil {
		return Result{}, err
	}
	return h.result(ctx, x, caps)
}

func (h *Execs) result(ctx context.Context, x sandbox.Exec, caps OutputCaps) (Result, error) {
	if h.s.cfg.Operations.madeOfOutput(x) {
		caps.Hold, caps.Stdout, caps.Stderr = 0, min(caps.Stdout, mostShown), min(caps.Stderr, mostShown)
	}
	if err := h.chargeOutput(ctx, x, caps); err != nil {
		return Result{}, err
	}
	c, err := h.s.cfg.Journals.Collect(ctx, x.Box, x.Seq, journal.Caps(caps))
	if errors.Is(err, errs.NotFound) {
		r := Result{Exec: x, Pruned: !x.Unlogged()}
		if x.Exit != nil {
			r.StdoutCut, r.StderrCut, r.RichCut = x.Exit.StdoutCut, x.Exit.StderrCut, x.Exit.RichCut
		}
		return r, nil
	}
	if err != nil {
		return Result{}, err
	}
	x.Result = h.s.cfg.Operations.shown(x, c.Stdout)
	var long *LongOutput
	if c.Measured {
		text := func(stream sandbox.Stream, size journal.Size) LongText {
			return LongText{Size: size.Bytes, Text: size.UTF8, read: func(ctx context.Context) iter.Seq2[[]byte, error] {
				return h.s.cfg.Journals.ReadStream(ctx, x.Box, x.Seq, stream, size.Bytes)
			}}
		}
		long = &LongOutput{Stdout: text(sandbox.Stdout, c.StdoutSize), Stderr: text(sandbox.Stderr, c.StderrSize)}
	}
	return Result{
		Exec: x, Long: long, Stdout: c.Stdout, Stderr: c.Stderr, StdoutEnd: c.StdoutEnd, StderrEnd: c.StderrEnd, Rich: c.Rich,
		StdoutCut: c.StdoutCut, StderrCut: c.StderrCut, RichCut: c.RichCut,
	}, nil
}

// CheckOutput is the error that [Execs.Output] would begin with: NotFound
// when there is no such exec, or when its output was removed.
func (h *Execs) CheckOutput(ctx context.Context, id string, seq int64) error {
	x, err := h.Get(ctx, id, seq)
	if err != nil {
		return err
	}
	err = h.s.cfg.Journals.Check(x.Box, x.Seq)
	if errors.Is(err, errs.NotFound) && x.Unlogged() {
		return nil
	}
	return err
}

// Output reads an exec's output from an offset. With follow it waits for more
// until the exec has ended, also while its sandbox sleeps. The last entry of a
// finished exec is its Exit. It is NotFound when the output was removed to make
// room for later ones.
func (h *Execs) Output(ctx context.Context, id string, seq, after int64, follow bool) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		b, err := h.s.cfg.Scope.FindHistory(ctx, id)
		if err != nil {
			yield(journal.Entry{}, err)
			return
		}
		r := outputReader{s: h.s, box: b.UID, seq: seq, offset: after, yield: yield}
		if err := r.read(ctx, follow); err != nil {
			yield(journal.Entry{}, err)
		}
	}
}

// outputReader reads the output of one exec for somebody, over the sleeps of its
// sandbox.
type outputReader struct {
	s      *Sandboxes
	box    sandbox.UID
	seq    int64
	offset int64 // where the next entry begins
	yield  func(journal.Entry, error) bool
	pause  func(context.Context, journal.Entry) // after an entry; nil: none
}

// read gives the output to the receiver until there is no more, and with follow
// until the exec has ended. Nil also when the receiver wants no more.
func (o *outputReader) read(ctx context.Context, follow bool) error {
	s := o.s
	if !follow {
		x, err := s.cfg.Store.Exec(ctx, o.box, o.seq)
		if err != nil {
			return err
		}
		_, err = o.readLog(ctx, x, false)
		return err
	}
	// What it has printed can be seen while it sleeps.
	if s.Of(o.box) == nil && s.cfg.Journals.Check(o.box, o.seq) == nil {
		x, err := s.cfg.Store.Exec(ctx, o.box, o.seq)
		if err != nil {
			return err
		}
		if done, err := o.readLog(ctx, x, false); done || err != nil {
			return err
		}
	}
	for {
		e, x, err := s.awaitLive(ctx, o.box, o.seq)
		if err != nil {
			return err
		}
		if e == nil {
			_, err = o.readLog(ctx, x, false)
			return err
		}
		if x, err = s.cfg.Store.Exec(ctx, o.box, o.seq); err != nil {
			return err
		}
		done, err := o.followLog(ctx, x)
		if done || !leftBehind(e, err) {
			return err
		}
		if err := s.awaitLeft(ctx, e.run); err != nil {
			return err
		}
	}
}

// followLog follows the log of an exec that runs.
func (o *outputReader) followLog(ctx context.Context, x sandbox.Exec) (done bool, err error) {
	follower, err := o.s.followOutput(ctx)
	if err != nil {
		return false, err
	}
	defer follower.leave()
	o.pause = follower.pause
	defer func() { o.pause = nil }()
	return o.readLog(ctx, x, true)
}

// readLog reads what the log has. It is done when the receiver has the exit, or
// wants no more.
func (o *outputReader) readLog(ctx context.Context, x sandbox.Exec, follow bool) (done bool, err error) {
	for entry, err := range o.s.cfg.Journals.Read(ctx, o.box, o.seq, o.offset, follow) {
		if errors.Is(err, errs.NotFound) && x.Unlogged() {
			break
		}
		if err != nil {
			return false, err
		}
		if !o.yield(entry, nil) || entry.Exit != nil {
			return true, nil
		}
		o.offset = entry.Output.Offset + int64(len(entry.Output.Data))
		if o.pause != nil {
			o.pause(ctx, entry)
		}
	}
	if x.Exit != nil {
		o.yield(journal.Entry{Exit: x.Exit}, nil)
		return true, nil
	}
	return false, nil
}

// leftBehind reports whether the log of an exec has come to an end because its run
// is suspended: it goes on with the next one.
func leftBehind(e *Exec, err error) bool {
	return (err == nil || errors.Is(err, errs.Unavailable)) && e.run.execs.isSuspended()
}

// awaitLeft waits until a suspended run has left.
func (s *Sandboxes) awaitLeft(ctx context.Context, r *Run) error { return s.awaitChange(ctx, r.left) }

// chargeOutput counts what a result will hold of an exec's output, before it is
// read.
func (h *Execs) chargeOutput(ctx context.Context, x sandbox.Exec, caps OutputCaps) error {
	bytes, err := h.logBytes(x)
	if err != nil || caps.Hold > 0 && bytes > caps.Hold {
		return err // it is read when it leaves
	}
	most := int64(0)
	for _, n := range []int64{caps.Stdout, caps.Stderr, caps.Rich} {
		if n < 0 {
			n = bytes
		}
		most += n
	}
	return h.s.cfg.Budget.ChargeOutput(ctx, min(bytes, most))
}

// logBytes is the size of an exec's log; 0 when nothing is counted.
func (h *Execs) logBytes(x sandbox.Exec) (int64, error) {
	if !h.s.cfg.Budget.Counts() {
		return 0, nil
	}
	return h.s.cfg.Journals.LogUsage(x.Box, x.Seq)
}
