package filetree

import (
	"context"
	"errors"
	"io"
	"math"
	"math/bits"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// maxHoles bounds what the files of an archive may have beyond what is on the
// disk: a sparse file of a few blocks can have a size of terabytes, and a tar
// writes all of it.
const maxHoles = 16 << 30

// sizes adds up the files of an archive. The zero value has none.
type sizes struct {
	holes   int64
	devices map[uint64]*deviceSizes // by number
}

type deviceSizes struct {
	files int64 // their sizes together
	most  int64
}

// add counts an open file. It is TooLarge when there are more than [maxHoles] of
// holes, or when the sizes of all files exceed what their file system can hold
// by more than that: gVisor reports no holes, and hard links count each time.
func (s *sizes) add(f *os.File, name string, st *unix.Stat_t) error {
	if s.holes += max(0, st.Size-st.Blocks*512); s.holes > maxHoles {
		return errs.E(errs.TooLarge, "%s: the archive would have more than %d GiB of holes of sparse files", strings.ToValidUTF8(name, "\uFFFD"), maxHoles>>30).
			Hint("leave sparse files out, or compress them in the sandbox first")
	}
	d := s.devices[st.Dev]
	if d == nil {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
			return err
		}
		d = &deviceSizes{most: math.MaxInt64}
		if hi, capacity := bits.Mul64(fs.Blocks, uint64(max(0, fs.Bsize))); hi == 0 && capacity < math.MaxInt64-maxHoles {
			d.most = int64(capacity) + maxHoles
		}
		if s.devices == nil {
			s.devices = make(map[uint64]*deviceSizes)
		}
		s.devices[st.Dev] = d
	}
	if st.Size > d.most-d.files {
		return errs.E(errs.TooLarge, "%s: the files of the archive are sparse or linked, and by their sizes more than %d GiB larger than their disk", strings.ToValidUTF8(name, "\uFFFD"), maxHoles>>30).
			Hint("leave sparse files and hard links out, or compress them in the sandbox first")
	}
	d.files += st.Size
	return nil
}

// nextData returns where the next data of an open file begins and ends, at or
// after an offset: at the size when only a hole follows. Where the file system
// does not tell, all of the file is data.
func nextData(f *os.File, at, size int64) (from, to int64) {
	fd := int(f.Fd())
	from, err := unix.Seek(fd, at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size
	}
	if err != nil || from < at {
		return at, size
	}
	to, err = unix.Seek(fd, from, unix.SEEK_HOLE)
	if err != nil || to <= from {
		to = size
	}
	return min(from, size), min(to, size)
}

// solidReader reads so many bytes of a file, and of its holes nothing. What is
// missing because somebody cut the file meanwhile is zeros too.
type solidReader struct {
	f        *os.File
	at, size int64
	from, to int64 // the data at or after at; both 0: not known yet
}

func (r *solidReader) Read(b []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	if r.at >= r.to {
		r.from, r.to = nextData(r.f, r.at, r.size)
	}
	if r.at < r.from {
		n := min(int64(len(b)), r.from-r.at)
		clear(b[:n])
		r.at += n
		return int(n), nil
	}
	b = b[:min(int64(len(b)), r.to-r.at)]
	n, err := r.f.ReadAt(b, r.at)
	if errors.Is(err, io.EOF) {
		clear(b[n:])
		n, err = len(b), nil
	}
	r.at += int64(n)
	return n, err
}

// copySolid copies a file into an empty one, and of its holes nothing.
func (t *Tree) copySolid(ctx context.Context, to, from *os.File, size int64) error {
	for at := int64(0); at < size; {
		begin, end := nextData(from, at, size)
		if begin >= size {
			break
		}
		if _, err := to.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		sparse := &sparseWriter{f: to, size: begin}
		if err := t.copyTo(ctx, sparse, io.NewSectionReader(from, begin, end-begin)); err != nil {
			return err
		}
		at = end
	}
	return to.Truncate(size)
}
