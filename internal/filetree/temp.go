package filetree

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// TempPrefix begins the names of what an act that was killed can leave behind.
const TempPrefix = ".cubby-"

func tempName() string {
	var b [10]byte
	_, _ = rand.Read(b[:])
	return TempPrefix + hex.EncodeToString(b[:])
}

// tempFile is a file on its way to a name. Until it is published it has none
// where the file system can do that, so that nothing is left when the process
// is killed; elsewhere (gVisor) it has a name of its own.
type tempFile struct {
	f    *os.File
	dir  *os.File
	name string // "": none
}

func newTemp(dir *os.File) (*tempFile, error) {
	t := &tempFile{dir: dir}
	var err error
	t.f, err = openAt(dir, ".", unix.O_TMPFILE|unix.O_RDWR, 0o600)
	if err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(int(t.f.Fd()), &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return t, nil
		}
		t.f.Close()
	}
	t.name = tempName()
	t.f, err = openAt(dir, t.name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// publish gives the file its name, in place of what has it.
func (t *tempFile) publish(name string) error {
	dir := int(t.dir.Fd())
	if t.name == "" {
		// A link cannot replace, a rename can; between the two the file has a
		// name that nobody asked for.
		tmp := tempName()
		self := "/proc/self/fd/" + strconv.Itoa(int(t.f.Fd()))
		if err := unix.Linkat(unix.AT_FDCWD, self, dir, tmp, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
		t.name = tmp
	}
	if err := unix.Renameat(dir, t.name, dir, name); err != nil {
		return err
	}
	t.name = ""
	return nil
}

// discard closes the file and, when it was not published, removes it.
func (t *tempFile) discard() {
	if t.name != "" {
		_ = unix.Unlinkat(int(t.dir.Fd()), t.name, 0)
	}
	t.f.Close()
}
