package session_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/session"
)

// box is a home and a workspace, as a sandbox has them.
type box struct {
	t          *testing.T
	home, work string
	base       []string
}

func newBox(t *testing.T) *box {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, home: filepath.Join(dir, "home"), work: filepath.Join(dir, "workspace")}
	for _, d := range []string{b.home, b.work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.base = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.home, "BASE=base", "LC_ALL=C.UTF-8"}
	return b
}

// step is one command and what comes of it.
type step struct {
	cmd  string
	argv []string
	cwd  string
	env  []string
	in   string // another session than main

	out  string // exactly
	err  string // part of the standard error; "" is an empty one
	code int
}

// dir is where the state of a session is.
func (b *box) dir(name string) string {
	return filepath.Join(b.home, session.Dir, strconv.Itoa(os.Getuid()), name)
}

// prepare makes the process of a command.
func (b *box) prepare(ctx context.Context, s step) *exec.Cmd {
	b.t.Helper()
	name := s.in
	if name == "" {
		name = "main"
	}
	dir, note := session.Open(b.home, session.Dir, name, os.Getuid(), os.Getgid())
	c := session.Command{
		Name: name, Shell: s.cmd, Argv: s.argv, Dir: dir, Note: note, Workspace: b.work, Cwd: s.cwd, Base: b.base, Env: s.env,
	}
	argv, env := c.Line()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = env, b.work
	if s.cwd != "" {
		cmd.Dir = s.cwd
	}
	return cmd
}

func (b *box) run(s step) (stdout, stderr string, code int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := b.prepare(ctx, s)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatalf("%s%q: %v", s.cmd, s.argv, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// expand puts the directories of the box in.
func (b *box) expand(s string) string {
	return strings.NewReplacer("{work}", b.work, "{home}", b.home, "{state}", b.dir("main")).Replace(s)
}

// do runs steps and compares what comes of them.
func (b *box) do(steps ...step) {
	b.t.Helper()
	for i, s := range steps {
		s.cmd, s.cwd, s.out, s.err = b.expand(s.cmd), b.expand(s.cwd), b.expand(s.out), b.expand(s.err)
		stdout, stderr, code := b.run(s)
		if stdout != s.out || code != s.code || !strings.Contains(stderr, s.err) || s.err == "" && stderr != "" {
			b.t.Errorf("step %d: %s%q\nwrote %q\nand   %q, exit %d\nwant  %q\nand … %q, exit %d",
				i, s.cmd, s.argv, stdout, stderr, code, s.out, s.err, s.code)
		}
	}
}
