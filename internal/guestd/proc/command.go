package proc

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

// What a shell answers for a program that it cannot run, or find.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

const (
	defaultPath  = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	workspace    = "/workspace"
	terminalType = "TERM=xterm-256color"
)

// StartError is why a command never ran. Code is what a shell would have
// answered: 127 when there is no such program, 126 for everything else.
type StartError struct {
	Code    int32
	Message string
}

func (e *StartError) Error() string { return e.Message }

func cannotStart(code int32, format string, args ...any) error {
	return &StartError{code, fmt.Sprintf(format, args...)}
}

// command is a start that was resolved against the sandbox's files: what to
// execute, as whom, where.
type command struct {
	path    string
	argv    []string
	env     []string
	dir     string
	account Account
}

// resolve checks everything about a start that can be known before the fork,
// so that the message names what is wrong. Its errors are StartError.
func resolve(cfg Config, accounts *accounts, start *guestv1.ExecStart) (command, error) {
	var c command
	var err error
	if c.account, err = accounts.lookup(start.GetUser()); err != nil {
		return c, cannotStart(CodeNotExecutable, "%s", err)
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
	c.env = environment(cfg.Env, start, c.account)
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
		return cannotStart(CodeNotExecutable, "argument %d has a NUL byte", i)
	}
	return nil
}

// workingDir resolves cwd; without one it is /workspace, or / in an image
// that has none.
func workingDir(cfg Config, cwd string, a Account) (string, error) {
	dir := cwd
	switch {
	case cwd == "":
		if dir = cfg.MapPath(workspace); !isDir(dir) {
			return "/", nil
		}
		return dir, nil
	case strings.ContainsRune(cwd, 0):
		return "", cannotStart(CodeNotExecutable, "the working directory has a NUL byte")
	case !filepath.IsAbs(cwd):
		dir = filepath.Join(workspace, cwd)
	}
	dir = cfg.MapPath(dir)
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", cannotStart(CodeNotExecutable, "working directory %s: no such directory", cwd)
	case err != nil:
		return "", cannotStart(CodeNotExecutable, "working directory %s: %s", cwd, errnoText(err))
	case !st.IsDir():
		return "", cannotStart(CodeNotExecutable, "working directory %s: not a directory", cwd)
	case !a.may(st, 1):
		return "", cannotStart(CodeNotExecutable, "working directory %s: permission denied for user %s", cwd, a.name)
	}
	return dir, nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// LookPath finds a program that is named by its base as an account with an
// environment would.
func LookPath(name string, env []string, a Account) (string, error) {
	return lookPath(name, command{env: env, dir: "/", account: a})
}

// lookPath finds the program as the command's own user and PATH would.
func lookPath(name string, c command) (string, error) {
	if name == "" {
		return "", cannotStart(CodeNotFound, "the command is empty")
	}
	if strings.Contains(name, "/") {
		at := name
		if !filepath.IsAbs(at) {
			at = filepath.Join(c.dir, name)
		}
		switch st, err := os.Stat(at); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return "", cannotStart(CodeNotFound, "%s: no such file or directory", name)
		case err != nil:
			return "", cannotStart(CodeNotExecutable, "%s: %s", name, errnoText(err))
		case st.IsDir():
			return "", cannotStart(CodeNotExecutable, "%s: is a directory", name)
		case !executable(st, c.account):
			return "", cannotStart(CodeNotExecutable, "%s: permission denied", name)
		}
		return at, nil
	}
	path, ok := LookupEnv(c.env, "PATH")
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
		return "", cannotStart(CodeNotExecutable, "%s: permission denied", denied)
	}
	return "", cannotStart(CodeNotFound, "%s: command not found", name)
}

func executable(st fs.FileInfo, a Account) bool {
	if !st.Mode().IsRegular() {
		return false
	}
	if a.UID == 0 {
		return st.Mode().Perm()&0o111 != 0
	}
	return a.may(st, 1)
}

// may reports whether the permission bits (4 read, 2 write, 1 execute) of st
// allow a to do so. It is for messages: the kernel decides.
func (a Account) may(st fs.FileInfo, bits fs.FileMode) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || a.UID == 0 {
		return true
	}
	mode := st.Mode().Perm()
	switch {
	case sys.Uid == a.UID:
		mode >>= 6
	case sys.Gid == a.GID || slices.Contains(a.groups, sys.Gid):
		mode >>= 3
	}
	return mode&bits == bits
}

// environment is what the command sees: what its user implies, then the
// sandbox's environment, then its own. Later ones win. Root gets no PATH on which
// another user can put a program, whoever set it.
func environment(boot []string, start *guestv1.ExecStart, a Account) []string {
	env := []string{"PATH=" + defaultPath, "HOME=" + a.home, "USER=" + a.name, "LOGNAME=" + a.name}
	if start.GetPty() != nil {
		env = append(env, terminalType)
	}
	if a.UID == 0 {
		boot = withoutPrefix(boot)
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
		if a.UID == 0 {
			kv = rootVariable(kv)
		}
		out = append(out, kv)
	}
	slices.Reverse(out)
	return out
}

// LookupEnv returns the value of a variable in an environment.
func LookupEnv(env []string, key string) (string, bool) {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}
