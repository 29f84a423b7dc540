package guestd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	workspace   = "/workspace"

	terminalType = "TERM=xterm-256color"

	codeNotExecutable = 126
	codeNotFound      = 127
)

// notStarted is why a command never ran. Code is what a shell would have
// answered: 127 when there is no such program, 126 for everything else.
type notStarted struct {
	code    int32
	message string
}

func (e *notStarted) Error() string { return e.message }

func cannotStart(code int32, format string, args ...any) error {
	return &notStarted{code, fmt.Sprintf(format, args...)}
}

// command is a start that was resolved against the sandbox's files: what to
// execute, as whom, where.
type command struct {
	path    string
	argv    []string
	env     []string
	dir     string
	account account
}

// resolve checks everything about a start that can be known before the fork,
// so that the message names what is wrong. Its errors are notStarted.
func resolve(cfg Config, accounts *accounts, start *guestv1.ExecStart) (command, error) {
	var c command
	var err error
	if c.account, err = accounts.lookup(start.GetUser()); err != nil {
		return c, cannotStart(codeNotExecutable, "%s", err)
	}
	if c.dir, err = workingDir(cfg, start.GetCwd(), c.account); err != nil {
		return c, err
	}
	if start.GetSession() != "" {
		if err := c.inSession(cfg, start); err != nil {
			return c, err
		}
		return c, c.checkText()
	}
	c.env = environment(cfg.Boot.GetEnv(), start, c.account)
	c.argv = start.GetArgv()
	if shell := start.GetShell(); shell != "" || len(c.argv) == 0 {
		c.argv = []string{"bash", "-c", shell}
		if c.path, err = lookPath("bash", c); err == nil {
			return c, nil
		}
		c.argv[0] = "sh"
	}
	if err := c.checkText(); err != nil {
		return c, err
	}
	c.path, err = lookPath(c.argv[0], c)
	return c, err
}

// checkText refuses arguments that no process can get.
func (c *command) checkText() error {
	if i := slices.IndexFunc(c.argv, func(a string) bool { return strings.ContainsRune(a, 0) }); i >= 0 {
		return cannotStart(codeNotExecutable, "argument %d has a NUL byte", i)
	}
	return nil
}

// workingDir resolves cwd; without one it is /workspace, or / in an image
// that has none.
func workingDir(cfg Config, cwd string, a account) (string, error) {
	dir := cwd
	switch {
	case cwd == "":
		if dir = cfg.MapPath(workspace); !isDir(dir) {
			return "/", nil
		}
		return dir, nil
	case strings.ContainsRune(cwd, 0):
		return "", cannotStart(codeNotExecutable, "the working directory has a NUL byte")
	case !filepath.IsAbs(cwd):
		dir = filepath.Join(workspace, cwd)
	}
	dir = cfg.MapPath(dir)
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", cannotStart(codeNotExecutable, "working directory %s: no such directory", cwd)
	case err != nil:
		return "", cannotStart(codeNotExecutable, "working directory %s: %s", cwd, errnoText(err))
	case !st.IsDir():
		return "", cannotStart(codeNotExecutable, "working directory %s: not a directory", cwd)
	case !a.may(st, 1):
		return "", cannotStart(codeNotExecutable, "working directory %s: permission denied for user %s", cwd, a.name)
	}
	return dir, nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// lookPath finds the program as the command's own user and PATH would.
func lookPath(name string, c command) (string, error) {
	if name == "" {
		return "", cannotStart(codeNotFound, "the command is empty")
	}
	if strings.Contains(name, "/") {
		at := name
		if !filepath.IsAbs(at) {
			at = filepath.Join(c.dir, name)
		}
		switch st, err := os.Stat(at); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return "", cannotStart(codeNotFound, "%s: no such file or directory", name)
		case err != nil:
			return "", cannotStart(codeNotExecutable, "%s: %s", name, errnoText(err))
		case st.IsDir():
			return "", cannotStart(codeNotExecutable, "%s: is a directory", name)
		case !executable(st, c.account):
			return "", cannotStart(codeNotExecutable, "%s: permission denied", name)
		}
		return at, nil
	}
	path, ok := lookupEnv(c.env, "PATH")
	if !ok {
		path = defaultPath
	}
	denied := ""
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(c.dir, dir)
		}
		at := filepath.Join(dir, name)
		st, err := os.Stat(at)
		switch {
		case err != nil || st.IsDir():
		case executable(st, c.account):
			return at, nil
		case denied == "":
			denied = at
		}
	}
	if denied != "" {
		return "", cannotStart(codeNotExecutable, "%s: permission denied", denied)
	}
	return "", cannotStart(codeNotFound, "%s: command not found", name)
}

func executable(st fs.FileInfo, a account) bool {
	if !st.Mode().IsRegular() {
		return false
	}
	if a.uid == 0 {
		return st.Mode().Perm()&0o111 != 0
	}
	return a.may(st, 1)
}

// may reports whether the permission bits (4 read, 2 write, 1 execute) of st
// allow a to do so. It is for messages: the kernel decides.
func (a account) may(st fs.FileInfo, bits fs.FileMode) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || a.uid == 0 {
		return true
	}
	mode := st.Mode().Perm()
	switch {
	case sys.Uid == a.uid:
		mode >>= 6
	case sys.Gid == a.gid || slices.Contains(a.groups, sys.Gid):
		mode >>= 3
	}
	return mode&bits == bits
}

// environment is what the command sees: what its user implies, then the
// sandbox's environment, then its own. Later ones win.
func environment(boot []string, start *guestv1.ExecStart, a account) []string {
	env := []string{"PATH=" + defaultPath, "HOME=" + a.home, "USER=" + a.name, "LOGNAME=" + a.name}
	if start.GetPty() != nil {
		env = append(env, terminalType)
	}
	env = append(env, boot...)
	env = append(env, start.GetEnv()...)

	seen := make(map[string]bool, len(env))
	out := env[:0:0]
	for _, kv := range slices.Backward(env) {
		key, _, ok := strings.Cut(kv, "=")
		if !ok || key == "" || seen[key] || strings.ContainsRune(kv, 0) {
			continue
		}
		seen[key] = true
		out = append(out, kv)
	}
	slices.Reverse(out)
	return out
}

func lookupEnv(env []string, key string) (string, bool) {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}

// errnoText is the kernel's word for err, without Go's operation and path.
func errnoText(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
