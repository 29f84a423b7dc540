package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Log is the log of one exec while it can grow. Its methods may be called from
// any goroutine.
type Log struct {
	box   *box
	seq   int64
	write func(f *os.File, at int64, parts ...[]byte) error

	mu       sync.Mutex
	file     *os.File      // nil when closed and no reader is left; guarded by mu, as is the rest
	readers  int           // who read file
	base     int64         // file bytes before the first record of all
	ring     int64         // bytes that a ring keeps; 0: no ring
	nextSlot int           // the slot of a ring that is written next
	first    mark          // the oldest record that is there
	closed   bool          // no more appends
	end      int64         // file bytes of whole records
	outEnd   int64         // file bytes up to the last output record: what readers see
	size     int64         // output bytes, kept or cut
	kept     int64         // output bytes that are kept
	cutting  bool          // the log is at a cap and keeps no more text
	cutRich  bool          // nor anything else
	cutAt    int64         // file position of the cut record at the end; 0: none is there
	run      cuts          // what that record counts
	cut      cuts          // in all
	exit     *sandbox.Exit // how it ended; nil before Finish
	index    []mark        // by position, one every markEvery bytes
	wake     chan struct{} // closed by the next change; nil when nobody waits
	charged  int64         // what the box booked for it
	header   [headerSize]byte
}

// mark says which output offset the record at a file position has.
type mark struct{ offset, position int64 }

const markEvery = 1 << 20

// Size returns the output bytes so far, with those that were cut: the offset
// that the next append is expected to have.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Cut returns how many bytes are not kept because of a cap. What a ring let go
// counts as stdout: a terminal has one stream.
func (l *Log) Cut() (stdout, stderr, rich int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut.stdout + l.dropped(), l.cut.stderr, l.cut.rich
}

// Exit returns what Finish was called with, nil while it was not.
func (l *Log) Exit() *sandbox.Exit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exit
}

// Append adds output and wakes the followers. Bytes before Size are skipped,
// so the same piece can be sent twice; a gap is errs.Internal. Bytes beyond a
// cap are counted and not kept. When the host's disk is full it is
// errs.Exhausted and the log is as it was before, or has a part of a piece
// longer than 64 KiB: Size tells. It is WrongState after Finish and
// errs.Unavailable after Close. The data is not kept after the return.
func (l *Log) Append(o sandbox.Output) error {
	k, ok := kindOf(o.Stream)
	if !ok {
		return errs.E(errs.Internal, "unknown output stream %d", o.Stream)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case k == kindRich && l.ring > 0:
		return errs.E(errs.Internal, "a terminal has no rich output")
	case l.exit != nil:
		return errs.E(errs.WrongState, "the exec has finished")
	case l.closed:
		return l.whyClosed()
	case o.Offset > l.size || o.Offset < 0:
		return errs.E(errs.Internal, "output at %d and the log ends at %d", o.Offset, l.size)
	case l.size-o.Offset >= int64(len(o.Data)):
		return nil
	}
	data := o.Data[l.size-o.Offset:]
	defer l.broadcast()
	for len(data) > 0 && !l.full(k) {
		n := min(len(data), maxPayload)
		if limit := l.box.limits.perExec(k); limit > 0 && l.ring == 0 {
			n = int(min(int64(n), limit-l.kept))
		}
		if n <= 0 || !l.box.admit(l, l.end+headerSize+int64(n)) && l.ring == 0 {
			l.cutting, l.cutRich = true, l.cutRich || k == kindRich
			break
		}
		if err := l.appendOutput(k, o.Time, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	if len(data) == 0 {
		return nil
	}
	return l.countCut(o.Stream, o.Time, int64(len(data)))
}

// full reports whether the log keeps no more of a kind. Once a part is missing
// of what is not text no more of it is kept: it is lines, and the next would
// be taken for the rest of the one that broke off.
func (l *Log) full(k kind) bool { return l.cutting && k != kindRich || l.cutRich }

func (l *Log) appendOutput(k kind, at time.Time, data []byte) error {
	position := l.end
	if err := l.put(position, k, l.size, at, data); err != nil {
		return err
	}
	l.remember(position)
	l.size += int64(len(data))
	l.kept += int64(len(data))
	l.outEnd = l.end
	l.cutAt, l.run = 0, cuts{}
	if err := l.dropOldest(); err != nil {
		return fmt.Errorf("drop the oldest of log %d: %w", l.seq, fault(err))
	}
	return nil
}

// remember puts the record at a position, which begins at size, into the
// index, unless the last mark is near.
func (l *Log) remember(position int64) {
	if last := len(l.index) - 1; last < 0 || position-l.index[last].position >= l.markDistance() {
		l.index = append(l.index, mark{l.size, position})
	}
}

// space is what the log takes on disk when its records end at a position.
func (l *Log) space(end int64) int64 { return onDisk(l.base + end - l.first.position) }

// becomeLog puts l in the state of a log without records.
func (l *Log) becomeLog() {
	l.base = int64(len(magic))
	l.first = mark{position: l.base}
	l.end, l.outEnd = l.base, l.base
}

// countCut writes the cut record in its place: a log over its cap must not
// grow by counting.
func (l *Log) countCut(s sandbox.Stream, at time.Time, n int64) error {
	run, position := l.run, l.cutAt
	run.add(s, n)
	if position == 0 {
		position = l.end
	}
	offset := l.size - l.run.total() // where the cutting began
	if err := l.put(position, kindCut, offset, at, run.encode()); err != nil {
		return err
	}
	l.run, l.cutAt = run, position
	l.cut.add(s, n)
	l.size += n
	return nil
}

// put writes a record and moves the end behind it. When it returns an error
// the file is as it was, but for bytes after the end.
func (l *Log) put(position int64, k kind, offset int64, at time.Time, payload []byte) error {
	header{kind: k, length: len(payload), offset: offset, time: at, sum: crc32.Checksum(payload, castagnoli)}.put(&l.header)
	if err := l.write(l.file, position, l.header[:], payload); err != nil {
		// To give the space back; the checksums make what stays harmless.
		if position == l.end {
			err = errors.Join(err, l.file.Truncate(l.end))
		}
		return fmt.Errorf("append to log %d: %w", l.seq, fault(err))
	}
	l.end = position + headerSize + int64(len(payload))
	l.box.mu.Lock()
	l.box.charge(l)
	l.box.mu.Unlock()
	return nil
}

// Finish ends the log: followers get all output and then the exit, with the
// bytes that were cut added to its counts. The first Finish stays; later ones
// do nothing. When the exit cannot be written, say to a full disk, it returns
// the error, and the log is finished for this process all the same.
func (l *Log) Finish(exit sandbox.Exit) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.exit != nil {
		return nil
	}
	if l.closed {
		return l.whyClosed()
	}
	exit.StdoutCut += l.cut.stdout + l.dropped()
	exit.StderrCut += l.cut.stderr
	exit.RichCut += l.cut.rich
	payload, err := json.Marshal(exit)
	if err == nil && len(payload) > maxPayload {
		exit.Message = exit.Message[:min(len(exit.Message), maxPayload/16)]
		payload, err = json.Marshal(exit)
	}
	if err == nil {
		err = l.put(l.end, kindExit, l.size, time.Now(), payload)
	}
	l.exit = &exit
	return errors.Join(err, l.shut())
}

// Close ends the appending without an end of the exec: the log can be
// reopened. Followers get errs.Unavailable. Closing twice, or after Finish, is
// not an error.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	return l.shut()
}

// shut takes the log out of the open ones and wakes the followers. l.mu is
// held.
func (l *Log) shut() error {
	l.closed = true
	l.box.mu.Lock()
	l.box.keep(l)
	l.box.mu.Unlock()
	l.broadcast()
	return l.release()
}

// release closes the file when nobody uses it. l.mu is held.
func (l *Log) release() error {
	if !l.closed || l.readers > 0 || l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

func (l *Log) whyClosed() error {
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	if l.box.gone {
		return errPruned()
	}
	return errClosed()
}

// broadcast wakes everybody who waits. l.mu is held.
func (l *Log) broadcast() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// recover reads an existing file up to its last whole record, cuts what
// follows and puts l in the state that it had. An empty file becomes a log.
// A file that is no log of this version is refused and left alone.
func (l *Log) recover(ring int64) error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	head := make([]byte, len(magic))
	n, err := l.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	isRing := string(head[:n]) == ringMagic
	if string(head[:n]) != magic[:n] && !isRing {
		// A crash of the host can leave a file that has its length and not
		// yet its content.
		if slices.ContainsFunc(head[:n], func(c byte) bool { return c != 0 }) {
			return errs.E(errs.Internal, "the output log is damaged, or of another version")
		}
		n = 0
	}
	if n < len(magic) {
		if err := l.file.Truncate(0); err != nil {
			return err
		}
		if ring > 0 {
			return l.beginRing(ring)
		}
		return l.write(l.file, 0, []byte(magic))
	}
	if isRing {
		s, which, err := readSlot(l.file)
		if err != nil {
			return err
		}
		l.becomeRing(s, which)
	}
	sc := &scanner{file: l.file, position: l.end, limit: info.Size()}
	for l.exit == nil {
		h, payload, err := sc.next()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, errShort) || errors.Is(err, errDamaged) {
				break
			}
			return err
		}
		if !l.replay(h, payload) {
			break
		}
	}
	if l.end < info.Size() {
		return l.file.Truncate(l.end)
	}
	return nil
}

// replay adds one record to the state; false means that it cannot follow what
// was before.
func (l *Log) replay(h header, payload []byte) bool {
	position := l.end
	switch {
	case h.kind == kindExit:
		exit := new(sandbox.Exit)
		if h.offset != l.size || json.Unmarshal(payload, exit) != nil {
			return false
		}
		l.exit, l.closed = exit, true
	case h.offset != l.size:
		return false
	case h.kind == kindCut:
		run, err := decodeCuts(payload)
		if err != nil || l.cutAt != 0 {
			return false
		}
		l.cutting, l.cutRich = true, l.cutRich || run.rich > 0
		l.run, l.cutAt = run, position
		l.cut = l.cut.plus(run)
		l.size += run.total()
	case l.full(h.kind):
		return false
	default:
		l.cutAt, l.run = 0, cuts{}
		l.remember(position)
		l.size += int64(len(payload))
		l.kept += int64(len(payload))
	}
	l.end += h.size()
	if h.kind.output() {
		l.outEnd = l.end
	}
	return true
}

// pwritev writes all parts at a position, in one system call where the kernel
// takes them whole.
func pwritev(f *os.File, at int64, parts ...[]byte) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var writeErr error
	if err := raw.Control(func(fd uintptr) { writeErr = pwritevAll(int(fd), at, parts) }); err != nil {
		return err
	}
	return writeErr
}

func pwritevAll(fd int, at int64, parts [][]byte) error {
	for len(parts) > 0 {
		n, err := unix.Pwritev(fd, parts, at)
		if err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		at += int64(n)
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
		}
		if len(parts) > 0 {
			parts[0] = parts[0][n:]
		}
	}
	return nil
}
