package filetree

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// classify gives an error its kind; name is the sandbox's name of what was
// acted on. Classified errors and those of a context pass.
func classify(name string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	say := func(kind errs.Kind, fact string) *errs.Error {
		return errs.E(kind, "%s: %s", strings.ToValidUTF8(name, "\uFFFD"), fact).Because(err)
	}
	var no unix.Errno
	if !errors.As(err, &no) {
		// os.Root has no exported error for a name that escapes.
		var pe *fs.PathError
		if errors.As(err, &pe) && strings.Contains(pe.Err.Error(), "escapes") {
			return errOutside.Because(err)
		}
		return err
	}
	switch no {
	case unix.ENOENT:
		return say(errs.NotFound, "no such file or directory")
	case unix.EEXIST:
		return say(errs.Conflict, "exists already")
	case unix.ENOTEMPTY:
		return say(errs.Conflict, "the directory is not empty").Hint("remove it with recursive")
	case unix.EBUSY, unix.ETXTBSY:
		return say(errs.Conflict, "in use")
	case unix.ENOTDIR:
		return say(errs.Invalid, "not a directory")
	case unix.EISDIR:
		return say(errs.Invalid, "is a directory")
	case unix.ELOOP:
		return say(errs.Invalid, "too many symbolic links")
	case unix.ENAMETOOLONG:
		return say(errs.Invalid, "the name is too long")
	case unix.EINVAL:
		return say(errs.Invalid, "not possible with this file")
	case unix.ENXIO:
		return notRegular(name).Because(err)
	case unix.EACCES, unix.EPERM:
		return say(errs.Forbidden, "permission denied")
	case unix.EROFS:
		return say(errs.Forbidden, "the file system is read-only")
	case unix.ENOSPC, unix.EDQUOT:
		return diskFull.Because(err)
	case unix.EFBIG:
		return say(errs.TooLarge, "the file is too large for the file system")
	case unix.EUCLEAN, unix.EBADMSG: // ext4's "corrupted" and "wrong checksum"
		return say(errs.Unavailable, "the disk is damaged here").
			Hint("other files may be whole; stop and start the sandbox: its disk is repaired where that is possible")
	case unix.EIO, unix.ESHUTDOWN:
		return say(errs.Unavailable, "it cannot be read or written (input/output error)").
			Hint("on a sandbox's disk: the disk is damaged, or is being removed")
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN:
		return say(errs.Exhausted, "out of files or memory")
	}
	return err
}

// missingParent says how to write into a directory that does not exist.
func missingParent(name string, err error) error {
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	return errs.E(errs.NotFound, "%s: no such file or directory", strings.ToValidUTF8(name, "\uFFFD")).
		Hint("parents=true makes the directories that are missing").Because(err)
}

var diskFull = errs.E(errs.Exhausted, "disk full").
	Hint("remove files, or use a sandbox with a larger disk")

func notRegular(name string) *errs.Error {
	return errs.E(errs.Invalid, "%s: not a regular file", strings.ToValidUTF8(name, "\uFFFD")).
		Hint("devices, FIFOs and sockets cannot be read or written through the file API")
}
