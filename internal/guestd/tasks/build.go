package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/task"
)

const (
	buildLimit = 2 * time.Minute
	// maxBuildOutput is how many characters of the end of a build's output are told.
	maxBuildOutput = 2000
	// maxManifest bounds a package.json.
	maxManifest = 4 << 20
)

// buildCommand is how the project in a directory is built; nil when it has no
// build.
func buildCommand(dir string, env []string) []string {
	text, err := readBounded(filepath.Join(dir, "package.json"), maxManifest)
	if err != nil {
		return nil
	}
	var manifest struct {
		Scripts map[string]json.RawMessage `json:"scripts"`
	}
	var script string
	if json.Unmarshal(text, &manifest) != nil || json.Unmarshal(manifest.Scripts["build"], &script) != nil || script == "" {
		return nil
	}
	for _, manager := range []struct{ program, lock string }{
		{"pnpm", "pnpm-lock.yaml"}, {"npm", "package-lock.json"}, {"npm", "npm-shrinkwrap.json"},
		{"yarn", "yarn.lock"}, {"bun", "bun.lock"}, {"bun", "bun.lockb"},
	} {
		if _, err := os.Lstat(filepath.Join(dir, manager.lock)); err == nil {
			return []string{manager.program, "run", "build"}
		}
	}
	if _, err := find("pnpm", env, dir); err == nil {
		return []string{"pnpm", "run", "build"}
	}
	return []string{"npm", "run", "build"}
}

// checkBuild runs a build; ctx ends it before its time.
func checkBuild(ctx context.Context, kids *children, command, env []string, dir string, redact *redactor) task.Build {
	path, err := find(command[0], env, dir)
	if err != nil {
		return task.Build{Message: err.Error()}
	}
	ctx, cancel := within(ctx, buildLimit, errTimeLimit)
	defer cancel()
	output := tailWriter{limit: 4*maxBuildOutput + redact.longest}
	cmd := &exec.Cmd{Path: path, Args: command, Env: env, Dir: dir, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		Stdout: &output, Stderr: &output, WaitDelay: time.Second}
	if err := kids.start(cmd); err != nil {
		return task.Build{Message: err.Error()}
	}
	ended := make(chan error, 1)
	go func() { ended <- kids.wait(cmd) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		killing, done := context.WithTimeout(context.Background(), 10*time.Second)
		_ = proc.KillDescendants(killing, cmd.Process.Pid)
		done()
		_ = cmd.Process.Kill()
		err = errors.Join(context.Cause(ctx), <-ended)
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		// What the build left running holds its output open.
		return task.Build{OK: true}
	}
	text := strings.TrimSpace(redact.text(output.String()))
	switch {
	case errors.Is(err, errTimeLimit):
		text += fmt.Sprintf("\nthe build was ended after %s", buildLimit)
	case text == "":
		text = err.Error()
	}
	return task.Build{Message: lastRunes(strings.TrimSpace(text), maxBuildOutput)}
}

// readBounded reads a regular file that is not larger than limit.
func readBounded(path string, limit int64) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > limit {
		return nil, fmt.Errorf("%s: not a file of at most %d bytes", path, limit)
	}
	return os.ReadFile(path)
}
