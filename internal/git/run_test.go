package git_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/git"
)

// box runs operations as a sandbox would, with a home and a workspace of its
// own.
type box struct {
	t         *testing.T
	home, dir string
	path      string   // of programs; "" is the test's own
	env       []string // of the sandbox
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, home: t.TempDir(), dir: t.TempDir(), path: os.Getenv("PATH")}
	b.write(filepath.Join(b.home, ".gitconfig"), "[init]\n\tdefaultBranch = main\n")
	return b
}

// do runs an operation and returns its result.
func (b *box) do(op git.Operation) json.RawMessage {
	b.t.Helper()
	c, err := git.Make(op)
	if err != nil {
		b.t.Fatalf("Make(%+v) = %v", op, err)
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir = c.Cwd
	cmd.Env = append([]string{"PATH=" + b.path, "HOME=" + b.home, "GIT_CONFIG_NOSYSTEM=1"}, b.env...)
	for _, vars := range []map[string]string{c.Env, c.Secrets} {
		for name, value := range vars {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	code := 0
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			b.t.Fatal(err)
		}
		code = exit.ExitCode()
	}
	b.t.Logf("%s: exit code %d\n%s", c.Kind, code, stderr.String())
	return git.Result(c.Kind, code, stdout.Bytes(), stderr.Bytes())
}

// must runs an operation that does not fail and decodes its result.
func must[T any](b *box, op git.Operation) T {
	b.t.Helper()
	raw := b.do(op)
	var v struct {
		Error *git.Failure
	}
	if err := json.Unmarshal(raw, &v); err != nil || v.Error != nil {
		b.t.Fatalf("%T: %s", op, raw)
	}
	var out T
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		b.t.Fatalf("%T: %s: %v", op, raw, err)
	}
	return out
}

// fails runs an operation that fails for the reason given.
func (b *box) fails(op git.Operation, code string) git.Failure {
	b.t.Helper()
	raw := b.do(op)
	var v struct{ Error git.Failure }
	if err := json.Unmarshal(raw, &v); err != nil || v.Error.Code != code {
		b.t.Errorf("%T = %s, want the error %s", op, raw, code)
	}
	return v.Error
}

// git runs git itself.
func (b *box) git(args ...string) string {
	b.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = b.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.home, "GIT_CONFIG_NOSYSTEM=1", "EMAIL=box@example.com", "GIT_AUTHOR_NAME=Box", "GIT_COMMITTER_NAME=Box"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (b *box) write(path, text string) {
	b.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.dir, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// holds reports the files below the box that have a text in them.
func (b *box) holds(text string) []string {
	b.t.Helper()
	var found []string
	for _, dir := range []string{b.home, b.dir} {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
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
			b.t.Fatal(err)
		}
	}
	return found
}
