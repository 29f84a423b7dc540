package memory

import (
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// sums find damage in a file. They are no proof against somebody who may write
// here: that is root, who needs no memory to do harm.
type sums struct {
	Size   int64    `json:"size"`
	CRC32C []uint32 `json:"crc32c"` // of each piece
}

// pieceSize is what is summed by itself: large files keep several processors
// busy.
const pieceSize = 8 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s sums) equal(o sums) bool { return s.Size == o.Size && slices.Equal(s.CRC32C, o.CRC32C) }

// Programs remembers the sums of programs: they are large, and one file is linked
// into many memories. A file that changed is summed again. The zero value is
// ready; its methods are safe for concurrent use.
type Programs struct {
	mu   sync.Mutex
	sums map[version]sums // guarded by mu
}

// version is a file in a state that it does not have again. The time of the last
// change of its inode is left out: every further link changes it.
type version struct {
	dev, ino uint64
	size     int64
	mtime    syscall.Timespec
}

func versionOf(f *os.File) (version, error) {
	info, err := f.Stat()
	if err != nil {
		return version{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return version{}, errors.ErrUnsupported
	}
	return version{st.Dev, st.Ino, st.Size, st.Mtim}, nil
}

// sum sums files below a directory.
func (m Memory) sum(dir string, names []string) (map[string]sums, error) {
	all := make(map[string]sums, len(names))
	var pieces errgroup.Group
	pieces.SetLimit(runtime.GOMAXPROCS(0))
	var opened []*os.File
	defer func() {
		for _, f := range opened {
			_ = f.Close()
		}
	}()
	var program version
	for _, name := range names {
		f, err := m.open(filepath.Join(dir, name))
		if err != nil {
			return nil, errors.Join(err, pieces.Wait())
		}
		opened = append(opened, f)
		v, err := versionOf(f)
		if err != nil {
			return nil, errors.Join(err, pieces.Wait())
		}
		if name == programName {
			program = v
			if known, ok := m.programs.known(v); ok {
				all[name] = known
				continue
			}
		}
		s := sums{Size: v.size, CRC32C: make([]uint32, (v.size+pieceSize-1)/pieceSize)}
		all[name] = s
		for i := range s.CRC32C {
			pieces.Go(func() (err error) {
				s.CRC32C[i], err = sumPiece(f, i, v.size)
				return err
			})
		}
	}
	if err := pieces.Wait(); err != nil {
		return nil, err
	}
	if s, ok := all[programName]; ok {
		m.programs.remember(program, s)
	}
	return all, nil
}

// sumPiece sums a piece of a file of a size.
func sumPiece(f *os.File, i int, size int64) (uint32, error) {
	at := int64(i) * pieceSize
	r := io.NewSectionReader(f, at, min(pieceSize, size-at))
	var crc uint32
	buf := make([]byte, 256<<10)
	for left := r.Size(); left > 0; {
		n, err := r.Read(buf)
		crc = crc32.Update(crc, castagnoli, buf[:n])
		left -= int64(n)
		if errors.Is(err, io.EOF) && left > 0 {
			return 0, found("%s has become shorter", filepath.Base(f.Name()))
		}
		if err != nil && left > 0 {
			return 0, err
		}
	}
	return crc, nil
}

func (p *Programs) known(v version) (sums, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.sums[v]
	return s, ok
}

func (p *Programs) remember(v version, s sums) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sums == nil || len(p.sums) >= maxPrograms {
		p.sums = make(map[version]sums)
	}
	p.sums[v] = s
}

// maxPrograms is far more than a host has.
const maxPrograms = 64
