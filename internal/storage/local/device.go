package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// loopDevice is one that is in use.
type loopDevice struct {
	name    string // "loop3"
	backing string // path of its file
}

// loopsBelow lists the devices whose file lies below dir.
func loopsBelow(dir string) ([]loopDevice, error) {
	const blocks = "/sys/block"
	devices, err := os.Open(blocks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	defer devices.Close()
	names, err := devices.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	// A host that has had many keeps hundreds without a file, whose backing_file
	// is not there: no more is asked of one than that.
	var found []loopDevice
	for _, name := range names {
		if !strings.HasPrefix(name, "loop") {
			continue
		}
		backing, err := backingBelow(filepath.Join(blocks, name, "loop/backing_file"), dir)
		if err != nil {
			return nil, fmt.Errorf("list loop devices: %w", err)
		}
		if backing != "" {
			found = append(found, loopDevice{name: name, backing: backing})
		}
	}
	return found, nil
}

// loopsOf lists the devices that may have an image. A host can have hundreds of devices,
// which are not searched for an image that nobody has open.
func loopsOf(image string) ([]loopDevice, error) {
	f, err := os.Open(image)
	if err == nil {
		alone := onlyOpen(f)
		f.Close()
		if alone {
			return nil, nil
		}
	}
	return loopsBelow(image)
}

// onlyOpen reports whether a file is surely open nowhere else: the kernel grants a lease for
// writing then, and no other time. A loop device has its file open.
func onlyOpen(f *os.File) bool {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return false
	}
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}

// backingBelow reads a device's backing_file; "" when the device has no file
// that lies below dir.
func backingBelow(file, dir string) (string, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return "", nil // cleared meanwhile
	}
	if err != nil {
		return "", err
	}
	backing := strings.TrimSuffix(strings.TrimSpace(string(b)), " (deleted)")
	if strings.HasPrefix(backing, dir+"/") || backing == dir {
		return backing, nil
	}
	return "", nil
}

// loopOf is the backing_file of the device that is mounted at mnt. A host can
// have hundreds of devices: this one need not be searched for.
func loopOf(mnt string) (file string, ok bool) {
	const loopMajor = 7 // of all loop devices
	var st unix.Stat_t
	if unix.Stat(mnt, &st) != nil || unix.Major(st.Dev) != loopMajor {
		return "", false
	}
	return fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", loopMajor, unix.Minor(st.Dev)), true
}

// attach gives an image a loop device, or again the one that it has: two devices
// on one image would be two file systems on the same blocks. The caller closes
// it; a device that nobody opened or mounted then clears itself.
func attach(image string) (dev *os.File, again bool, err error) {
	f, err := openImage(image)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if onlyOpen(f) {
		dev, err = configure(f)
		return dev, false, err
	}
	loops, err := loopsBelow(image)
	if err != nil {
		return nil, false, err
	}
	for _, l := range loops {
		dev, err := os.OpenFile("/dev/"+l.name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if same, err := backs(dev, f); err == nil && same {
			return dev, true, nil
		}
		dev.Close()
	}
	dev, err = configure(f)
	return dev, false, err
}

func openImage(image string) (*os.File, error) {
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the disk image: %w", err)
	}
	return f, nil
}

// backs says whether the device's file is f.
func backs(dev, f *os.File) (bool, error) {
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, err
	}
	return info.Device == st.Dev && info.Inode == st.Ino, nil
}

// configure takes a free device. Others on the host take some too, so it
// tries again.
func configure(f *os.File) (*os.File, error) {
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the loop control device: %w", err)
	}
	defer ctl.Close()
	config := unix.LoopConfig{
		Fd:   uint32(f.Fd()),
		Size: 4096,
		Info: unix.LoopInfo64{
			// Direct: the sandbox's page cache is enough, and the host
			// answers "no space" to the writer instead of losing a page.
			Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO,
		},
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], f.Name())
	for try := 0; ; try++ {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		dev, err := openLoop(n)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) || try == 1000 {
			return nil, fmt.Errorf("configure a loop device: %w", err)
		}
	}
}

// detachUnused clears the devices with files below the directory that no file system
// and no program uses, also those whose file was removed.
func (d *Disks) detachUnused() error {
	if d.loopErr != nil {
		return nil
	}
	loops, err := loopsBelow(d.cfg.Dir)
	if err != nil {
		return err
	}
	for _, l := range loops {
		// The kernel refuses this to a device that is mounted anywhere.
		dev, err := os.OpenFile("/dev/"+l.name, os.O_RDWR|unix.O_EXCL, 0)
		if err != nil {
			continue
		}
		if backing, err := backingBelow("/sys/block/"+l.name+"/loop/backing_file", d.cfg.Dir); err == nil && backing != "" {
			err = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0)
			d.cfg.Log.Info("a loop device that nothing used is detached", "device", l.name, "file", backing, "err", err)
		}
		dev.Close()
	}
	return nil
}

// openLoop opens a device whose node may be late, or missing where /dev is not
// the kernel's own.
func openLoop(n int) (*os.File, error) {
	name := "/dev/loop" + strconv.Itoa(n)
	for try := 0; ; try++ {
		dev, err := os.OpenFile(name, os.O_RDWR, 0)
		if err == nil {
			return dev, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || try == 2 {
			return nil, fmt.Errorf("open a loop device: %w", err)
		}
		if err := unix.Mknod(name, unix.S_IFBLK|0o660, int(unix.Mkdev(7, uint32(n)))); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("make a loop device's node: %w", err)
		}
	}
}
