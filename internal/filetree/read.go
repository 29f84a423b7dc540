package filetree

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// maxUnsized bounds what is read of files that do not know their size, as
// those of /proc: some never end.
const maxUnsized = 64 << 20

// Read opens a regular file at an offset. A length < 0 reads to its end; an
// offset behind the end reads nothing. The reader ends early when the file is
// cut meanwhile, and fails when ctx ends. The description is that of the open
// file.
func (t *Tree) Read(ctx context.Context, name string, offset, length int64) (io.ReadCloser, sandbox.File, error) {
	var none sandbox.File
	name, err := Clean(name)
	if err != nil {
		return nil, none, err
	}
	if offset < 0 {
		return nil, none, errs.E(errs.Invalid, "the offset is negative")
	}
	p, err := t.existing(name, true)
	if err != nil {
		return nil, none, classify(name, err)
	}
	defer p.close()
	f, st, err := p.openRegular(name, unix.O_RDONLY)
	if err != nil {
		return nil, none, classify(name, err)
	}
	if offset > 0 {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			f.Close()
			return nil, none, classify(name, err)
		}
	}
	most := max(st.Size-offset, 0)
	if st.Size == 0 {
		most = maxUnsized
	}
	if length >= 0 {
		most = min(most, length)
	}
	r := &fileReader{ctx: ctx, f: f, left: most}
	// Some files of /proc have nothing to say for a long time.
	r.stop = context.AfterFunc(ctx, func() { _ = f.Close() })
	return r, describe(name, &st), nil
}

// openRegular opens what the place names when it is a regular file, and
// nothing else: not even for a moment, where the kernel can help it.
func (p *place) openRegular(name string, flags int) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	if err := regular(name, p.kind()); err != nil {
		return nil, st, err
	}
	// A FIFO or device that took the file's place meanwhile: O_NONBLOCK does
	// not wait for it, and it is not used.
	f, err := openAt(p.dir, p.base, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, st, err
	}
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, st, err
	}
	if err := regular(name, st.Mode&unix.S_IFMT); err != nil {
		f.Close()
		return nil, st, err
	}
	return f, st, nil
}

func regular(name string, kind uint32) error {
	switch kind {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return unix.EISDIR
	}
	return notRegular(name)
}

// fileReader reads a bounded part of a file. It is an io.WriterTo so that
// whole chunks go to the destination at once.
type fileReader struct {
	ctx  context.Context
	f    *os.File
	left int64
	stop func() bool
}

func (r *fileReader) Read(b []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	n, err := r.f.Read(b[:min(int64(len(b)), r.left)])
	r.left -= int64(n)
	if err != nil && r.ctx.Err() != nil {
		err = r.ctx.Err()
	}
	return n, err
}

func (r *fileReader) WriteTo(w io.Writer) (int64, error) {
	buf := getBuffer()
	defer putBuffer(buf)
	return io.CopyBuffer(onlyWriter{w}, onlyReader{r}, *buf)
}

func (r *fileReader) Close() error {
	if !r.stop() {
		return nil // closed with ctx
	}
	return r.f.Close()
}

type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }
