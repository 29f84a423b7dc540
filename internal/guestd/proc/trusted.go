package proc

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rootVariable is a variable as root gets it: of PATH only the directories in which
// nobody else can put a program. Where there is none, not even in the usual PATH,
// the files of the image are not root's, and nothing is safe.
func rootVariable(kv string) string {
	value, ok := strings.CutPrefix(kv, "PATH=")
	if !ok {
		return kv
	}
	return "PATH=" + cmp.Or(rootPath(value), rootPath(defaultPath), defaultPath)
}

func rootPath(path string) string {
	t := trust{checked: make(map[string]bool)}
	var kept []string
	for dir := range strings.SplitSeq(path, ":") {
		if t.holds(dir) {
			kept = append(kept, dir)
		}
	}
	return strings.Join(kept, ":")
}

// withoutPrefix leaves out a prefix of npm in which another user than root can
// write: npm reads settings there, and what it installs there is not on root's
// PATH.
func withoutPrefix(env []string) []string {
	t := trust{checked: make(map[string]bool)}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		return strings.EqualFold(name, "NPM_CONFIG_PREFIX") && !t.holds(value)
	})
}

// trust answers which paths only root can change. It remembers directories,
// because paths share them, and is for one moment only.
type trust struct{ checked map[string]bool }

// maxLinks is how many symbolic links one path may have.
const maxLinks = 40

// holds reports whether nobody but root decides what an absolute path leads to:
// every directory on the way, also behind symbolic links, belongs to root and can
// be written by nobody else. A path whose end does not exist is root's if nobody
// else can make it.
func (t *trust) holds(path string) bool {
	if !filepath.IsAbs(path) || !t.directory("/", false) {
		return false
	}
	at, rest, links := "/", split(path), 0
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		st, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return t.directory(at, false)
		case err != nil:
			return false
		case st.Mode().Type() != fs.ModeSymlink:
			if !t.directory(next, len(rest) > 0) {
				return false
			}
			at = next
			continue
		}
		to, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks || !ownedByRoot(st) {
			return false
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(split(to), rest...)
	}
	// Passed on the way, it may be one that is sticky.
	return t.directory(at, false)
}

func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "" || part == "." })
}

// directory reports whether a directory is root's alone. One that is only passed
// may be sticky: what root has in it nobody else can replace.
func (t *trust) directory(path string, passed bool) bool {
	key := path
	if passed {
		key += "/"
	}
	ok, known := t.checked[key]
	if !known {
		st, err := os.Lstat(path)
		ok = err == nil && st.IsDir() && ownedByRoot(st) && (passed && st.Mode()&fs.ModeSticky != 0 || writtenByRoot(path, st))
		t.checked[key] = ok
	}
	return ok
}

func ownedByRoot(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Uid == 0
}

// writtenByRoot reports whether the permissions of a directory of root's let
// nobody else write. A group may if it has no other member; with an access
// control list its bits say nothing about the group.
func writtenByRoot(path string, st fs.FileInfo) bool {
	if st.Mode().Perm()&0o022 == 0 {
		return true
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || st.Mode().Perm()&0o002 != 0 {
		return false
	}
	if n, err := unix.Lgetxattr(path, "system.posix_acl_access", nil); err == nil && n > 0 {
		return false
	}
	return onlyRootIn(passwdFile, groupFile, sys.Gid)
}

// onlyRootIn reports whether a group has no member but root.
func onlyRootIn(passwd, group string, gid uint32) bool {
	if gid == sandboxID { // the default user's, whatever the files say
		return false
	}
	if _, other := passwdEntry(passwd, func(e Account) bool { return e.GID == gid && e.UID != 0 }); other {
		return false
	}
	only := true
	eachLine(group, func(f []string) bool {
		if id, ok := parseID(f[min(2, len(f)-1)]); len(f) < 4 || !ok || id != gid {
			return true
		}
		only = !slices.ContainsFunc(strings.Split(f[3], ","), func(name string) bool { return name != "" && name != "root" })
		return only
	})
	return only
}
