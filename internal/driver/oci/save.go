package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/errs"
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

// hostReserve is the part of the host's disk, at least minReserve, that a save
// leaves free.
const (
	hostReserve = 20 // one part of so many
	minReserve  = 1 << 30
)

// save writes the image of a sandbox in which nothing runs but the agent, by the
// program that runs it, in the place of one that is there.
func (d *Driver) save(ctx context.Context, n note, program, to string) error {
	ctx, cancel := context.WithTimeout(ctx, saveLimit)
	defer cancel()
	b := bundle{note: n, box: d.box(n.UID)}
	if err := b.roomToSave(); err != nil {
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

// roomToSave refuses a save that would take the host's last space. gVisor's
// working file has no name that its size could be read from; the image is no
// larger than what is used on the disk, and that no larger than its limit: the disk
// may be unmounted when a stop is carried out that an earlier daemon began.
func (b bundle) roomToSave() error {
	size := b.note.Limits.DiskBytes
	disk, err := space(b.note.root())
	switch {
	case err == nil:
		size = min(disk.size-disk.free, size)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	host, err := space(b.box.dir)
	if err != nil {
		return err
	}
	if host.free-size < max(host.size/hostReserve, minReserve) {
		return errs.E(errs.Exhausted, "the host has no room for a save of up to %d bytes", size)
	}
	return nil
}

type capacity struct{ size, free int64 }

func space(dir string) (capacity, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return capacity{}, err
	}
	return capacity{size: int64(st.Blocks) * st.Bsize, free: int64(st.Bavail) * st.Bsize}, nil
}
