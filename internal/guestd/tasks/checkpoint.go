package tasks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	// maxFile and maxTree bound the files of a checkpoint, in bytes; maxFiles their
	// number. What is over them is left out.
	maxFile  = 50 << 20
	maxTree  = 2 << 30
	maxFiles = 200_000
	// maxNested bounds the repositories inside of the project that are read as
	// directories.
	maxNested = 100
	// gitPatience bounds one use of git.
	gitPatience = 2 * time.Minute
)

// private is what tasks keep below the home of their user. ~/.cubby is the agent's.
const private = ".local/share/cubby"

// leftOut are directories that no checkpoint has: what programs fetch and make.
var leftOut = []string{".git/", "node_modules/", "dist/", ".vite/", ".next/", "__pycache__/", ".venv/", "target/"}

// ofHome are those of a home, where it is the project: what programs keep there.
var ofHome = []string{"/.cubby/", "/.cache/", "/.npm/", "/.npm-global/", "/.local/", "/.config/", "/.bun/", "/.claude/", "/.claude.json", "/.codex/", "/.gemini/"}

// checkpoints keeps states of the files of a directory as commits of a bare
// repository of its own. It reads and changes nothing of the user's repository,
// and none of what a repository could bring runs: no hook, no filter, no monitor.
type checkpoints struct {
	git  string // the program
	dir  string // the repository
	tree string // the directory
	home string
	kids *children
}

// state is what a directory had at one moment.
type state struct {
	tree string // git's name
	// omitted are the files that are too large, or too many.
	omitted []string
}

// openCheckpoints makes the repository for a directory if need be. It is
// Unsupported without git.
func openCheckpoints(kids *children, env []string, home, dir string) (*checkpoints, error) {
	git, err := find("git", env, "/")
	if err != nil {
		return nil, errs.E(errs.Unsupported, "there is no git in the image").Because(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(dir))
	c := &checkpoints{git: git, tree: dir, home: home, kids: kids,
		dir: filepath.Join(home, private, "checkpoints", hex.EncodeToString(sum[:8])+".git")}
	return c, nil
}

// prepare makes the repository ready to be written.
func (c *checkpoints) prepare(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(c.dir, "HEAD")); err != nil {
		cmd := c.command(ctx, "init", "--quiet", "--bare", "--template=", c.dir)
		cmd.Env = slices.DeleteFunc(cmd.Env, func(kv string) bool {
			return strings.HasPrefix(kv, "GIT_DIR=") || strings.HasPrefix(kv, "GIT_WORK_TREE=")
		})
		if _, err := c.output(cmd, nil); err != nil {
			return err
		}
	}
	// Of a task that was killed.
	_ = os.Remove(filepath.Join(c.dir, "index.lock"))
	if err := os.MkdirAll(filepath.Join(c.dir, "info"), 0o700); err != nil {
		return err
	}
	// These attributes come before those of the project.
	return os.WriteFile(filepath.Join(c.dir, "info", "attributes"),
		[]byte("* -text !eol -filter -ident !working-tree-encoding !diff !merge !export-subst\n"), 0o600)
}

// command is git with nothing of the user's, or the project's, settings.
func (c *checkpoints) command(ctx context.Context, args ...string) *exec.Cmd {
	all := make([]string, 0, 64)
	for _, kv := range []string{
		"core.bare=false", "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.attributesFile=/dev/null",
		"core.excludesFile=/dev/null", "core.autocrlf=false", "core.eol=lf", "core.safecrlf=false", "core.symlinks=true", "core.fileMode=true",
		"core.ignoreCase=false", "core.precomposeUnicode=false", "core.quotePath=true", "core.protectNTFS=false", "core.protectHFS=false",
		"core.bigFileThreshold=4m", "core.logAllRefUpdates=false", "core.splitIndex=false", "core.sparseCheckout=false", "index.sparse=false",
		"submodule.recurse=false", "diff.external=", "gc.auto=0", "maintenance.auto=false", "commit.gpgSign=false", "protocol.allow=never", "pack.threads=1",
	} {
		all = append(all, "-c", kv)
	}
	all = append(all, args...)
	cmd := exec.CommandContext(ctx, c.git, all...)
	cmd.Dir = c.tree
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C", "TZ=UTC",
		"GIT_DIR=" + c.dir, "GIT_WORK_TREE=" + c.tree, "GIT_INDEX_FILE=" + filepath.Join(c.dir, "index"),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_AUTHOR_NAME=cubby", "GIT_AUTHOR_EMAIL=cubby@localhost", "GIT_COMMITTER_NAME=cubby", "GIT_COMMITTER_EMAIL=cubby@localhost",
	}
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs git to its end and returns what it prints.
func (c *checkpoints) run(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	cmd := c.command(ctx, args...)
	return c.output(cmd, in)
}

func (c *checkpoints) output(cmd *exec.Cmd, in io.Reader) ([]byte, error) {
	var out bytes.Buffer
	complaint := tailWriter{limit: 1 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &complaint
	if err := c.kids.run(cmd); err != nil {
		return nil, fmt.Errorf("git: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return out.Bytes(), nil
}

// snapshot reads the directory and returns its state, which stays until git's
// next cleaning unless a ref keeps it.
func (c *checkpoints) snapshot(ctx context.Context) (state, error) {
	names, omitted, err := c.files(ctx)
	if err != nil {
		return state{}, err
	}
	// What the index has and the list does not, is gone, ignored or left out.
	before, err := c.run(ctx, nil, "ls-files", "-z", "--cached")
	if err != nil {
		return state{}, err
	}
	in := make(map[string]bool, len(names))
	for _, name := range names {
		in[name] = true
	}
	var gone bytes.Buffer
	for name := range strings.SplitSeq(string(before), "\x00") {
		if name != "" && !in[name] {
			gone.WriteString(name + "\x00")
		}
	}
	if gone.Len() > 0 {
		if _, err := c.run(ctx, &gone, "update-index", "-z", "--force-remove", "--stdin"); err != nil {
			return state{}, err
		}
	}
	list := strings.NewReader(strings.Join(names, "\x00") + strings.Repeat("\x00", min(1, len(names))))
	if _, err := c.run(ctx, list, "update-index", "-z", "--add", "--remove", "--replace", "--stdin"); err != nil {
		return state{}, err
	}
	tree, err := c.run(ctx, nil, "write-tree")
	if err != nil {
		return state{}, err
	}
	return state{tree: strings.TrimSpace(string(tree)), omitted: omitted}, nil
}

// files lists what belongs to the directory's state, by paths below it.
func (c *checkpoints) files(ctx context.Context) (names, omitted []string, err error) {
	var total int64
	nested := 0
	for queue := []string{""}; len(queue) > 0; queue = queue[1:] {
		listed, err := c.list(ctx, queue[0])
		if err != nil {
			return nil, nil, err
		}
		for _, name := range listed {
			if dir, isRepository := strings.CutSuffix(name, "/"); isRepository {
				// Its files are the project's all the same.
				if nested++; nested <= maxNested {
					queue = append(queue, dir)
				} else {
					omitted = append(omitted, name)
				}
				continue
			}
			var st unix.Stat_t
			path := filepath.Join(c.tree, name)
			if unix.Lstat(path, &st) != nil || !storable(name, st.Mode) {
				continue
			}
			regular := st.Mode&unix.S_IFMT == unix.S_IFREG
			if regular && (st.Size > maxFile || total+st.Size > maxTree || unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK, unix.AT_EACCESS) != nil) || len(names) >= maxFiles {
				omitted = append(omitted, name)
				continue
			}
			if regular {
				total += st.Size
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), omitted, nil
}

// storable reports whether git can have a name: files and links, but nothing that
// it keeps for itself.
func storable(name string, mode uint32) bool {
	kind := mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFLNK {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, ".git") || kind == unix.S_IFLNK && strings.EqualFold(part, ".gitmodules") {
			return false
		}
	}
	return true
}

// list asks git which files a directory below the tree has that are not ignored.
// Repositories in it are single names that end with a slash.
func (c *checkpoints) list(ctx context.Context, dir string) ([]string, error) {
	args := []string{"ls-files", "-z", "--others", "--exclude-standard"}
	for _, p := range leftOut {
		args = append(args, "--exclude="+p)
	}
	if at := filepath.Join(c.tree, dir); at == c.home {
		for _, p := range ofHome {
			args = append(args, "--exclude="+p)
		}
	} else if own, err := filepath.Rel(at, filepath.Join(c.home, private)); err == nil && !strings.HasPrefix(own, "..") {
		args = append(args, "--exclude=/"+own+"/")
	}
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	cmd := c.command(ctx, args...)
	cmd.Dir = filepath.Join(c.tree, dir)
	// Not the index of the checkpoints: all files are strangers to this one.
	cmd.Env = append(cmd.Env, "GIT_WORK_TREE="+cmd.Dir, "GIT_INDEX_FILE="+filepath.Join(c.dir, "no-index"))
	out, err := c.output(cmd, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name != "" {
			names = append(names, filepath.Join(dir, name)+strings.Repeat("/", trailing(name)))
		}
	}
	return names, nil
}

func trailing(name string) int {
	if strings.HasSuffix(name, "/") {
		return 1
	}
	return 0
}

// keep makes a commit of a state, which stays for the task.
func (c *checkpoints) keep(ctx context.Context, s state, id string) (commit string, err error) {
	out, err := c.run(ctx, nil, "commit-tree", "-m", "before task "+id, s.tree)
	if err != nil {
		return "", err
	}
	commit = strings.TrimSpace(string(out))
	if _, err := c.run(ctx, nil, "update-ref", "refs/tasks/"+id, commit); err != nil {
		return "", err
	}
	return commit, nil
}

// take makes a checkpoint of the directory.
func (c *checkpoints) take(ctx context.Context, id string) (commit string, s state, err error) {
	if err := c.prepare(ctx); err != nil {
		return "", state{}, err
	}
	if s, err = c.snapshot(ctx); err != nil {
		return "", state{}, err
	}
	commit, err = c.keep(ctx, s, id)
	return commit, s, err
}

// lacks says what a state leaves out.
func (s state) lacks() string {
	if len(s.omitted) == 0 {
		return ""
	}
	const named = 3
	text := fmt.Sprintf("%d files are not in the checkpoint, because they are larger than %d MiB or the project is larger than %d GiB, or they cannot be read: ",
		len(s.omitted), maxFile>>20, maxTree>>30)
	for i, name := range s.omitted[:min(named, len(s.omitted))] {
		if i > 0 {
			text += ", "
		}
		text += runes(printable(name), maxToolField)
	}
	if len(s.omitted) > named {
		text += ", …"
	}
	return text
}
