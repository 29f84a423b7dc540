package local

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// repairTime bounds a repair: the disk can neither be used nor removed
// meanwhile.
const repairTime = 2 * time.Minute

// repair runs the checker over a device whose file system is not mounted. It
// corrects only what needs nobody to decide.
func repair(ctx context.Context, dev string) error {
	e2fsck := program("e2fsck")
	if e2fsck == "" {
		return errs.E(errs.Unsupported, "the sandbox's disk is damaged, and this host has no e2fsck to repair it").
			Hint("install it: apt-get install e2fsprogs")
	}
	ctx, cancel := context.WithTimeout(ctx, repairTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, e2fsck, "-p", dev)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	var out beginning
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil // errors corrected
	}
	if err != nil {
		return fmt.Errorf("repair the disk: %w: %s", err, out)
	}
	return nil
}

// beginning keeps the first bytes of what is written to it: a checker says
// something about each fault, and a disk can have millions.
type beginning []byte

const beginningBytes = 500

func (b *beginning) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), beginningBytes-len(*b))]...)
	return len(p), nil
}
