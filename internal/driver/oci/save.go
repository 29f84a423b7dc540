package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostdisk"
)

// gVisor keeps the changes to a sandbox's root filesystem in its own form, in
// a file that means nothing to another run. A stop saves them as an image of
// that filesystem, from which the next start takes them. An image is complete
// when it has its name; until then the one before it stays.
//
// The image stands beside the notes on the host's disk and not on the
// sandbox's: there the same files would take their room twice as soon as the
// sandbox runs again, and a disk that is more than half full of system files
// could neither be saved nor started. So a stopped gVisor sandbox can hold up
// to the size of its disk once more.

func (b box) saved() string { return b.path("saved") }

// halfSaved is where the next one is written.
func (b box) halfSaved() string { return b.saved() + ".new" }

// tidy removes what a sleep, a stop or a restore began to write, and a memory that
// was used.
func (b box) tidy() error { return errors.Join(b.memory().Tidy(), os.RemoveAll(b.halfSaved())) }

// save writes the image of a sandbox in which nothing runs but the agent, by the
// program that runs it, in the place of one that is there.
func (d *Driver) save(ctx context.Context, n note, program, to string) error {
	ctx, cancel := context.WithTimeout(ctx, saveLimit)
	defer cancel()
	b := bundle{note: n, box: d.box(n.UID)}
	// What is not saved now is lost: that is worth some of the reserve, of which the
	// half stays in any case, below which all disks stand still.
	if err := d.fits(b.savedSize, 2); err != nil {
		return err
	}
	fresh := to + ".new"
	// The sandbox goes on: what fails shall not take anything away.
	cmd, lock, err := d.runsc(ctx, n, program, "fscheckpoint", "--leave-running", "--image-path="+fresh)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(fresh)
		return fmt.Errorf("fscheckpoint: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return memory.Publish(fresh, to)
}

// fits refuses to write what would leave less of the host's disk free than one part of
// so many of the reserve.
func (d *Driver) fits(size func() (int64, error), parts int64) error {
	need, err := size()
	if err != nil {
		return err
	}
	host, err := hostdisk.Measure(d.cfg.StateDir)
	if err == nil && host.Free-need < host.Reserve(d.cfg.DiskReserve)/parts {
		err = errs.E(errs.Exhausted, "the host has no room for what a sandbox keeps, up to %d bytes", need)
	}
	return err
}

// savedSize is what a save takes at most. gVisor's working file has no name that its
// size could be read from; the image is no larger than what is used on the disk, and
// that no larger than its limit: the disk may be unmounted when a stop is carried out
// that an earlier daemon began.
func (b bundle) savedSize() (int64, error) {
	disk, err := hostdisk.Measure(b.note.root())
	if errors.Is(err, fs.ErrNotExist) {
		return b.note.Limits.DiskBytes, nil
	}
	return min(disk.Total-disk.Free, b.note.Limits.DiskBytes), err
}
