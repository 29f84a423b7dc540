package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// damage is what was read and is not what was written.
type damage struct{ error }

func found(format string, args ...any) error { return damage{fmt.Errorf(format, args...)} }

func (d damage) Unwrap() error { return d.error }

// classified tells damage, for which a memory is given up, from an error of reading,
// after which it may be whole. A sector that the disk cannot read counts among the
// latter: whether it stays so only the next try can tell.
func classified(err error) error {
	if err == nil {
		return nil
	}
	_, damaged := errors.AsType[damage](err)
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
	if damaged || missing {
		return errs.E(errs.NotFound, "the memory that was kept is gone or damaged").Because(err)
	}
	return errs.E(errs.Unavailable, "the memory that was kept cannot be read").
		Hint("try again; a sandbox that sleeps can also be stopped and started, with its files alone").RetryAfter(retryAfter).Because(err)
}

const retryAfter = 5 * time.Second
