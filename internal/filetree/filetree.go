// Package filetree carries out cubby's file API on a directory tree that
// somebody else may be writing to: reading, atomic writing, listing, moving,
// removing, and tar in and out. The guest agent uses it on the whole file
// system of a sandbox ([Whole]); the host uses it on the disk of a stopped
// sandbox ([Confined]), where names are resolved through os.Root and none can
// lead off the disk. Both therefore mean the same by the same call, and
// filetreetest proves it.
//
// It never opens devices, FIFOs or sockets, never creates through a symbolic
// link that appears while it works, and never holds a file's content in
// memory. It knows nothing of sandboxes' states, of HTTP or of disks.
package filetree

import (
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Tree is the file API on one tree. Names are absolute, or relative to
// /workspace, and are cleaned as text before use. A Tree holds nothing open
// between calls and is safe for concurrent use.
//
// Errors are classified: errs.Invalid (the name, or a file of the wrong kind),
// NotFound, Conflict (exists, not empty, busy), Forbidden, TooLarge, WrongState
// (a name off a confined tree) and Exhausted (the disk is full).
type Tree struct {
	space space
	guard func() error
	owner func(user string) (uid, gid uint32, err error)
	chown bool // this process may give files away

	replacing *sync.Mutex // held between the look at what is replaced and that
	sweeps    *sweeps     // of what writes have left
}

// Options adapt a Tree to where it works. The zero value is useful.
type Options struct {
	// Guard is asked before everything that writes; its error is returned.
	Guard func() error
	// Owner turns a user's name into ids. The default knows sandbox, root and
	// numbers.
	Owner func(user string) (uid, gid uint32, err error)
	// MapPath turns an absolute name of the sandbox into one of this machine,
	// for an agent that has no mount namespace of its own. Whole only.
	MapPath func(name string) string
}

// Mount says which directory of this machine stands for a path of the sandbox.
type Mount struct {
	Path string // absolute and clean: "/workspace"
	Dir  string
}

// Whole is the file system of this process as it is.
func Whole(o Options) *Tree {
	t := newTree(o)
	t.space = whole{mapPath: o.MapPath}
	return t
}

// Confined is made of some directories only. Names and symbolic links that
// lead elsewhere are refused with errs.WrongState; absolute and upward links
// between the mounts are followed. The directories are opened for each call,
// so they can be unmounted in between.
func Confined(o Options, mounts ...Mount) *Tree {
	t := newTree(o)
	t.space = confined{mounts: mounts}
	return t
}

func newTree(o Options) *Tree {
	t := &Tree{guard: o.Guard, owner: o.Owner, chown: os.Geteuid() == 0, replacing: new(sync.Mutex), sweeps: new(sweeps)}
	if t.guard == nil {
		t.guard = func() error { return nil }
	}
	if t.owner == nil {
		t.owner = Owner
	}
	return t
}

// Owner gives the ids of a user that needs no account file: "" and "sandbox",
// "root", or a number, whose group is the same number.
func Owner(user string) (uid, gid uint32, err error) {
	switch user {
	case "", sandbox.UserSandbox:
		return sandbox.UserID, sandbox.UserID, nil
	case sandbox.UserRoot:
		return 0, 0, nil
	}
	n, err := strconv.ParseUint(user, 10, 32)
	// 2^32-1 means "leave unchanged" to chown.
	if err != nil || n == 1<<32-1 {
		return 0, 0, errs.E(errs.Invalid, "no such user: %.64q", user).
			Hint("while the sandbox is stopped use \"sandbox\", \"root\" or a number")
	}
	return uint32(n), uint32(n), nil
}

// MaxPath is the longest name, in bytes, as in Linux.
const MaxPath = 4096

// Clean is the only way from outside text to a name inside: absolute, without
// ".", ".." or double slashes. Relative names start at /workspace. It returns
// errs.Invalid for an empty name, a NUL, text that is not UTF-8, or a name that
// Linux could not take.
func Clean(name string) (string, error) {
	switch {
	case name == "":
		return "", errs.E(errs.Invalid, "the path is empty")
	case strings.ContainsRune(name, 0):
		return "", errs.E(errs.Invalid, "the path contains a NUL byte")
	case !utf8.ValidString(name):
		return "", errs.E(errs.Invalid, "the path is not UTF-8")
	case len(name) >= MaxPath:
		return "", errs.E(errs.Invalid, "the path is longer than %d bytes", MaxPath-1)
	}
	if !strings.HasPrefix(name, "/") {
		name = sandbox.WorkspaceDir + "/" + name
	}
	name = path.Clean(name)
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return "", errs.E(errs.Invalid, "a name in the path is longer than %d bytes", maxName)
		}
	}
	return name, nil
}

const maxName = 255
