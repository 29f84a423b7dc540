// Package hostfiles reads and keeps files of the host that sandboxes may be
// given: those below directories that the operator allows ([Allowed]), and what
// clients uploaded to threads ([Uploads]). Names that come from outside are
// resolved through os.Root, so that no symbolic link leads out of a directory,
// and nothing but regular files and directories is opened. It knows nothing of
// sandboxes and of HTTP.
package hostfiles

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Allowed are the directories of the host that files may be taken from. Nil
// allows none.
type Allowed struct{ dirs []string }

// Allow takes absolute directories, which need not exist yet. The root of the
// host is refused.
func Allow(dirs []string) (*Allowed, error) {
	a := &Allowed{}
	for _, dir := range dirs {
		clean := filepath.Clean(dir)
		if !filepath.IsAbs(dir) || clean == "/" {
			return nil, errs.E(errs.Invalid, "import-allowed-dirs: %q is not an absolute path of a directory below /", dir)
		}
		a.dirs = append(a.dirs, clean)
	}
	return a, nil
}

// Open opens a file or directory by its absolute name. Symbolic links are
// followed while they are relative and stay inside the allowed directory. It is
// Forbidden for everything outside, whether it exists or not, NotFound for what
// is missing inside, and Invalid for what is neither a regular file nor a
// directory. The caller closes the source.
func (a *Allowed) Open(name string) (*Source, error) {
	if a != nil && utf8.ValidString(name) && !strings.ContainsRune(name, 0) && filepath.IsAbs(name) {
		for _, dir := range a.dirs {
			if rel, ok := below(dir, filepath.Clean(name)); ok {
				return open(dir, rel, name)
			}
			// The directory's real name is as good as the one that was given.
			if real, err := filepath.EvalSymlinks(dir); err == nil && real != "/" {
				if rel, ok := below(real, filepath.Clean(name)); ok {
					return open(real, rel, name)
				}
			}
		}
	}
	return nil, denied(name)
}

func denied(name string) error {
	return errs.E(errs.Forbidden, "Import from '%s' denied — path is outside allowed directories. Configure CUBBY_IMPORT_ALLOWED_DIRS to allow it.", shown(name))
}

func missing(name string) error {
	return errs.E(errs.NotFound, "File or directory not found: '%s'", shown(name))
}

// shown makes a name of the caller's fit for a message.
func shown(name string) string {
	name = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return utf8.RuneError
		}
		return c
	}, strings.ToValidUTF8(name, string(utf8.RuneError)))
	if len(name) > 200 {
		name = strings.ToValidUTF8(name[:200], "") + "…"
	}
	return name
}

// below gives the rest of a clean name below a directory, "." for itself.
func below(dir, name string) (rel string, ok bool) {
	rest, ok := strings.CutPrefix(name, dir)
	switch {
	case !ok || rest != "" && rest[0] != '/':
		return "", false
	case rest == "":
		return ".", true
	}
	return rest[1:], true
}

// Source is an open file or directory.
type Source struct {
	Name string // the last part of its name
	Dir  bool
	Size int64       // bytes, of a directory those of all files below it
	Mode fs.FileMode // permission bits

	file *os.File // not a directory
	root *os.Root // a directory
}

// Bounds of a directory that is read as a whole.
const (
	maxEntries = 200_000
	maxDepth   = 400
)

// open opens what is at rel in a directory; name is how the caller calls it.
func open(dir, rel, name string) (*Source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, classify(name, err)
	}
	defer root.Close()
	// Looked at before it is opened: devices do things when they are opened.
	info, err := root.Stat(rel)
	if err != nil {
		return nil, classify(name, err)
	}
	src := &Source{Name: filepath.Base(name), Mode: info.Mode().Perm()}
	switch {
	case info.Mode().IsRegular():
		src.file, src.Size, err = openRegular(root, rel)
	case info.IsDir():
		src.Dir = true
		if src.root, err = root.OpenRoot(rel); err == nil {
			if src.Size, err = measure(src.root, name); err != nil {
				_ = src.root.Close()
			}
		}
	default:
		err = errNotRegular
	}
	if err != nil {
		return nil, classify(name, err)
	}
	return src, nil
}

var errNotRegular = errors.New("neither a regular file nor a directory")

func openRegular(root *os.Root, rel string) (*os.File, int64, error) {
	f, err := root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func classify(name string, err error) error {
	var known *errs.Error
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return missing(name)
	case errors.Is(err, errNotRegular), errors.Is(err, unix.ENXIO):
		return errs.E(errs.Invalid, "'%s' is neither a regular file nor a directory", shown(name))
	case errors.Is(err, fs.ErrPermission):
		return errs.E(errs.Forbidden, "'%s' cannot be read: permission denied", shown(name)).Because(err)
	}
	var pe *fs.PathError // os.Root has no exported error for a name that escapes
	if errors.As(err, &pe) && strings.Contains(pe.Err.Error(), "escapes") {
		return denied(name)
	}
	return errs.E(errs.Unavailable, "'%s' cannot be read", shown(name)).Because(err)
}

// measure adds up a tree and refuses what cannot be given to a sandbox.
func measure(root *os.Root, name string) (size int64, err error) {
	entries := 0
	err = walk(root, func(rel string, kind fs.FileMode) error {
		entries++
		switch {
		case entries > maxEntries:
			return errs.E(errs.TooLarge, "'%s' has more than %d entries", shown(name), maxEntries)
		case strings.Count(rel, "/") >= maxDepth:
			return errs.E(errs.TooLarge, "'%s' is nested more than %d deep", shown(name), maxDepth)
		case kind.IsRegular():
			info, err := root.Lstat(rel)
			if err == nil {
				size += info.Size()
			}
			return err
		case kind.IsDir(), kind&fs.ModeSymlink != 0:
			return nil
		}
		return classify(filepath.Join(name, rel), errNotRegular)
	})
	return size, err
}

// walk calls fn for everything below a root, directories before their content.
func walk(root *os.Root, fn func(rel string, kind fs.FileMode) error) error {
	return fs.WalkDir(root.FS(), ".", func(rel string, d fs.DirEntry, err error) error {
		if err != nil || rel == "." {
			return err
		}
		return fn(rel, d.Type())
	})
}

// Read gives the bytes of a file. It ends with the source.
func (s *Source) Read(p []byte) (int, error) {
	if s.file == nil {
		return 0, errs.E(errs.Invalid, "'%s' is a directory", shown(s.Name))
	}
	return s.file.Read(p)
}

// Close ends the use of the source.
func (s *Source) Close() error {
	if s.file != nil {
		return s.file.Close()
	}
	return s.root.Close()
}

// Tar streams the content of a directory, with names relative to it. Symbolic
// links are stored as they are. The caller closes the stream before the source.
func (s *Source) Tar(ctx context.Context) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tw := tar.NewWriter(w)
		err := walk(s.root, func(rel string, kind fs.FileMode) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return s.entry(tw, rel, kind)
		})
		if err == nil {
			err = tw.Close()
		}
		if err != nil {
			err = classify(s.Name, err)
		}
		w.CloseWithError(err)
	}()
	return &tarStream{r, cancel, done}
}

type tarStream struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

func (t *tarStream) Close() error {
	t.cancel()
	err := t.PipeReader.Close()
	<-t.done
	return err
}

// entry writes one entry. The size of a file is promised in its header: what is
// cut off meanwhile is filled with zeros.
func (s *Source) entry(tw *tar.Writer, rel string, kind fs.FileMode) error {
	switch {
	case kind.IsDir():
		info, err := s.root.Lstat(rel)
		if err != nil {
			return err
		}
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: rel + "/", Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()})
	case kind&fs.ModeSymlink != 0:
		target, err := s.root.Readlink(rel)
		if err != nil {
			return err
		}
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: rel, Linkname: target, Mode: 0o777})
	case !kind.IsRegular():
		return errNotRegular
	}
	f, size, err := openRegular(s.root, rel)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: rel, Mode: int64(info.Mode().Perm()), Size: size, ModTime: info.ModTime(),
	}); err != nil {
		return err
	}
	_, err = io.Copy(tw, io.LimitReader(io.MultiReader(f, zeros{}), size))
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
