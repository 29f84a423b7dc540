package proc

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Classify gives errors of the operating system their kind. subject names
// what was acted on ("/workspace/x"); classified errors pass unchanged.
func Classify(err error, subject string) error {
	var classified *errs.Error
	if err == nil || errors.As(err, &classified) {
		return err
	}
	e := func(k errs.Kind, fact string) error { return errs.E(k, "%s: %s", subject, fact).Because(err) }
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e(errs.NotFound, "no such file or directory")
	case errors.Is(err, syscall.ENOTEMPTY):
		return e(errs.Conflict, "directory not empty")
	case errors.Is(err, fs.ErrExist):
		return e(errs.Conflict, "exists already")
	case errors.Is(err, fs.ErrPermission):
		return e(errs.Forbidden, "permission denied")
	case errors.Is(err, syscall.ENOTDIR):
		return e(errs.Invalid, "not a directory")
	case errors.Is(err, syscall.EISDIR):
		return e(errs.Invalid, "is a directory")
	case errors.Is(err, syscall.ENAMETOOLONG):
		return e(errs.Invalid, "name too long")
	case errors.Is(err, syscall.ELOOP):
		return e(errs.Invalid, "too many symbolic links")
	case errors.Is(err, syscall.EINVAL):
		return e(errs.Invalid, "invalid argument")
	case errors.Is(err, syscall.EROFS):
		return e(errs.Forbidden, "read-only file system")
	case errors.Is(err, syscall.EBUSY):
		return e(errs.Conflict, "busy")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return e(errs.Exhausted, "no space left on the sandbox's disk")
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return e(errs.Exhausted, "the sandbox is out of resources")
	}
	return err
}

// errnoText is the kernel's word for err, without Go's operation and path.
func errnoText(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
