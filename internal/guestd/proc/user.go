package proc

import (
	"bufio"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// The default user exists in every sandbox, whatever its image says.
const (
	sandboxUser = "sandbox"
	sandboxID   = 1000
	sandboxHome = "/home/sandbox"
)

// Account is who a command runs as, or who owns what the host writes.
type Account struct {
	name     string
	UID, GID uint32
	groups   []uint32 // supplementary
	home     string
	shell    string
}

// maxAccountFile bounds what is read of /etc/passwd and /etc/group: the guest
// writes them.
const maxAccountFile = 1 << 20

// LookupAccount resolves a user name or a decimal uid: "" and "sandbox" are
// uid 1000 without any passwd entry, "root" is uid 0; others come from
// etc/passwd, and a uid without an entry is taken as it is. An unknown name is
// errs.Invalid.
func LookupAccount(user string) (Account, error) {
	return lookupAccountIn(passwdFile, groupFile, user)
}

func lookupAccountIn(passwd, group, user string) (Account, error) {
	var a Account
	switch user {
	case "", sandboxUser:
		a = Account{name: sandboxUser, UID: sandboxID, GID: sandboxID, home: sandboxHome}
	case "root":
		a = Account{name: "root", home: "/root"}
		if e, ok := passwdEntry(passwd, func(e Account) bool { return e.UID == 0 }); ok {
			a.home, a.shell = e.home, e.shell
		}
	default:
		uid, numeric := parseID(user)
		e, ok := passwdEntry(passwd, func(e Account) bool { return e.name == user || numeric && e.UID == uid })
		switch {
		case ok:
			a = e
		case numeric:
			a = Account{name: user, UID: uid, GID: uid, home: "/"}
		default:
			return Account{}, errs.E(errs.Invalid, "no such user: %.64q", user).
				Hint("use \"sandbox\", \"root\", a uid, or a user of the image's /etc/passwd")
		}
	}
	a.groups = groupsOf(group, a)
	return a, nil
}

// accounts remembers what lookups gave while the files stay the same.
type accounts struct {
	mu            sync.Mutex
	passwd, group fs.FileInfo // as they were; nil: missing
	known         map[string]Account
}

// maxAccounts bounds what is remembered.
const maxAccounts = 64

func (a *accounts) lookup(user string) (Account, error) {
	passwd, _ := os.Stat(passwdFile)
	group, _ := os.Stat(groupFile)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil || !sameVersion(a.passwd, passwd) || !sameVersion(a.group, group) || len(a.known) >= maxAccounts {
		a.passwd, a.group, a.known = passwd, group, make(map[string]Account)
	}
	if found, ok := a.known[user]; ok {
		return found, nil
	}
	found, err := LookupAccount(user)
	if err == nil {
		a.known[user] = found
	}
	return found, err
}

func sameVersion(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	// 2^32-1 means "leave unchanged" to the set*id calls.
	return uint32(n), err == nil && n != 1<<32-1
}

// passwdEntry returns the first entry that matches, as getpwnam would.
func passwdEntry(path string, match func(Account) bool) (Account, bool) {
	var found Account
	ok := false
	eachLine(path, func(f []string) bool {
		if len(f) < 7 {
			return true
		}
		uid, ok1 := parseID(f[2])
		gid, ok2 := parseID(f[3])
		if !ok1 || !ok2 {
			return true
		}
		e := Account{name: f[0], UID: uid, GID: gid, home: f[5], shell: f[6]}
		if e.home == "" {
			e.home = "/"
		}
		if ok = match(e); ok {
			found = e
		}
		return !ok
	})
	return found, ok
}

// maxGroups is the kernel's NGROUPS_MAX.
const maxGroups = 65536

func groupsOf(path string, a Account) []uint32 {
	groups := []uint32{a.GID}
	eachLine(path, func(f []string) bool {
		if len(f) < 4 || !slices.Contains(strings.Split(f[3], ","), a.name) {
			return true
		}
		if gid, ok := parseID(f[2]); ok && !slices.Contains(groups, gid) {
			groups = append(groups, gid)
		}
		return len(groups) < maxGroups
	})
	return groups
}

// eachLine calls fn with the colon-separated fields of each line until it
// returns false. What cannot be read is empty: the image need not have it.
func eachLine(path string, fn func(fields []string) bool) {
	f, err := openRegular(path)
	if err != nil {
		return
	}
	defer f.Close()
	s := bufio.NewScanner(io.LimitReader(f, maxAccountFile))
	for s.Scan() {
		if line := s.Text(); line != "" && line[0] != '#' && !fn(strings.Split(line, ":")) {
			return
		}
	}
}

// openRegular opens a regular file for reading and nothing else: a FIFO put
// in its place must not block the agent.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, os.ErrInvalid
	}
	return f, nil
}
