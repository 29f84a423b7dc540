package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A ring is a log without an end, of a terminal or a service: it keeps the newest output
// and drops the oldest. Its file begins with a block of its own:
//
//	0     magic of rings
//	512   first slot
//	1024  second slot
//	4096  records, as in any log
//
// A slot says where the oldest record is; the one that lies further is in
// force. What is before it was taken out of the file with a hole, so positions
// and offsets only ever grow, and a reader that stands in the hole finds zeros,
// which are no record.
const (
	ringMagic = "CUBBYJ\x00\x02"
	ringStart = 4096
	slotSize  = 32
	// minRing makes room for the longest record several times.
	minRing = 256 << 10
)

var slotPositions = [2]int64{512, 1024}

// CreateRing makes a log that keeps about the newest `keep` bytes, at least
// 256 KiB, whatever the cap of an exec; readers begin where its output begins.
// It is outside of the sandbox's cap too, which its bytes count towards: who
// makes rings bounds their number. A log that exists is reopened as it is. It
// is errs.Unsupported where the file system cannot free parts of a file.
func (j *Journals) CreateRing(uid sandbox.UID, seq, keep int64) (*Log, error) {
	b, err := j.box(uid)
	if err != nil {
		return nil, err
	}
	return b.create(seq, max(keep, minRing))
}

// Span returns the offsets between which a log has output now: its oldest byte
// and its end. Its errors are those of Read.
func (j *Journals) Span(uid sandbox.UID, seq int64) (first, end int64, err error) {
	src, err := j.source(uid, seq)
	if err != nil {
		return 0, 0, err
	}
	defer src.close()
	if l := src.log; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.first.offset, l.size - l.run.total(), nil
	}
	sc, oldest, err := src.scan()
	if err != nil {
		return 0, 0, err
	}
	r := &reader{scanner: sc, after: oldest.offset}
	end = oldest.offset
	for {
		h, err := sc.header()
		if err != nil {
			return oldest.offset, end, r.explain(err)
		}
		switch {
		case h.kind == kindExit:
			return oldest.offset, end, nil
		case h.kind.output():
			end = h.offset + int64(h.length)
		}
		sc.skip(h)
	}
}

// slot is what a ring's first block says about its oldest record.
type slot struct {
	first mark
	keep  int64
}

func (s slot) encode() []byte {
	b := make([]byte, slotSize)
	binary.LittleEndian.PutUint64(b[8:], uint64(s.first.position))
	binary.LittleEndian.PutUint64(b[16:], uint64(s.first.offset))
	binary.LittleEndian.PutUint64(b[24:], uint64(s.keep))
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

func decodeSlot(b []byte) (slot, error) {
	if len(b) < slotSize || crc32.Checksum(b[4:slotSize], castagnoli) != binary.LittleEndian.Uint32(b) {
		return slot{}, errDamaged
	}
	s := slot{
		first: mark{
			position: int64(binary.LittleEndian.Uint64(b[8:])),
			offset:   int64(binary.LittleEndian.Uint64(b[16:])),
		},
		keep: int64(binary.LittleEndian.Uint64(b[24:])),
	}
	if s.first.position < ringStart || s.first.offset < 0 || s.keep < minRing {
		return slot{}, errDamaged
	}
	return s, nil
}

// readSlot returns the slot that is in force and which one that is.
func readSlot(f *os.File) (best slot, which int, err error) {
	b := make([]byte, slotSize)
	for i, at := range slotPositions {
		if _, err := f.ReadAt(b, at); err != nil {
			continue // the file is shorter
		}
		if s, err := decodeSlot(b); err == nil && s.first.position > best.first.position {
			best, which = s, i
		}
	}
	if best.keep == 0 {
		return best, 0, errs.E(errs.Internal, "the output log is damaged")
	}
	return best, which, nil
}

// beginRing makes an empty file a ring.
func (l *Log) beginRing(keep int64) error {
	// Asked now, so that a terminal does not die of it later.
	if err := punch(l.file, ringStart, ringStart); err != nil {
		return err
	}
	l.becomeRing(slot{mark{position: ringStart}, keep}, 0)
	head := make([]byte, slotPositions[0]+slotSize)
	copy(head, ringMagic)
	copy(head[slotPositions[0]:], slot{l.first, keep}.encode())
	return l.write(l.file, 0, head)
}

// becomeRing puts l in the state of a ring whose records were not read yet.
func (l *Log) becomeRing(s slot, which int) {
	l.base, l.ring, l.first, l.nextSlot = ringStart, s.keep, s.first, 1-which
	l.end, l.outEnd, l.size = s.first.position, s.first.position, s.first.offset
}

// markDistance is how far the index's marks are apart. A ring drops whole
// distances.
func (l *Log) markDistance() int64 {
	if l.ring > 0 {
		return min(markEvery, l.ring/8)
	}
	return markEvery
}

// dropOldest takes the oldest records out of a ring that is over its size.
// l.mu is held.
func (l *Log) dropOldest() error {
	if l.ring == 0 || l.end-l.first.position <= l.ring {
		return nil
	}
	want := l.end - l.ring*3/4
	i := slices.IndexFunc(l.index, func(m mark) bool { return m.position >= want })
	if i <= 0 {
		return nil
	}
	first := l.index[i]
	// First the slot: a reader, or a daemon after a crash, must not look for
	// records in a hole.
	if err := l.write(l.file, slotPositions[l.nextSlot], slot{first, l.ring}.encode()); err != nil {
		return err
	}
	l.nextSlot = 1 - l.nextSlot
	l.first, l.index = first, slices.Delete(l.index, 0, i)
	l.box.mu.Lock()
	l.box.charge(l)
	l.box.mu.Unlock()
	// From the beginning: only whole blocks are freed, and an earlier daemon may
	// have died before it freed its own.
	return punch(l.file, ringStart, first.position-ringStart)
}

// oldest returns where the records begin now.
func (l *Log) oldest() mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// dropped is how much output a ring has let go.
func (l *Log) dropped() int64 {
	if l.ring == 0 {
		return 0
	}
	return l.first.offset
}

// punch frees a part of a file, which reads as zeros from then on.
func punch(f *os.File, at, n int64) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var punchErr error
	err = raw.Control(func(fd uintptr) {
		for {
			punchErr = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
			if !errors.Is(punchErr, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if errors.Is(punchErr, unix.EOPNOTSUPP) || errors.Is(punchErr, unix.ENOSYS) {
		return errs.E(errs.Unsupported, "the file system of the data directory cannot free parts of a file").
			Hint("terminals and services need one that can: ext4, XFS, btrfs or tmpfs").Because(punchErr)
	}
	return punchErr
}

// allocated is what a file takes on disk: holes take nothing.
func allocated(info os.FileInfo) int64 {
	n := onDisk(info.Size())
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		n = min(n, max(st.Blocks*512, onDisk(1)))
	}
	return n
}
