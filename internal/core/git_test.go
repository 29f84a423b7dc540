package core_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/git"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestGitResultOfAnOperationThatOutlivesTheDaemon: the daemon is killed while a
// hook holds a commit up. The next one has the result, from the journal.
func TestGitResultOfAnOperationThatOutlivesTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", `git init -q r && cd r && echo one > f &&
printf '#!/bin/sh\ntouch ../started\nwhile test ! -e ../go; do sleep 0.05; done\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit`)
	res, err := w.Git().Run(w.ctx, "a", git.Commit{Path: "r", Message: "one", All: true}, program.GitOptions{}, 0, live.OutputCaps{})
	if err != nil || res.Exec.Status.Finished() {
		t.Fatalf("RunGit = %+v, %v", res, err)
	}
	w.sh("a", "while test ! -e started; do sleep 0.05; done")
	w.restart()
	w.sh("a", "touch go")
	x := w.wait("a", res.Exec.Seq)
	var made git.Committed
	if err := json.Unmarshal(x.Result, &made); err != nil || made.Subject != "one" || len(made.Commit) != 40 || x.Spec.Kind != "git.commit" {
		t.Errorf("the operation ended as %+v with the result %s, %v", x, x.Result, err)
	}
}

// TestGitEndedBySomethingElse: without git's own end there is no result, and
// the reason says why.
func TestGitEndedBySomethingElse(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", `git init -q r && cd r && echo one > f &&
printf '#!/bin/sh\nexec sleep 600\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit`)
	limit := 200 * time.Millisecond
	res, err := w.Git().Run(w.ctx, "a", git.Commit{Path: "r", Message: "one", All: true}, program.GitOptions{Timeout: &limit}, -1, live.OutputCaps{})
	if err != nil || res.Exec.Result != nil || res.Exec.Exit.Reason != sandbox.EndTimeout {
		t.Errorf("RunGit = %+v, %v", res.Exec, err)
	}
	if _, err := w.Git().Run(w.ctx, "a", git.Clone{URL: "ext::sh"}, program.GitOptions{}, -1, live.OutputCaps{}); !errors.Is(err, errs.Invalid) {
		t.Errorf("RunGit of a bad URL = %v", err)
	}
}

// TestGitCredentialsAreNotKept looks into all that the daemon keeps.
func TestGitCredentialsAreNotKept(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	login := git.Credentials{Username: "alice-the-user", Password: "s3cr3t-pa55word"}
	res, err := w.Git().Run(w.ctx, "a", git.Clone{URL: "http://127.0.0.1:1/r.git", Login: login}, program.GitOptions{}, -1, live.OutputCaps{Stdout: -1, Stderr: -1})
	if err != nil || !strings.Contains(string(res.Exec.Result), git.Unreachable) {
		t.Fatalf("RunGit = %s, %v", res.Exec.Result, err)
	}
	x, err := w.Execs().Get(w.ctx, "a", res.Exec.Seq)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	if !x.Spec.NeedsSecrets || strings.Contains(string(text), login.Password) || strings.Contains(string(text), login.Username) {
		t.Errorf("the exec is %s", text)
	}
	for _, what := range []string{login.Password, login.Username} {
		if found := w.filesWith(what); found != nil {
			t.Errorf("%s is in %q", what, found)
		}
	}
	if w.filesWith("127.0.0.1:1/r.git") == nil {
		t.Error("the search finds nothing at all")
	}
}

// filesWith returns what of the daemon's files has text in it.
func (w *world) filesWith(text string) []string {
	w.t.Helper()
	var found []string
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}
