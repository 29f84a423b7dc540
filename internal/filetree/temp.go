package filetree

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// TempPrefix begins the names of what an act that was killed can leave behind.
const TempPrefix = ".cubby-"

// tempBytes are random, and in hexadecimal the rest of a name.
const tempBytes = 10

func tempName() string {
	var b [tempBytes]byte
	_, _ = rand.Read(b[:])
	return TempPrefix + hex.EncodeToString(b[:])
}

const (
	// leftAfter is how old a file is that a write has left: one that is still being
	// written changes all the time.
	leftAfter = 24 * time.Hour
	// maxSwept bounds how many names of a directory are looked at.
	maxSwept = 4096
	// sweepAgain is how long a directory is not looked at again.
	sweepAgain    = time.Hour
	maxSweptNoted = 1024
)

// sweeps are the directories that were looked at for what writes have left. The zero
// value is ready to use.
type sweeps struct {
	mu sync.Mutex
	at map[[2]uint64]time.Time // by device and inode; guarded by mu
}

// sweep removes from a directory the files of writes that were cut off, unless that
// was done not long ago.
func (s *sweeps) sweep(dir *os.File, now time.Time) {
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) != nil {
		return
	}
	key := [2]uint64{st.Dev, st.Ino}
	s.mu.Lock()
	last, swept := s.at[key]
	due := !swept || now.Sub(last) >= sweepAgain
	if due {
		if s.at == nil || len(s.at) >= maxSweptNoted {
			s.at = make(map[[2]uint64]time.Time)
		}
		s.at[key] = now
	}
	s.mu.Unlock()
	if due {
		sweepTemps(dir, now)
	}
}

// sweepTemps removes from a directory the files of writes that were cut off. What it
// does not come to is there for the next write.
func sweepTemps(dir *os.File, now time.Time) {
	d, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxSwept)
	for _, name := range names {
		var st unix.Stat_t
		if !isTempName(name) || unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && now.Sub(time.Unix(st.Mtim.Unix())) > leftAfter {
			_ = unix.Unlinkat(int(dir.Fd()), name, 0)
		}
	}
}

func isTempName(name string) bool {
	digits, ok := strings.CutPrefix(name, TempPrefix)
	b, err := hex.DecodeString(digits)
	return ok && err == nil && len(b) == tempBytes
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
