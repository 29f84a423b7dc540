package live

import (
	"context"
	"iter"
	"sync"

	"github.com/cubbyhq/cubby/internal/core/replay"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Viewer is somebody's look at a terminal. It stays while the sandbox sleeps, and
// goes on after the wake. Its methods may be called from any goroutine.
type Viewer struct {
	Name   string
	Seq    int64
	New    bool  // the terminal was made for this viewer
	Offset int64 // where its output begins

	s      *Sandboxes
	id     string // of the sandbox, as its viewer calls it
	box    sandbox.UID
	replay int64 // output before this offset is older than the look

	mu     sync.Mutex
	exec   *Exec         // nil: its program has ended; guarded by mu
	end    *sandbox.Exit // how, then; guarded by mu
	done   func()        // ends the look at exec; nil: there is none; guarded by mu
	closed bool          // guarded by mu
}

// look counts the viewer as one of an exec, and no more as one of the exec in the
// run before.
func (v *Viewer) look(ctx context.Context, e *Exec) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed || v.exec == e && v.done != nil {
		return
	}
	if v.done != nil {
		v.done()
		v.done = nil
	}
	v.exec = e
	if used, ok := e.run.open(ctx); ok {
		e.viewers.Add(1)
		v.done = func() {
			e.viewers.Add(-1)
			used()
		}
	}
}

// ended notes that the terminal's program has ended while nobody could see it.
func (v *Viewer) ended(exit *sandbox.Exit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.exec, v.end = nil, exit
}

func (v *Viewer) current() (*Exec, *sandbox.Exit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.exec, v.end
}

// Close ends the look; the terminal goes on.
func (v *Viewer) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	if v.done != nil {
		v.done()
		v.done = nil
	}
}

// Output is the terminal's output from Offset on, as it comes; the last entry
// is the end of its program. Who reads slower than the terminal writes misses
// what it does not keep any more, and sees that at the offsets. What is older
// than the look asks the viewer's terminal no questions.
func (v *Viewer) Output(ctx context.Context) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		follower, err := v.s.followOutput(ctx)
		if err != nil {
			yield(journal.Entry{}, err)
			return
		}
		defer follower.leave()
		r := viewerReader{Viewer: v, follower: follower, offset: v.Offset, yield: yield}
		for {
			e, end := v.current()
			done, err := r.read(ctx, e != nil)
			if e != nil && !done && leftBehind(e, err) {
				if err = v.rejoin(ctx, e); err == nil {
					continue
				}
			}
			if err != nil {
				yield(journal.Entry{}, err)
				return
			}
			if e != nil {
				end = e.Snapshot().Exit
			}
			if !done && end != nil {
				yield(journal.Entry{Exit: end}, nil)
			}
			return
		}
	}
}

// viewerReader reads a terminal's output for its viewer.
type viewerReader struct {
	*Viewer
	follower *outputFollower
	queries  replay.Filter
	offset   int64 // where the next entry begins
	yield    func(journal.Entry, error) bool
}

// read reads what the log has. It is done when the receiver has the exit, or
// wants no more.
func (r *viewerReader) read(ctx context.Context, follow bool) (done bool, err error) {
	for entry, err := range r.s.cfg.Journals.Read(ctx, r.box, r.Seq, r.offset, follow) {
		if err != nil {
			return false, err
		}
		o := entry.Output
		if o.Offset < r.replay {
			r.queries.Strip(o.Data[:min(int64(len(o.Data)), r.replay-o.Offset)])
		}
		if !r.yield(entry, nil) || entry.Exit != nil {
			return true, nil
		}
		r.offset = o.Offset + int64(len(o.Data))
		r.follower.pause(ctx, entry)
	}
	return false, nil
}

// rejoin waits for the terminal in the sandbox's next run.
func (v *Viewer) rejoin(ctx context.Context, was *Exec) error {
	if err := v.s.awaitLeft(ctx, was.run); err != nil {
		return err
	}
	e, x, err := v.s.awaitLive(ctx, v.box, v.Seq)
	switch {
	case err != nil:
		return err
	case e == nil:
		v.ended(x.Exit)
	default:
		v.look(ctx, e)
	}
	return nil
}

// reach returns the terminal's exec, whose sandbox is woken for it.
func (v *Viewer) reach(ctx context.Context) (*Exec, error) {
	for range useAttempts {
		e, _ := v.current()
		if e == nil {
			return nil, execFinished()
		}
		if !e.run.execs.isSuspended() {
			return e, e.ready(ctx)
		}
		if err := v.s.awaitLeft(ctx, e.run); err != nil {
			return nil, err
		}
		if err := v.s.execs.rouseFor(ctx, v.id, v.Seq); err != nil {
			return nil, err
		}
		if err := v.rejoin(ctx, e); err != nil {
			return nil, err
		}
	}
	return nil, errUnreachable()
}

// Write types. It waits while the program does not read and the terminal's
// input is full. WrongState when the program has ended.
func (v *Viewer) Write(ctx context.Context, data []byte) error {
	e, err := v.reach(ctx)
	if err != nil {
		return err
	}
	_, err = e.writeStdin(ctx, -1, data, false)
	return err
}

// Resize sets the size for all viewers: the last one who says so decides.
func (v *Viewer) Resize(ctx context.Context, size sandbox.WindowSize) error {
	if err := size.Validate(); err != nil {
		return err
	}
	e, err := v.reach(ctx)
	if err != nil {
		return err
	}
	return e.resize(ctx, size)
}
