package filetree

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// systemDirs are where root finds its programs, what they load, and their settings.
var systemDirs = []string{"/bin/", "/etc/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/root/", "/sbin/", "/usr/"}

// maker is to whom something belongs that is made for a user at a name, in an open
// directory. In the system's directories, where that user may not write, it is root: a
// program that a caller puts into /usr/local/bin is not for the user to change.
func (t *Tree) maker(name string, dir *os.File, uid, gid uint32) (uint32, uint32, error) {
	system := false
	for _, prefix := range systemDirs {
		system = system || strings.HasPrefix(name, prefix)
	}
	if !t.chown || !system {
		return uid, gid, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return uid, gid, err
	}
	if (linkOwner{uid: uid, gid: gid}).may(st) {
		return uid, gid, nil
	}
	return 0, 0, nil
}
