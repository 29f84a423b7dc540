package filetree

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Archive streams a directory's content as tar, with names relative to the
// directory, or a regular file under its own name. Symbolic links are stored
// as they are, hard links as files of their own; devices, FIFOs and sockets
// are left out, as is what vanishes meanwhile. Holes of sparse files are written
// as zeros and not read. An archive whose files are much larger than what is on
// the disk is TooLarge, see [maxHoles]. An error after the start of the stream
// comes out of the reader, and the archive then has no end.
func (t *Tree) Archive(ctx context.Context, name string) (io.ReadCloser, error) {
	name, err := Clean(name)
	if err != nil {
		return nil, err
	}
	p, err := t.existing(name, true)
	if err != nil {
		return nil, classify(name, err)
	}
	defer p.close()
	var from *os.File
	if p.kind() == unix.S_IFDIR {
		from, err = openDirAt(p.dir, p.base)
	} else {
		from, _, err = p.openRegular(name, unix.O_RDONLY)
		if err == nil {
			if err = new(sizes).add(from, name, &p.st); err != nil {
				from.Close()
			}
		}
	}
	if err != nil {
		return nil, classify(name, err)
	}
	return stream(ctx, from, name, func(ctx context.Context, tw *tar.Writer) error {
		a := &archiver{ctx: ctx, tw: tw}
		if p.kind() == unix.S_IFDIR {
			return a.dir(from, name)
		}
		return a.file(from, path.Base(name))
	}), nil
}

// stream gives what write writes, and closes from after it.
func stream(ctx context.Context, from io.Closer, name string, write func(context.Context, *tar.Writer) error) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer from.Close()
		tw := tar.NewWriter(pw)
		err := write(ctx, tw)
		if err == nil {
			err = tw.Close()
		}
		pw.CloseWithError(classify(name, err))
	}()
	return &archiveReader{PipeReader: pr, cancel: cancel, done: done}
}

type archiveReader struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

// Close ends the archiver and waits for it: nothing is open on the tree after.
func (r *archiveReader) Close() error {
	r.cancel()
	err := r.PipeReader.Close()
	<-r.done
	return err
}

type archiver struct {
	ctx   context.Context
	tw    *tar.Writer
	sizes sizes // of the files so far
}

func (a *archiver) dir(dir *os.File, name string) error {
	_, err := eachBelow(a.ctx, dir, name, maxDepth, func(d *os.File, f sandbox.File) (bool, error) {
		h := header(f)
		h.Name = strings.TrimPrefix(strings.TrimPrefix(f.Path, name), "/")
		switch f.Type {
		case sandbox.RegularFile:
			p := &place{dir: d, base: path.Base(f.Path)}
			p.st.Mode = unix.S_IFREG
			file, _, err := p.openRegular(f.Path, unix.O_RDONLY)
			if err != nil {
				if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
					return true, nil // replaced meanwhile
				}
				return false, classify(f.Path, err)
			}
			defer file.Close()
			return true, a.file(file, h.Name)
		case sandbox.Directory:
			h.Name += "/"
			h.Typeflag = tar.TypeDir
		case sandbox.Symlink:
			h.Typeflag = tar.TypeSymlink
			h.Linkname = f.Target
		default:
			return true, nil
		}
		return true, a.tw.WriteHeader(h)
	})
	return err
}

// file writes an open file. Its size was promised in the header: what is
// missing because somebody cut it meanwhile is filled with zeros, as tar does.
func (a *archiver) file(f *os.File, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if err := a.sizes.add(f, name, &st); err != nil {
		return err
	}
	h := header(describe(name, &st))
	h.Name, h.Typeflag, h.Size = name, tar.TypeReg, st.Size
	if err := a.tw.WriteHeader(h); err != nil {
		return err
	}
	return copyTo(a.ctx, a.tw, &solidReader{f: f, size: st.Size}, func() error { return nil })
}

func header(f sandbox.File) *tar.Header {
	return &tar.Header{
		Mode:    int64(f.Mode),
		Uid:     int(f.UID),
		Gid:     int(f.GID),
		ModTime: f.ModTime.Truncate(time.Second),
	}
}
