package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cubbyhq/cubby/internal/errs"
)

// What is read of an ext4 superblock; offsets and bits are those of the
// kernel's Documentation/filesystems/ext4/super.rst.
const (
	superAt   = 1024
	superSize = 1024

	superBlocksLow    = 0x4
	superLogBlock     = 0x18
	superMagic        = 0x38
	superState        = 0x3a
	superIncompatible = 0x60
	superJournalDev   = 0xe4
	superBlocksHigh   = 0x150

	ext4Magic     = 0xef53
	stateErrors   = 0x2   // the kernel found a fault in it
	incJournalDev = 0x8   // not a file system, but the journal of one
	inc64Bit      = 0x80  // superBlocksHigh counts
	incMultiMount = 0x100 // mounting waits for other hosts
	maxLogBlock   = 6     // blocks of 64 KiB
)

// damaged is what a client sees of a disk whose file system cannot be used.
func damaged(cause error) error {
	return errs.E(errs.Unavailable, "the sandbox's disk is damaged and cannot be mounted").
		Hint("destroy the sandbox, or ask the operator to repair the disk's image with e2fsck; the log of the host's kernel says more").
		Because(cause)
}

// checkSuperblock refuses what the kernel would act on before it finds out
// that it is wrong: a protection against other hosts makes a mount wait for
// hours, and an external journal is any block device of the host. No disk is
// made with either. faulty says that the kernel noted a fault when the file
// system was in use.
func checkSuperblock(image *os.File) (faulty bool, err error) {
	b := make([]byte, superSize)
	if _, err := image.ReadAt(b, superAt); errors.Is(err, io.EOF) {
		return false, damaged(errors.New("the image ends before its superblock does"))
	} else if err != nil {
		return false, fmt.Errorf("read the superblock: %w", err)
	}
	st, err := image.Stat()
	if err != nil {
		return false, fmt.Errorf("read the superblock: %w", err)
	}
	le := binary.LittleEndian
	if magic := le.Uint16(b[superMagic:]); magic != ext4Magic {
		return false, damaged(fmt.Errorf("its magic number is %#x", magic))
	}
	features := le.Uint32(b[superIncompatible:])
	if features&(incJournalDev|incMultiMount) != 0 {
		return false, damaged(fmt.Errorf("it has the features %#x, which no disk is made with", features))
	}
	if dev := le.Uint32(b[superJournalDev:]); dev != 0 {
		return false, damaged(fmt.Errorf("its journal is on the device %#x", dev))
	}
	blocks := uint64(le.Uint32(b[superBlocksLow:]))
	if features&inc64Bit != 0 {
		blocks |= uint64(le.Uint32(b[superBlocksHigh:])) << 32
	}
	log := le.Uint32(b[superLogBlock:])
	if log > maxLogBlock || blocks > uint64(st.Size())>>(10+log) {
		return false, damaged(fmt.Errorf("%d blocks of 2^%d KiB are more than the image's %d bytes", blocks, log, st.Size()))
	}
	return le.Uint16(b[superState:])&stateErrors != 0, nil
}

// checkDirs refuses a disk whose own directories are something else: sandboxes
// get them as mounts, and a symbolic link in their place would be one of the
// host. What is missing is not looked for.
func checkDirs(mnt string) error {
	for _, name := range []string{
		"workspace", "home", "outputs", "uploads",
		"root", "root/etc", "root/upper", "root/work", "root/tmp", "root/overlay",
	} {
		st, err := os.Lstat(filepath.Join(mnt, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return damaged(err)
		case !st.IsDir():
			return damaged(fmt.Errorf("%s is no directory but %s", name, st.Mode()))
		}
	}
	return nil
}
