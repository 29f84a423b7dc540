//go:build root

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/git/gittest"
	"github.com/cubbyhq/cubby/test/harness"
)

// elsewhere is an address of this machine that NO_PROXY of a sandbox does not
// name, so what asks for it goes through the proxy.
const elsewhere = "127.0.0.2"

// eachIsolation runs a test against a daemon that lets sandboxes reach
// elsewhere, with a sandbox "a" of each isolation.
func eachIsolation(t *testing.T, o sdk.CreateOptions, test func(t *testing.T, h realHost, c *sdk.Client)) {
	t.Helper()
	inIsolations(t, []string{"gvisor", "container"}, o, test)
}

func inIsolations(t *testing.T, isolations []string, o sdk.CreateOptions, test func(t *testing.T, h realHost, c *sdk.Client)) {
	t.Helper()
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			h := newReal(t, harness.Options{})
			url, err := h.start([]string{"--egress-allow", elsewhere})
			if err != nil {
				t.Fatal(err)
			}
			c := clientOf(url)
			o.ID, o.Isolation = "a", isolation
			if _, err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			test(t, h, c)
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func clientOf(url string) *sdk.Client {
	return sdk.New(url, sdk.WithHTTPClient(&http.Client{Timeout: patience}))
}

// sh runs a line of shell in the sandbox and returns what it printed.
func sh(t *testing.T, c *sdk.Client, line string) sdk.Exec {
	t.Helper()
	e, err := c.Exec(t.Context(), "a", sdk.Shell(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return e
}

func wantGitError(t *testing.T, err error, code string) *sdk.GitError {
	t.Helper()
	var failed *sdk.GitError
	if !errors.As(err, &failed) || failed.Code != code {
		t.Errorf("error = %v (%+v), want %s", err, failed, code)
		return &sdk.GitError{}
	}
	return failed
}

// TestGit works on repositories of a real server on this machine, public and
// private, and looks for the credentials everywhere afterwards.
func TestGit(t *testing.T) {
	t.Parallel()
	const user, secret = "alice-the-user", "s3cr3t-pa55word"
	inIsolations(t, anyIsolation, sdk.CreateOptions{}, func(t *testing.T, h realHost, c *sdk.Client) {
		ctx := t.Context()
		public := gittest.New(t, gittest.Options{Address: elsewhere + ":0"})
		var once sync.Once
		listed := make(chan string, 1) // the commands of all processes, while git talks to the server
		private := gittest.New(t, gittest.Options{
			Address: elsewhere + ":0", Username: user, Password: secret,
			OnRequest: func() {
				once.Do(func() {
					e, err := c.Exec(context.WithoutCancel(ctx), "a", sdk.Shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))
					if err != nil {
						e.Stdout = err.Error()
					}
					listed <- e.Stdout
				})
			},
		})
		login := sdk.GitLogin{Username: user, Password: secret}

		cloned, err := c.GitClone(ctx, "a", sdk.GitCloneOptions{URL: public.Repo(t, "open.git")})
		if err != nil || cloned.Path != "/workspace/open" || cloned.Branch != "main" {
			t.Fatalf("clone = %+v, %v", cloned, err)
		}
		if e := sh(t, c, "cat open/README; git -C open log --format=%s; stat -c %U open/.git"); e.Stdout != "first line\nfirst commit\nsandbox\n" {
			t.Errorf("the clone has %q %q", e.Stdout, e.Stderr)
		}
		url := private.Repo(t, "team/closed.git")
		_, err = c.GitClone(ctx, "a", sdk.GitCloneOptions{URL: url, Dest: "no"})
		if f := wantGitError(t, err, "auth_required"); !strings.Contains(f.Hint, "token") {
			t.Errorf("the hint is %q", f.Hint)
		}
		_, err = c.GitClone(ctx, "a", sdk.GitCloneOptions{URL: url, Dest: "no", GitLogin: sdk.GitLogin{Username: user, Password: "wrong"}})
		wantGitError(t, err, "auth_failed")
		withLogin := strings.Replace(url, "://", "://"+user+":"+secret+"@", 1)
		if _, err := c.GitClone(ctx, "a", sdk.GitCloneOptions{URL: withLogin, Dest: "src/closed", Depth: 1}); err != nil {
			t.Fatal(err)
		}
		if commands := <-listed; !strings.Contains(commands, "git clone") || strings.Contains(commands, secret) || strings.Contains(commands, user) {
			t.Errorf("the processes of the sandbox: %q", commands)
		}

		// Work as an agent would, in the private clone.
		const dir = "src/closed"
		if _, err := c.Files("a").Write(ctx, "/workspace/src/closed/it's new.txt", strings.NewReader("text\n"), sdk.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if w, err := c.GitStatus(ctx, "a", dir); err != nil || len(w.Files) != 1 || w.Files[0].Path != "it's new.txt" || w.Files[0].WorkTree != "untracked" {
			t.Errorf("status = %+v, %v", w, err)
		}
		if _, err := c.GitCheckout(ctx, "a", sdk.GitCheckoutOptions{Path: dir, Name: "work", Create: true}); err != nil {
			t.Error(err)
		}
		made, err := c.GitCommit(ctx, "a", sdk.GitCommitOptions{Path: dir, Message: "it's done", All: true, AuthorName: "Agent Smith", AuthorEmail: "smith@example.com"})
		if err != nil || made.Subject != "it's done" || made.Author.Name != "Agent Smith" || made.Branch != "work" {
			t.Errorf("commit = %+v, %v", made, err)
		}
		pushed, err := c.GitPush(ctx, "a", sdk.GitPushOptions{Path: dir, GitLogin: sdk.GitLogin{Username: user, Token: secret}})
		if err != nil || len(pushed.Refs) != 1 || pushed.Refs[0].Status != "new" {
			t.Errorf("push = %+v, %v", pushed, err)
		}
		if got := strings.TrimSpace(private.Git(t, "team/closed.git", "log", "-1", "--format=%H %an %s", "work")); got != made.Commit+" Agent Smith it's done" {
			t.Errorf("the server has %q", got)
		}
		if _, err := c.GitPull(ctx, "a", sdk.GitPullOptions{Path: dir, GitLogin: login}); err != nil {
			t.Error(err)
		}

		// The identity of a commit that names none.
		sh(t, c, "echo two >> open/README")
		if d, err := c.GitDiff(ctx, "a", sdk.GitDiffOptions{Path: "open"}); err != nil || d.Additions != 1 || !strings.Contains(d.Patch, "+two") {
			t.Errorf("diff = %+v, %v", d, err)
		}
		made, err = c.GitCommit(ctx, "a", sdk.GitCommitOptions{Path: "open", Message: "two", Files: []string{"README"}})
		if err != nil || made.Author.Name == "" || made.Author.Email == "" {
			t.Errorf("commit = %+v, %v", made, err)
		}
		if l, err := c.GitLog(ctx, "a", sdk.GitLogOptions{Path: "open"}); err != nil || len(l) != 2 || l[0].Commit != made.Commit {
			t.Errorf("log = %+v, %v", l, err)
		}
		_, err = c.GitStatus(ctx, "a", "")
		wantGitError(t, err, "not_a_repository")
		_, err = c.GitStatus(ctx, "a", "nowhere")
		wantGitError(t, err, "no_directory")

		// Who is not allowed is told how to be.
		for _, scheme := range []string{"http", "https"} {
			_, err = c.GitClone(ctx, "a", sdk.GitCloneOptions{URL: scheme + "://127.0.0.3:1/r.git"})
			if f := wantGitError(t, err, "egress_denied"); !strings.Contains(f.Hint, "CUBBY_EGRESS_ALLOW") {
				t.Errorf("%s: the hint is %q", scheme, f.Hint)
			}
		}
		_, err = c.GitClone(ctx, "a", sdk.GitCloneOptions{URL: "http://" + elsewhere + ":1/r.git"})
		wantGitError(t, err, "unreachable")

		// Nothing on the host's side has the credentials, in memory images and
		// deleted files neither, and no answer of the API.
		execs, err := c.Execs(ctx, "a", 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		_, events := call(t, "GET", c.URL()+"/v1/sandboxes/a/events?limit=1000", "")
		_, history := call(t, "GET", c.URL()+"/v1/sandboxes/a/execs?limit=1000", "")
		for _, e := range execs {
			full, err := c.Process("a", e.Seq).Get(ctx)
			if err != nil {
				t.Fatal(err)
			}
			history += full.Stdout + full.Stderr + string(full.Result)
		}
		if _, err := c.Stop(ctx, "a", -1); err != nil {
			t.Fatal(err)
		}
		if err := h.stop(); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"events": events, "execs": history, "the daemon's log": h.Log()} {
			if strings.Contains(text, secret) || strings.Contains(text, user) {
				t.Errorf("the credentials are in %s", name)
			}
		}
		if !strings.Contains(history, `"kind":"git.push"`) {
			t.Errorf("no operation in %.2000s", history)
		}
		for _, what := range []string{secret, user} {
			if found := filesWith(t, h.Dir, what); found != nil {
				t.Errorf("%s is in %q", what, found)
			}
		}
		if filesWith(t, h.Dir, "it's new.txt") == nil {
			t.Error("the search finds nothing at all")
		}
	})
}

// filesWith returns the files below dir that have text in them.
func filesWith(t *testing.T, dir, text string) []string {
	t.Helper()
	unix.Sync() // what loop devices have still to write
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		has, err := fileHas(path, []byte(text))
		if has {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// fileHas reads what is not a hole of a file.
func fileHas(path string, text []byte) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for pos := int64(0); ; {
		data, err := unix.Seek(int(f.Fd()), pos, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return false, nil
		}
		if err == nil {
			pos = data
		}
		n, err := f.ReadAt(buf, pos)
		if bytes.Contains(buf[:n], text) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		pos += int64(n - len(text))
	}
}
