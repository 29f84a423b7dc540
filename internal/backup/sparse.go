package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// piece is a part of a file that is no hole.
type piece struct{ at, length int64 }

// dataOf are the pieces of a file up to a size. Where the file system does not tell,
// all of it is one.
func dataOf(f *os.File, size int64) (pieces []piece, err error) {
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole to the end
		}
		if errors.Is(err, unix.EINVAL) {
			return []piece{{0, size}}, rewind(f)
		}
		if err != nil {
			return nil, err
		}
		end, err := unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if end = min(end, size); begin < end {
			pieces = append(pieces, piece{begin, end - begin})
		}
		at = end
	}
	return pieces, rewind(f)
}

func rewind(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// mapOf is how the pieces of a file stand before them.
func mapOf(pieces []piece) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, len(pieces))
	for _, p := range pieces {
		fmt.Fprintf(&b, "%d\n%d\n", p.at, p.length)
	}
	b.Write(make([]byte, (block-b.Len()%block)%block))
	return b.Bytes()
}

// maxPieces is more than a disk of the largest size can have.
const maxPieces = 16 << 20

// unfold writes what the archive has of a file with holes into an empty one.
func unfold(to *os.File, from io.Reader, size int64) error {
	r := bufio.NewReaderSize(from, block)
	read := int64(0)
	number := func() (int64, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		read += int64(len(line))
		n, err := strconv.ParseInt(strings.TrimSuffix(line, "\n"), 10, 64)
		if err == nil && n < 0 {
			err = errors.New("a negative number")
		}
		return n, err
	}
	count, err := number()
	if err == nil && count > maxPieces {
		err = errors.New("too many pieces")
	}
	if err != nil {
		return fmt.Errorf("the map of its holes: %w", err)
	}
	var pieces []piece
	end := int64(0)
	for range count {
		var p piece
		if p.at, err = number(); err == nil {
			p.length, err = number()
		}
		if err == nil && (p.at < end || p.length > size-p.at) {
			err = errors.New("pieces that are out of order")
		}
		if err != nil {
			return fmt.Errorf("the map of its holes: %w", err)
		}
		end = p.at + p.length
		pieces = append(pieces, p)
	}
	if _, err := r.Discard(int((block - read%block) % block)); err != nil {
		return fmt.Errorf("the map of its holes: %w", err)
	}
	if err := to.Truncate(size); err != nil {
		return err
	}
	for _, p := range pieces {
		if _, err := io.CopyN(io.NewOffsetWriter(to, p.at), r, p.length); err != nil {
			return err
		}
	}
	return nil
}
