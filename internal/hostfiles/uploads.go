package hostfiles

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Uploads are files of threads, below one directory of the host. Names of
// tenants and threads are never part of a path: their sums are.
type Uploads struct {
	dir    string
	limits UploadLimits
	most   int // files and directories of one thread
	admit  func() error
	ledger uploadLedger
}

// UploadLimits bound what uploads take in bytes.
type UploadLimits struct {
	Thread int64
	Tenant int64 // of all its threads together; 0: no bound
}

// Bounds of one thread's uploads.
const (
	maxUploads    = 10_000 // directories count
	maxUploadName = 255    // bytes, of one part
	maxUploadPath = 1024
	// maxUploadDepth keeps the files of a thread quick to count.
	maxUploadDepth = 32
)

// OpenUploads makes the directory. Admit is asked before and while files are
// written, and its error ends that.
func OpenUploads(dir string, limits UploadLimits, admit func() error) (*Uploads, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errs.E(errs.Unavailable, "cannot make the directory of uploads").Because(err)
	}
	return &Uploads{dir: dir, limits: limits, most: maxUploads, admit: admit}, nil
}

// Upload is a file that a thread has.
type Upload struct {
	Name string // relative, with "/"
	Path string // absolute, on the host
	Size int64
}

func key(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

const uploadsDir = "uploads"

func threadDir(tenant, thread string) string { return filepath.Join(key(tenant), key(thread)) }

// UploadName makes a caller's file name safe: a relative one without "." and
// "..", in which backslashes separate too. It is Invalid when nothing is left.
func UploadName(name string) (string, error) {
	var parts []string
	for part := range strings.SplitSeq(strings.ReplaceAll(name, `\`, "/"), "/") {
		switch {
		case part == "" || part == "." || part == "..":
			continue
		case len(part) > maxUploadName || !utf8.ValidString(part) || strings.ContainsFunc(part, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return "", errs.E(errs.Invalid, "the file name is too long or has control characters")
		}
		parts = append(parts, part)
	}
	clean := strings.Join(parts, "/")
	if clean == "" || len(clean) > maxUploadPath {
		return "", errs.E(errs.Invalid, "the file name is empty or too long")
	}
	if len(parts) > maxUploadDepth {
		return "", errs.E(errs.Invalid, "the file name has more than %d directories", maxUploadDepth-1)
	}
	return clean, nil
}

// Put stores a file of a thread; one of the same name is replaced when it is
// complete. TooLarge beyond the thread's bound, OverQuota beyond the tenant's,
// Conflict when a directory has
// the name or a file is where a directory has to be.
func (u *Uploads) Put(ctx context.Context, tenant, thread, name string, r io.Reader) (Upload, error) {
	name, err := UploadName(name)
	if err != nil {
		return Upload{}, err
	}
	if err := u.admit(); err != nil {
		return Upload{}, err
	}
	root, err := u.thread(tenant, thread)
	if err != nil {
		return Upload{}, unwritten(err)
	}
	defer root.Close()
	use, err := u.ledger.open(u, key(tenant), key(thread))
	if err != nil {
		return Upload{}, unwritten(err)
	}
	defer use.close()
	temp := ".upload-" + rand.Text()
	size, err := u.receive(ctx, root, temp, r, use)
	if err == nil {
		err = u.publish(root, temp, name, size, use)
	}
	if err != nil {
		_ = root.Remove(temp)
		return Upload{}, unwritten(err)
	}
	return Upload{Name: name, Path: filepath.Join(u.dir, threadDir(tenant, thread), uploadsDir, filepath.FromSlash(name)), Size: size}, nil
}

// thread opens the directory of a thread, which is made when missing.
func (u *Uploads) thread(tenant, thread string) (*os.Root, error) {
	root, err := os.OpenRoot(u.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir := threadDir(tenant, thread)
	if err := root.MkdirAll(filepath.Join(dir, uploadsDir), 0o700); err != nil {
		return nil, err
	}
	// When it was used last: see [Uploads.Sweep].
	now := time.Now()
	if err := root.Chtimes(dir, now, now); err != nil {
		return nil, err
	}
	return root.OpenRoot(dir)
}

func (u *Uploads) receive(ctx context.Context, root *os.Root, temp string, r io.Reader, use *uploadUse) (size int64, err error) {
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const piece = 8 << 20 // how much is written between two looks at the host's disk
	for {
		if err := errors.Join(ctx.Err(), u.admit()); err != nil {
			return size, err
		}
		n, err := io.Copy(f, io.LimitReader(r, min(piece, u.limits.Thread-size+1)))
		size += n
		switch {
		case err != nil:
			return size, err
		case size > u.limits.Thread:
			return size, u.full()
		case n == 0:
			return size, f.Sync()
		}
		if err := use.receive(n); err != nil {
			return size, err
		}
	}
}

func (u *Uploads) full() error {
	return errs.E(errs.TooLarge, "the files of a thread take at most %d bytes", u.limits.Thread).
		Hint("destroy the thread, or raise max-thread-uploads")
}

// publish counts a received file among those of its thread and gives it its
// name. Other threads do not wait for it.
func (u *Uploads) publish(root *os.Root, temp, name string, size int64, use *uploadUse) error {
	use.thread.Lock()
	defer use.thread.Unlock()
	kept, err := root.OpenRoot(uploadsDir)
	if err != nil {
		return err
	}
	defer kept.Close()
	total, entries := size, 1
	dirs := make(map[string]bool)
	if err := walk(kept, func(rel string, kind fs.FileMode) error {
		if kind.IsDir() {
			dirs[filepath.ToSlash(rel)] = true
			entries++
		}
		if !kind.IsRegular() || rel == filepath.FromSlash(name) {
			return nil
		}
		info, err := kept.Lstat(rel)
		if err == nil {
			total, entries = total+info.Size(), entries+1
		}
		return err
	}); err != nil {
		return err
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if !dirs[dir] {
			entries++
		}
	}
	if total > u.limits.Thread {
		return u.full()
	}
	if entries > u.most {
		return errs.E(errs.TooLarge, "a thread has at most %d files and directories", u.most).Hint("destroy the thread, or use fewer directories")
	}
	if err := use.keep(total, size); err != nil {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := kept.MkdirAll(filepath.FromSlash(dir), 0o700); err != nil {
			return err
		}
	}
	return root.Rename(temp, filepath.Join(uploadsDir, filepath.FromSlash(name)))
}

func unwritten(err error) error {
	var known *errs.Error
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTEMPTY):
		return errs.E(errs.Conflict, "a file or directory of that name is in the way").Because(err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return errs.E(errs.Exhausted, "the host's disk is full").Because(err)
	}
	return errs.E(errs.Internal, "the upload cannot be stored").Because(err)
}

// Open opens a file or directory that was uploaded to a thread, by the absolute
// name that [Uploads.Put] returned; ok is false for a name that is not below
// the thread's.
func (u *Uploads) Open(tenant, thread, name string) (src *Source, ok bool, err error) {
	if u == nil || strings.ContainsRune(name, 0) || !filepath.IsAbs(name) {
		return nil, false, nil
	}
	dir := filepath.Join(u.dir, threadDir(tenant, thread), uploadsDir)
	rel, ok := below(dir, filepath.Clean(name))
	if !ok {
		return nil, false, nil
	}
	src, err = open(dir, rel, name)
	return src, true, err
}

// Remove removes all of a thread; there need not be anything.
func (u *Uploads) Remove(tenant, thread string) error {
	root, err := os.OpenRoot(u.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	defer u.ledger.forget(key(tenant))
	return root.RemoveAll(threadDir(tenant, thread))
}

// Sweep removes what was not used since a time, of threads that are not among
// those that live, by tenant and name.
func (u *Uploads) Sweep(live map[[2]string]bool, before time.Time) error {
	root, err := os.OpenRoot(u.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	keep := make(map[string]bool, len(live))
	for thread := range live {
		keep[threadDir(thread[0], thread[1])] = true
	}
	dirs, err := fs.Glob(root.FS(), "*/*")
	for _, dir := range dirs {
		info, e := root.Lstat(dir)
		if e == nil && !keep[dir] && info.ModTime().Before(before) {
			e = root.RemoveAll(dir)
			u.ledger.forget(filepath.Dir(dir))
		}
		if !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
