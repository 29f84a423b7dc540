// Package journal keeps the output of execs: one append-only log per exec, in
// which every byte has an offset, so that any reader can leave and come back.
// The last record of a log says how the exec ended.
//
// What is appended is visible to readers at once and survives a crash of the
// daemon: it is in the kernel's hands when Append returns. Nothing is synced,
// not even by Finish: a sync costs more than a short command, and a power cut
// ends the command anyway. What a power cut can take is the end of a log that
// was written in the last half minute; such a log is a true prefix, without an
// exit, and never a wrong one, because every record carries a checksum.
//
// Logs are bounded. A log over its own cap keeps its beginning, and what is not
// text as long as there is room for that, and counts what it cut; a ring ([Journals.CreateRing]) keeps its end instead. A sandbox
// over its cap loses its oldest finished logs, whole; reading one of those is
// errs.NotFound. The package knows no execs but by
// number and does not log.
package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Limits bound what is kept; 0 means no limit.
type Limits struct {
	PerExec    int64 // bytes of output, all streams; rich output may be a quarter over it
	PerSandbox int64 // bytes on disk
}

// perExec is up to where output of a kind is kept. A cell that printed too much
// still has a result.
func (l Limits) perExec(k kind) int64 {
	if k == kindRich {
		return l.PerExec + l.PerExec/4
	}
	return l.PerExec
}

// Journals are all logs below one directory, which belongs to them alone. The
// methods may be called from any goroutine.
type Journals struct {
	dir    string
	limits Limits
	spares spares

	mu     sync.Mutex
	boxes  map[sandbox.UID]*box // those that were used since Open; guarded by mu
	closed bool                 // guarded by mu
}

// PerExec is how many bytes are kept of one exec; 0 is all.
func (j *Journals) PerExec() int64 { return j.limits.PerExec }

// Open makes the directory when it is missing. It reads nothing: a log that a
// crash has torn is repaired when Create reopens it.
func Open(dir string, limits Limits) (*Journals, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journals: %w", fault(err))
	}
	return &Journals{
		dir: dir, limits: limits, boxes: make(map[sandbox.UID]*box),
		spares: spares{dir: filepath.Join(dir, "spare"), taken: make(chan struct{}, 1)},
	}, nil
}

// Close closes all open logs without finishing them; their followers get
// errs.Unavailable, and they can be reopened by the next process.
func (j *Journals) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	var err error
	for _, b := range j.boxes {
		for _, l := range b.openLogs() {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// Create makes the log of an exec. A log that exists is reopened to append:
// what a crash tore off its end is cut, and Size tells where to go on. A log
// that is open is returned as it is. One that was finished is returned
// finished: see [Log.Exit].
func (j *Journals) Create(uid sandbox.UID, seq int64) (*Log, error) {
	b, err := j.box(uid)
	if err != nil {
		return nil, err
	}
	return b.create(seq, 0)
}

// Remove deletes all logs of a sandbox, also open ones; their followers get
// errs.NotFound. Removing what is not there is not an error.
func (j *Journals) Remove(uid sandbox.UID) error {
	b, err := j.box(uid)
	if err != nil {
		return err
	}
	if err := b.remove(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.boxes, uid)
	return nil
}

// Boxes returns the sandboxes that have logs.
func (j *Journals) Boxes() ([]sandbox.UID, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fault(err)
	}
	var uids []sandbox.UID
	for _, e := range entries {
		if uid, err := sandbox.ParseUID(e.Name()); err == nil && e.IsDir() {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

// Closed returns the logs of a sandbox that are not open, in ascending order.
func (j *Journals) Closed(uid sandbox.UID) ([]int64, error) {
	b, err := j.box(uid)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	seqs := make([]int64, len(b.closed))
	for i, k := range b.closed {
		seqs[i] = k.seq
	}
	return seqs, nil
}

// Usage returns the bytes on disk of a sandbox's logs, as the cap counts them.
func (j *Journals) Usage(uid sandbox.UID) (int64, error) {
	b, err := j.box(uid)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usage, nil
}

// LogUsage returns the bytes on disk of one log, about; 0 when there is none.
func (j *Journals) LogUsage(uid sandbox.UID, seq int64) (int64, error) {
	b, err := j.box(uid)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.open[seq]; l != nil {
		return l.charged, nil
	}
	if i, found := b.find(seq); found {
		return b.closed[i].usage, nil
	}
	return 0, nil
}

// Prune deletes the logs that are not open and were last written before a
// time, in every sandbox.
func (j *Journals) Prune(before time.Time) error {
	uids, err := j.Boxes()
	for _, uid := range uids {
		b, boxErr := j.box(uid)
		if boxErr == nil {
			boxErr = b.prune(before)
		}
		err = errors.Join(err, boxErr)
	}
	return err
}

// RemoveLog deletes one log that is not open and returns what it took on disk:
// 0 when it is open or not there.
func (j *Journals) RemoveLog(uid sandbox.UID, seq int64) (freed int64, err error) {
	b, err := j.box(uid)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i, found := b.find(seq)
	if !found {
		return 0, nil
	}
	if err := os.Remove(b.path(seq)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fault(err)
	}
	freed = b.closed[i].usage
	b.usage -= freed
	b.closed = slices.Delete(b.closed, i, i+1)
	return freed, nil
}

// box returns a sandbox's logs; what is on disk is read once.
func (j *Journals) box(uid sandbox.UID) (*box, error) {
	if _, err := sandbox.ParseUID(string(uid)); err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, errClosed()
	}
	if b := j.boxes[uid]; b != nil {
		return b, nil
	}
	b := &box{dir: filepath.Join(j.dir, string(uid)), limits: j.limits, spares: &j.spares, open: make(map[int64]*Log)}
	if err := b.load(); err != nil {
		return nil, fault(err)
	}
	j.boxes[uid] = b
	return b, nil
}

// box is the logs of one sandbox.
type box struct {
	dir    string
	limits Limits
	spares *spares

	mu     sync.Mutex     // taken after a Log's own
	open   map[int64]*Log // logs that can grow; guarded by mu
	closed []kept         // the others, by seq; guarded by mu
	usage  int64          // of all; guarded by mu
	gone   bool           // guarded by mu
}

// kept is a log on disk that nobody appends to.
type kept struct{ seq, usage int64 }

const suffix = ".log"

func (b *box) path(seq int64) string {
	return filepath.Join(b.dir, strconv.FormatInt(seq, 10)+suffix)
}

// onDisk is what a file of n bytes takes. A sandbox with very many empty logs
// takes real space too.
func onDisk(n int64) int64 {
	const block = 4096
	return (n + block - 1) / block * block
}

func (b *box) load() error {
	entries, err := os.ReadDir(b.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		seq, err := strconv.ParseInt(strings.TrimSuffix(e.Name(), suffix), 10, 64)
		if err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		k := kept{seq, allocated(info)}
		b.closed = append(b.closed, k)
		b.usage += k.usage
	}
	slices.SortFunc(b.closed, func(x, y kept) int { return int(x.seq - y.seq) })
	return nil
}

func (b *box) openLogs() []*Log {
	b.mu.Lock()
	defer b.mu.Unlock()
	logs := make([]*Log, 0, len(b.open))
	for _, l := range b.open {
		logs = append(logs, l)
	}
	return logs
}

// create opens a log to append. One that is not there becomes a ring when ring
// is not 0.
func (b *box) create(seq, ring int64) (*Log, error) {
	if seq <= 0 {
		return nil, errs.E(errs.Invalid, "malformed exec number")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, errPruned()
	}
	if l := b.open[seq]; l != nil {
		return l, nil
	}
	l, err := b.openFile(seq, ring)
	if err != nil {
		return nil, fmt.Errorf("open log %d: %w", seq, fault(err))
	}
	if i, found := b.find(seq); found {
		l.charged = b.closed[i].usage
		b.closed = slices.Delete(b.closed, i, i+1)
	}
	b.charge(l)
	if l.exit != nil {
		b.keep(l)
		return l, l.release()
	}
	b.open[seq] = l
	return l, nil
}

// openFile opens the file of a log or makes it, and reads what it holds.
func (b *box) openFile(seq, ring int64) (*Log, error) {
	const flags = os.O_RDWR | syscall.O_NOFOLLOW
	l := &Log{box: b, seq: seq, write: pwritev}
	l.becomeLog()
	path := b.path(seq)
	f, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(b.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if ring == 0 {
			if l.file = b.spares.take(path); l.file != nil {
				return l, nil
			}
		}
		f, err = os.OpenFile(path, flags|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, err
	}
	l.file = f
	if err := l.recover(ring); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

func (b *box) find(seq int64) (int, bool) {
	return slices.BinarySearchFunc(b.closed, seq, func(k kept, seq int64) int { return int(k.seq - seq) })
}

// charge books what l takes on disk. l.mu is held or l is not shared yet, and
// b.mu is held.
func (b *box) charge(l *Log) {
	now := l.space(l.end)
	b.usage += now - l.charged
	l.charged = now
}

// keep moves a log from the open ones to the others. Locks as for charge.
func (b *box) keep(l *Log) {
	delete(b.open, l.seq)
	if i, found := b.find(l.seq); !found && !b.gone {
		b.closed = slices.Insert(b.closed, i, kept{l.seq, l.charged})
	}
}

// admit reports whether l may grow to end. To make room it deletes the oldest
// logs that are not open, and some more, so that it need not do so for every
// append.
func (b *box) admit(l *Log, end int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limits.PerSandbox
	more := l.space(end) - l.charged
	if limit <= 0 || b.usage+more <= limit {
		return true
	}
	for len(b.closed) > 0 && b.usage+more > limit-limit/16 {
		if err := os.Remove(b.path(b.closed[0].seq)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
		b.usage -= b.closed[0].usage
		b.closed = b.closed[1:]
	}
	return b.usage+more <= limit
}

func (b *box) prune(before time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	b.closed = slices.DeleteFunc(b.closed, func(k kept) bool {
		info, statErr := os.Stat(b.path(k.seq))
		if statErr == nil && !info.ModTime().Before(before) {
			return false
		}
		if statErr == nil {
			statErr = os.Remove(b.path(k.seq))
		}
		if statErr != nil && !errors.Is(statErr, fs.ErrNotExist) {
			err = errors.Join(err, fault(statErr))
			return false
		}
		b.usage -= k.usage
		return true
	})
	return err
}

func (b *box) remove() error {
	b.mu.Lock()
	b.gone = true
	b.mu.Unlock()
	var err error
	for _, l := range b.openLogs() {
		err = errors.Join(err, l.Close())
	}
	return errors.Join(err, fault(os.RemoveAll(b.dir)))
}

func errClosed() error { return errs.E(errs.Unavailable, "the daemon is stopping") }

func errPruned() error {
	return errs.E(errs.NotFound, "the output of this command was removed to make room for later ones").
		Hint("a sandbox keeps the output of its latest commands, up to a limit; follow a command to have all of it")
}

// fault classifies an error of the file system.
func fault(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errs.E(errs.Exhausted, "the host's disk is full").Because(err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return errs.E(errs.Exhausted, "the host has too many open files").Because(err)
	}
	return err
}
