// Package session keeps the state of session shells: what one command leaves
// to the next. Every command is a bash of its own, which begins where the one
// before ended: same directory, variables, functions, aliases, options, traps,
// umask and arguments. So a command that hangs, is killed or replaces its
// shell takes nothing with it but what it would have changed itself.
//
// The state is a file of bash commands in the sandbox, which belongs to whom
// it is restored for. It is replaced by a rename when a shell ends, so it is
// the old one or the new one and never a part. One that cannot be restored,
// whoever made it so, is put aside.
//
// The package makes command lines and looks after the directory; it starts
// nothing and orders nothing.
package session

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is where the states of the sandbox's usual user are, below its home, and
// OthersDir where those of all other users are, below the root: a directory for each
// uid, in it one for each session, in it File. The usual user can replace every
// directory of its home, and a state is code that runs as the user whose it is.
const (
	Dir       = ".cubby/sessions"
	OthersDir = "var/lib/cubby/sessions"
	File      = "state"
)

const (
	// maxState bounds what is restored.
	maxState = 32 << 20
	// maxLoads is how many restores in a row may end without their end: a kill
	// can hit a restore by chance, but not every time.
	maxLoads = 10

	loading  = "loading"   // a byte for each restore that did not come to its end
	aside    = "state.bad" // the last state that could not be restored
	headline = "# cubby session state 1"
)

//go:embed shell.bash
var shell string

// Command is one command of a session. Exactly one of Shell and Argv is set; a
// program of Argv sees the session's directory and environment, and cannot
// change them.
type Command struct {
	Name  string // of the session
	Shell string
	Argv  []string

	Dir       string // of the state, from [Open]; "" restores and saves nothing
	Note      string // from [Open]
	Workspace string // where a shell begins and a bare cd leads
	Cwd       string // for this command only; "" is the session's
	// Base is the environment that a new session begins with, and Env is added
	// for this command only, both as KEY=VALUE.
	Base, Env []string
}

// Line returns the arguments and the environment of the process that runs the
// command. It is to be started in Cwd, or else in Workspace.
func (c Command) Line() (argv, env []string) {
	argv = []string{"bash", "-p", "-c", `eval "$__cubby_main"; builtin eval "$__cubby_command"`, "bash"}
	mode := "argv"
	if c.Argv == nil {
		mode = "shell"
		argv = append(argv, c.Shell)
	} else {
		argv = append(argv, c.Argv...)
	}
	env = []string{
		"__cubby_main=" + shell, "__cubby_mode=" + mode, "__cubby_name=" + c.Name, "__cubby_dir=" + c.Dir,
		"__cubby_note=" + c.Note, "__cubby_workspace=" + c.Workspace, "__cubby_at=" + c.Cwd,
	}
	env = appendEnv(env, "__cubby_base_", c.Base)
	return argv, appendEnv(env, "__cubby_env_", c.Env)
}

// appendEnv adds variables under names that bash does not act upon. It cannot
// hold those whose names it could not write; it passes them on.
func appendEnv(env []string, prefix string, vars []string) []string {
	for _, kv := range vars {
		switch name, _, ok := strings.Cut(kv, "="); {
		case !ok, name == "", strings.ContainsRune(kv, 0), name == "_", name == "SHLVL", strings.HasPrefix(name, "__cubby_"):
		case identifier(name):
			env = append(env, prefix+kv)
		default:
			env = append(env, kv)
		}
	}
	return env
}

func identifier(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// Open makes the directory of a session's state for a user, below dir in top, and
// puts a state aside that must not be restored: the shell says the note. The
// directory is "" when there can be none. Nothing below top is trusted.
func Open(top, dir, name string, uid, gid int) (at, note string) {
	note, err := open(top, dir, name, uid, gid)
	if err != nil {
		return "", "its state cannot be kept: " + err.Error()
	}
	return filepath.Join(top, dir, strconv.Itoa(uid), name), note
}

func open(top, dir, name string, uid, gid int) (note string, err error) {
	root, err := os.OpenRoot(top)
	if err != nil {
		return "", plain(err)
	}
	defer root.Close()
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return "", plain(err)
	}
	own := filepath.Join(dir, strconv.Itoa(uid))
	for _, d := range []string{own, filepath.Join(own, name)} {
		if err := ownDir(root, d, uid, gid); err != nil {
			return "", err
		}
	}
	at, err := root.OpenRoot(filepath.Join(own, name))
	if err != nil {
		return "", plain(err)
	}
	defer at.Close()
	why := check(at, name, uid)
	if why == nil {
		return "", nil
	}
	if err := errors.Join(putAside(at), at.RemoveAll(loading)); err != nil {
		return "", plain(err)
	}
	return fmt.Sprintf("its saved state was put aside (%s); this shell begins anew", why), nil
}

// ownDir makes a directory that only its owner may change.
func ownDir(root *os.Root, name string, uid, gid int) error {
	if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return plain(err)
	}
	st, err := root.Lstat(name)
	switch {
	case err != nil:
		return plain(err)
	case !st.IsDir() || !owned(st, uid) && !owned(st, os.Geteuid()):
		return fmt.Errorf("%s is not a directory of uid %d", name, uid)
	case owned(st, uid):
		return nil
	}
	return giveAway(root, name, uid, gid)
}

// giveAway gives a directory of the agent's to its user: one that was made now, by
// another session at this moment, or by one whose agent was killed before it did so. All
// of those are empty. One that is not can be another one of root's, which the user has
// brought here by renaming a directory above it.
func giveAway(root *os.Root, name string, uid, gid int) error {
	d, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return plain(err)
	}
	defer d.Close()
	_, filled := d.Readdirnames(1)
	st, err := d.Stat()
	switch {
	case err != nil:
		return plain(err)
	case owned(st, uid):
		return nil
	case !st.IsDir() || !owned(st, os.Geteuid()) || !errors.Is(filled, io.EOF):
		return fmt.Errorf("%s is not a directory of uid %d", name, uid)
	}
	return plain(d.Chown(uid, gid))
}

// check is what keeps a state from being restored; nil also when there is none.
func check(at *os.Root, name string, uid int) error {
	if st, err := at.Lstat(loading); err == nil && (!st.Mode().IsRegular() || st.Size() >= maxLoads) {
		return errors.New("it did not come to its end")
	}
	switch st, err := at.Lstat(File); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return plain(err)
	case !st.Mode().IsRegular():
		return errors.New("it is not a file")
	case !owned(st, uid):
		return errors.New("it belongs to another user")
	case st.Size() > maxState:
		return errors.New("it is too large")
	}
	f, err := at.OpenFile(File, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return plain(err)
	}
	defer f.Close()
	h, err := ReadHeader(f)
	if err == nil && (h.UID != uid || h.Name != name) {
		err = errors.New("it is of another session")
	}
	return err
}

// putAside moves a state out of the way, and removes what cannot be moved.
func putAside(at *os.Root) error {
	if st, err := at.Lstat(aside); err == nil && st.IsDir() {
		if err := at.RemoveAll(aside); err != nil {
			return err
		}
	}
	err := at.Rename(File, aside)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return at.RemoveAll(File)
}

func owned(st fs.FileInfo, uid int) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == uid
}

// Header is what a state says about itself.
type Header struct {
	UID  int
	Name string
	Cwd  string // for people; line breaks are question marks
}

// maxHeader is more than a header can have.
const maxHeader = 16 << 10

// ReadHeader reads the beginning of a state.
func ReadHeader(r io.Reader) (Header, error) {
	s := bufio.NewScanner(io.LimitReader(r, maxHeader))
	line := func(key string) (string, bool) {
		if !s.Scan() {
			return "", false
		}
		return strings.CutPrefix(s.Text(), key)
	}
	var h Header
	if _, ok := line(headline); !ok {
		return h, errors.New("it is not one")
	}
	uid, ok1 := line("# uid ")
	name, ok2 := line("# name ")
	cwd, ok3 := line("# cwd ")
	n, err := strconv.Atoi(uid)
	if !ok1 || !ok2 || !ok3 || err != nil {
		return h, errors.New("it is not one")
	}
	return Header{UID: n, Name: name, Cwd: cwd}, nil
}

// plain takes the names of files out of an error: who reads it is told of a
// session, not of its files.
func plain(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", filepath.Base(path.Path), path.Err)
	}
	return err
}
