package journal

import (
	"errors"
	"io"
	"os"

	"github.com/cubbyhq/cubby/internal/errs"
)

// scanner walks the records of a file up to a limit, which may be raised
// between calls. What it returns stays valid, unless it reuses its buffer.
type scanner struct {
	file     *os.File
	position int64 // of the next record
	limit    int64 // file bytes that may be read

	buf   []byte // bytes of the file from bufAt on
	bufAt int64
	// reuse: what it returns is valid until the next call.
	reuse bool
}

// oldest returns where the records begin, of whichever kind the log is.
func (s *scanner) oldest() (mark, error) {
	first := mark{position: int64(len(magic))}
	head := make([]byte, len(magic))
	if s.limit < int64(len(magic)) {
		s.limit = 0 // torn before the first record
		return first, nil
	}
	if _, err := s.file.ReadAt(head, 0); err != nil {
		return first, err
	}
	switch string(head) {
	case magic:
		return first, nil
	case ringMagic:
		slot, _, err := readSlot(s.file)
		return slot.first, err
	}
	return first, errs.E(errs.Internal, "the output log is damaged, or of another version")
}

// have returns the bytes at the position that are in the buffer.
func (s *scanner) have() []byte {
	if at := s.position - s.bufAt; at >= 0 && at < int64(len(s.buf)) {
		return s.buf[at:]
	}
	return nil
}

// fill returns n bytes or more at the position, errShort when the limit comes
// before, io.EOF when it is there. A new buffer has at least `chunk` bytes.
func (s *scanner) fill(n, chunk int64) ([]byte, error) {
	if b := s.have(); int64(len(b)) >= n {
		return b, nil
	}
	left := s.limit - s.position
	if left <= 0 {
		return nil, io.EOF
	}
	if left < n {
		return nil, errShort
	}
	size := min(left, max(n, chunk))
	buf := s.buf[:0]
	if !s.reuse || int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	s.buf = s.buf[:0] // it is overwritten, also when the read fails
	got, err := s.file.ReadAt(buf, s.position)
	if int64(got) < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = errShort // the file was cut since
		}
		return nil, err
	}
	s.buf, s.bufAt = buf[:got], s.position
	return s.buf, nil
}

// next returns the record at the position and goes behind it. At the limit it
// is io.EOF; errShort and errDamaged leave the position where it is.
func (s *scanner) next() (header, []byte, error) {
	b, err := s.fill(headerSize, readChunk)
	if err != nil {
		return header{}, nil, err
	}
	h, err := parseHeader(b)
	if err != nil {
		return header{}, nil, s.torn(err)
	}
	if b, err = s.fill(h.size(), readChunk); err != nil {
		return header{}, nil, err
	}
	h, payload, err := parseRecord(b)
	if err != nil {
		return header{}, nil, err
	}
	s.skip(h)
	return h, payload, nil
}

// torn tells a tail of zeros, which a crash of the host can leave, from
// damage.
func (s *scanner) torn(err error) error {
	if !errors.Is(err, errDamaged) {
		return err
	}
	b, readErr := s.fill(min(s.limit-s.position, readChunk), readChunk)
	if readErr != nil {
		return err
	}
	for _, c := range b {
		if c != 0 {
			return err
		}
	}
	return errShort
}

// peek returns the next record when it is whole in the buffer.
func (s *scanner) peek() (header, []byte, error) { return parseRecord(s.have()) }

func (s *scanner) skip(h header) { s.position += h.size() }

// header returns the header at the position and stays there.
func (s *scanner) header() (header, error) {
	// Small reads: between two headers lies what is not wanted.
	const chunk = 4096
	b, err := s.fill(headerSize, chunk)
	if err != nil {
		return header{}, err
	}
	h, err := parseHeader(b)
	if err != nil {
		return header{}, s.torn(err)
	}
	return h, nil
}

// seek goes to the record that has the output byte at offset, or to the first
// one that is not output, without reading what it passes.
func (s *scanner) seek(offset int64) error {
	for {
		h, err := s.header()
		if err != nil {
			return err
		}
		if !h.kind.output() || h.offset+int64(h.length) > offset {
			return nil
		}
		s.skip(h)
	}
}
