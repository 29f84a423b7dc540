package journal

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"sort"
	"syscall"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Entry is a piece of output or, as the last one, the exit.
type Entry struct {
	Output sandbox.Output // when Exit is nil; its Data belongs to the receiver
	Exit   *sandbox.Exit
	More   bool // more of the log was there when this was read
}

// readChunk is how much a reader takes at a time: one large record, or many
// small ones. A thousand readers may wait for their clients with it.
const readChunk = headerSize + maxPayload

// Read returns the output from an offset on and, when the log has one, the
// exit as the last entry. Neighbouring records of a stream may come as one
// entry of at most 64 KiB, with the time of the first. Following a log that is
// open, it waits for what comes and ends after the exit or with ctx. Without
// follow, and for a log that was never finished, it ends where the log ends. A
// ring begins with the oldest output that it has, and a follower that it
// overtakes goes on there: the entry's offset tells.
//
// Its errors, of which the first ends the reading, are errs.NotFound when the
// log was pruned or never made, errs.Invalid when after is negative,
// errs.Unavailable when the log is closed under a follower, ctx's, and
// errs.Internal where the file is damaged. An offset beyond the end is no
// error: there is nothing yet.
func (j *Journals) Read(ctx context.Context, uid sandbox.UID, seq, after int64, follow bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if after < 0 {
			yield(Entry{}, errs.E(errs.Invalid, "an offset is not negative"))
			return
		}
		src, err := j.source(uid, seq)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer src.close()
		if err := src.read(ctx, after, follow, yield); err != nil {
			yield(Entry{}, err)
		}
	}
}

// Check is the error that a Read would begin with, nil when there is a log.
func (j *Journals) Check(uid sandbox.UID, seq int64) error {
	src, err := j.source(uid, seq)
	if err != nil {
		return err
	}
	src.close()
	return nil
}

// source is where a reader reads: an open log, which can grow, or a file.
type source struct {
	log   *Log // nil: a file that does not change
	file  *os.File
	reuse bool // what it yields is valid until the next entry
}

func (j *Journals) source(uid sandbox.UID, seq int64) (*source, error) {
	b, err := j.box(uid)
	if err != nil {
		return nil, err
	}
	for {
		b.mu.Lock()
		l := b.open[seq]
		if l == nil {
			// Opened under the lock, so that it is not reopened to grow
			// meanwhile.
			f, err := os.OpenFile(b.path(seq), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
			b.mu.Unlock()
			if errors.Is(err, fs.ErrNotExist) {
				return nil, errPruned()
			}
			if err != nil {
				return nil, fault(err)
			}
			return &source{file: f}, nil
		}
		b.mu.Unlock()
		l.mu.Lock()
		if l.file != nil {
			l.readers++
			l.mu.Unlock()
			return &source{log: l, file: l.file}, nil
		}
		l.mu.Unlock() // it was closed between the locks
	}
}

func (s *source) close() {
	if s.log == nil {
		s.file.Close()
		return
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.readers--
	s.log.release() //nolint:errcheck // an error of the last close was seen by nobody who could act
}

// view is what a reader sees of a source at one moment.
type view struct {
	end    int64         // of the output records
	exit   *sandbox.Exit // the log ended so
	closed error         // the log was closed without an end
	wake   chan struct{} // closed when the view is out of date
}

// look returns the present view of an open log. A wake channel is only made
// when there is nothing beyond position.
func (l *Log) look(position int64, follow bool) view {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := view{end: l.outEnd, exit: l.exit}
	if position < v.end || v.exit != nil {
		return v
	}
	if l.closed {
		v.closed = l.whyClosed()
		return v
	}
	if follow {
		if l.wake == nil {
			l.wake = make(chan struct{})
		}
		v.wake = l.wake
	}
	return v
}

// start returns the position of a record at or before an offset.
func (l *Log) start(offset int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := sort.Search(len(l.index), func(i int) bool { return l.index[i].offset > offset })
	if i == 0 {
		return l.first.position
	}
	return l.index[i-1].position
}

// scan returns a scanner of a file that does not change, at its oldest record.
func (s *source) scan() (*scanner, mark, error) {
	info, err := s.file.Stat()
	if err != nil {
		return nil, mark{}, fault(err)
	}
	sc := &scanner{file: s.file, limit: info.Size(), reuse: s.reuse}
	oldest, err := sc.oldest()
	sc.position = oldest.position
	return sc, oldest, err
}

func (s *source) read(ctx context.Context, after int64, follow bool, yield func(Entry, error) bool) error {
	if s.log == nil {
		sc, _, err := s.scan()
		if err != nil {
			return err
		}
		return (&reader{scanner: sc, after: after}).run(ctx, yield)
	}
	sc := &scanner{file: s.file, position: s.log.start(after), reuse: s.reuse}
	r := &reader{scanner: sc, after: after}
	for {
		v := s.log.look(sc.position, follow)
		if sc.position < v.end {
			sc.limit = v.end
			err := r.run(ctx, yield)
			if r.stopped {
				return err
			}
			// A ring may have dropped what was being read.
			if oldest := s.log.oldest(); sc.position < oldest.position {
				sc.position, sc.buf = oldest.position, nil
				continue
			}
			if err != nil {
				return err
			}
			continue
		}
		switch {
		case v.exit != nil:
			yield(Entry{Exit: v.exit}, nil)
			return nil
		case !follow:
			return nil
		case v.closed != nil:
			return v.closed
		}
		sc.buf = nil // a follower may wait for long
		select {
		case <-v.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reader turns records into entries.
type reader struct {
	*scanner
	after   int64
	sought  bool // the scanner stands where after lies
	stopped bool // by the receiver, or by the exit
}

// run yields what lies before the scanner's limit. A record that is cut off
// there ends it without an error: the log was torn and not reopened.
func (r *reader) run(ctx context.Context, yield func(Entry, error) bool) error {
	if !r.sought {
		if err := r.seek(r.after); err != nil {
			return r.explain(err)
		}
		r.sought = true
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, payload, err := r.next()
		if err != nil {
			return r.explain(err)
		}
		var e Entry
		switch h.kind {
		case kindCut: // counted in the exit
			continue
		case kindExit:
			e.Exit = new(sandbox.Exit)
			if json.Unmarshal(payload, e.Exit) != nil {
				return r.explain(errDamaged)
			}
			r.stopped = true
		default:
			e.Output = r.merge(h, payload)
			end := e.Output.Offset + int64(len(e.Output.Data))
			if end <= r.after {
				continue
			}
			if skip := r.after - e.Output.Offset; skip > 0 {
				e.Output.Offset, e.Output.Data = r.after, e.Output.Data[skip:]
			}
			r.after = end
			e.More = r.position < r.limit
		}
		if !yield(e, nil) {
			r.stopped = true
		}
		if r.stopped {
			return nil
		}
	}
}

// merge takes the following records of the same stream into one piece, as far
// as they are in the buffer, by moving their payloads over the headers
// between. Nothing of that part of the buffer was given away yet.
func (r *reader) merge(h header, payload []byte) sandbox.Output {
	o := sandbox.Output{Offset: h.offset, Stream: h.kind.stream(), Time: h.time}
	piece := r.buf[r.position-r.bufAt-int64(h.length):]
	n := len(payload)
	for {
		next, more, err := r.peek()
		if err != nil || next.kind != h.kind || n+len(more) > maxPayload || next.offset != o.Offset+int64(n) {
			o.Data = piece[:n:n]
			return o
		}
		n += copy(piece[n:], more)
		r.skip(next)
	}
}

// explain turns the end of the scanning into what the receiver learns.
func (r *reader) explain(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errShort):
		return nil
	case errors.Is(err, errDamaged):
		return errs.E(errs.Internal, "the output is damaged after byte %d", r.after).Because(err)
	}
	return fault(err)
}
