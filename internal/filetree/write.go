package filetree

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/forklock"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Write stores what r gives. Without Append a reader of the file sees the old
// content or all of the new one, and an error leaves the old one in place;
// what was appended before an error stays. When Write returns, the file and its
// name survive a crash of the host. Symbolic links at the end of the
// name are followed to the file to write. Only regular files are replaced.
//
// An existing file keeps its owner unless User is given.
func (t *Tree) Write(ctx context.Context, name string, r io.Reader, w sandbox.FileWrite) (sandbox.File, error) {
	f, err := t.write(ctx, name, r, w)
	return f, classify(name, err)
}

func (t *Tree) write(ctx context.Context, name string, r io.Reader, w sandbox.FileWrite) (none sandbox.File, err error) {
	if name, err = Clean(name); err != nil {
		return none, err
	}
	uid, gid, err := t.owner(cmp.Or(w.User, w.Maker))
	if err != nil {
		return none, err
	}
	if err := t.guard(); err != nil {
		return none, err
	}
	p, err := t.findToChange(name, true, uid)
	if errors.Is(err, unix.ENOENT) && w.Parents {
		if err := t.makeParents(path.Dir(name), uid, gid); err != nil {
			return none, err
		}
		p, err = t.findToChange(name, true, uid)
	}
	if err != nil {
		return none, missingParent(name, err)
	}
	defer p.close()
	mode := w.Mode & fs.ModePerm
	if p.found {
		if err := regular(name, p.kind()); err != nil {
			return none, err
		}
		if mode == 0 {
			mode = fs.FileMode(p.st.Mode) & fs.ModePerm
		}
		if w.User == "" {
			uid, gid = p.st.Uid, p.st.Gid
		}
	} else {
		if mode == 0 {
			mode = 0o644
		}
		if w.User == "" {
			if uid, gid, err = t.maker(name, p.dir, uid, gid); err != nil {
				return none, err
			}
		}
	}
	if w.Append && w.Replaces != nil {
		return none, errs.E(errs.Invalid, "%s: what is appended replaces nothing", name)
	}
	if mode&0o111 != 0 { // which whoever wrote it may execute next
		defer forklock.Wait()
	}
	if w.Append {
		return t.appendTo(ctx, name, p, r, w, mode, uid, gid)
	}
	if err := p.toChange(); err != nil {
		return none, err
	}
	t.sweeps.sweep(p.dir, time.Now())
	tmp, err := newTemp(p.dir)
	if err != nil {
		return none, err
	}
	defer tmp.discard()
	f := tmp.f
	if err := t.copyTo(ctx, &flusher{f: f}, r); err != nil {
		return none, err
	}
	if err := t.dress(f, mode, uid, gid); err != nil {
		return none, err
	}
	if err := f.Sync(); err != nil {
		return none, err
	}
	if w.Replaces != nil {
		// Of two that replace the same content, the second one finds the first one's.
		t.replacing.Lock()
		defer t.replacing.Unlock()
		if err := p.holds(ctx, name, w.Replaces); err != nil {
			return none, err
		}
	}
	err = tmp.publish(p.base)
	if errors.Is(err, unix.EBUSY) && p.found {
		// A mount point, as /etc/hosts: it can be written but not replaced,
		// and it keeps its owner and mode.
		return t.overwrite(ctx, p, name, f)
	}
	if err != nil {
		return none, err
	}
	if err := syncDir(p.dir); err != nil {
		return none, err
	}
	return statFile(name, f)
}

// holds is a Conflict unless the file that is there has the content with a digest.
func (p *place) holds(ctx context.Context, name string, digest []byte) error {
	changed := errs.E(errs.Conflict, "%s has changed meanwhile", name).Hint("read the file again")
	if !p.found {
		return changed
	}
	f, _, err := p.openRegular(name, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return changed
	}
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if err := copyTo(ctx, h, f, func() error { return nil }); err != nil {
		return err
	}
	if !bytes.Equal(h.Sum(nil), digest) {
		return changed
	}
	return nil
}

// syncDir makes the names in a directory survive a crash of the host. Some file
// systems in memory cannot, and need not.
func syncDir(dir *os.File) error {
	err := dir.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

func (t *Tree) appendTo(ctx context.Context, name string, p *place, r io.Reader, w sandbox.FileWrite, mode fs.FileMode, uid, gid uint32) (none sandbox.File, err error) {
	const flags = unix.O_WRONLY | unix.O_APPEND
	var f *os.File
	made := false
	if !p.found {
		if err := p.toChange(); err != nil {
			return none, err
		}
		f, err = openAt(p.dir, p.base, flags|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
		made = err == nil
		if errors.Is(err, unix.EEXIST) {
			if p.st, err = statAt(p.dir, p.base); err != nil {
				return none, err
			}
		}
		if err != nil {
			return none, err
		}
	}
	if f == nil {
		if f, _, err = p.openRegular(name, flags); err != nil {
			return none, err
		}
	}
	defer f.Close()
	if !made {
		if err := p.toWrite(f); err != nil {
			return none, err
		}
	}
	if made || w.User != "" || w.Mode != 0 {
		if err := t.dress(f, mode, uid, gid); err != nil {
			return none, err
		}
	}
	if err := t.copyTo(ctx, f, r); err != nil {
		return none, err
	}
	if err := f.Sync(); err != nil {
		return none, err
	}
	if made {
		if err := syncDir(p.dir); err != nil {
			return none, err
		}
	}
	return statFile(name, f)
}

// overwrite puts the content of from into the file itself.
func (t *Tree) overwrite(ctx context.Context, p *place, name string, from *os.File) (none sandbox.File, err error) {
	f, _, err := p.openRegular(name, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return none, err
	}
	defer f.Close()
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return none, err
	}
	if err := t.copyTo(ctx, f, from); err != nil {
		return none, err
	}
	if err := f.Sync(); err != nil {
		return none, err
	}
	return statFile(name, f)
}

func statFile(name string, f *os.File) (sandbox.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return sandbox.File{}, err
	}
	return describe(name, &st), nil
}

// dress gives an open file its mode and owner. The owner comes first: chown
// clears bits of the mode.
func (t *Tree) dress(f *os.File, mode fs.FileMode, uid, gid uint32) error {
	if t.chown {
		if err := unix.Fchown(int(f.Fd()), int(uid), int(gid)); err != nil {
			return err
		}
	}
	return unix.Fchmod(int(f.Fd()), uint32(mode&fs.ModePerm))
}

// copySize is large because each read and write inside gVisor has a price.
const copySize = 1 << 20

var buffers = sync.Pool{New: func() any { b := make([]byte, copySize); return &b }}

func getBuffer() *[]byte  { return buffers.Get().(*[]byte) }
func putBuffer(b *[]byte) { buffers.Put(b) }

// copyTo copies until r ends, an error, the end of ctx, or until the guard
// says no: a disk can fill up or be frozen in the middle of an upload.
func (t *Tree) copyTo(ctx context.Context, f io.Writer, r io.Reader) error {
	return copyTo(ctx, f, r, t.guard)
}

// copyTo gathers short reads so that the file sees few large writes.
func copyTo(ctx context.Context, f io.Writer, r io.Reader, guard func() error) error {
	buf := getBuffer()
	defer putBuffer(buf)
	for {
		n, rerr := fill(r, *buf)
		if n > 0 {
			if _, err := f.Write((*buf)[:n]); err != nil {
				return err
			}
		}
		if rerr == io.EOF { //nolint:errorlint // an error that wraps io.EOF is not the end
			return ctx.Err()
		}
		if rerr != nil {
			return rerr
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := guard(); err != nil {
			return err
		}
	}
}

// fill reads until b is full. Unlike io.ReadFull it returns r's own error, so
// that an upload that was cut is not taken for its end.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// flusher makes the kernel start to write a large file to the disk while the
// rest of it is still coming, so that the sync at the end is short.
type flusher struct {
	f              *os.File
	written, begun int64
}

const flushSize = 8 << 20

func (w *flusher) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	w.written += int64(n)
	if w.written-w.begun >= flushSize {
		// Only a hint: not every file system takes it.
		_ = unix.SyncFileRange(int(w.f.Fd()), w.begun, w.written-w.begun, unix.SYNC_FILE_RANGE_WRITE)
		w.begun = w.written
	}
	return n, err
}
