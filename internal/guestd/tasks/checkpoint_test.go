package tasks

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/task"
)

// project is a directory with its checkpoints.
type project struct {
	t         *testing.T
	dir, home string
	points    *checkpoints
}

func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{t: t, dir: t.TempDir(), home: t.TempDir()}
	points, err := openCheckpoints(&children{own: make(map[int]bool)}, os.Environ(), p.home, p.dir)
	if err != nil {
		t.Fatal(err)
	}
	p.points = points
	return p
}

func (p *project) write(name, text string) {
	p.t.Helper()
	at := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *project) read(name string) string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return "no file"
	}
	return string(text)
}

func (p *project) remove(name string) {
	p.t.Helper()
	if err := os.RemoveAll(filepath.Join(p.dir, name)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *project) link(target, name string) {
	p.t.Helper()
	if err := os.Symlink(target, filepath.Join(p.dir, name)); err != nil {
		p.t.Fatal(err)
	}
}

// git is the user's own.
func (p *project) git(args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "git", args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "HOME="+p.home, "GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@x", "GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@x")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (p *project) take(id string) (commit string, s state) {
	p.t.Helper()
	commit, s, err := p.points.take(p.t.Context(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	return commit, s
}

// changed is what differs from a state, as status and path.
func (p *project) changed(from state) []string {
	p.t.Helper()
	to, err := p.points.snapshot(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	diffs, err := p.points.compare(p.t.Context(), from.tree, to.tree, newRedactor(nil, nil))
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, d := range diffs {
		names = append(names, d.Status+" "+d.Path)
	}
	return names
}

func (p *project) restore(commit string) []string {
	p.t.Helper()
	files, err := p.points.restore(p.t.Context(), commit)
	if err != nil {
		p.t.Fatal(err)
	}
	return files
}

func TestCheckpointAndRestore(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("kept.txt", "as it was\n")
	p.write("changed.txt", "before\r\n")
	p.write("removed/deep.txt", "it was here\n")
	p.write("ignored.log", "old log\n")
	p.write(".gitignore", "*.log\n")
	p.write("turned", "a file\n")
	p.write("run.sh", "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(p.dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	commit, before := p.take("t1")
	if got := p.changed(before); len(got) > 0 {
		t.Errorf("nothing changed but %q", got)
	}

	p.write("changed.txt", "after\n")
	p.remove("removed")
	p.write("ignored.log", "new log\n")
	p.write("added/new.txt", "new\n")
	p.write("node_modules/x/index.js", "fetched\n")
	p.remove("turned")
	p.write("turned/now-a-directory", "x\n")
	if err := os.Chmod(filepath.Join(p.dir, "run.sh"), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{"added added/new.txt", "modified changed.txt", "deleted removed/deep.txt", "modified run.sh", "deleted turned", "added turned/now-a-directory"}
	if got := p.changed(before); !slices.Equal(got, want) {
		t.Errorf("changes: %q, want %q", got, want)
	}

	if got, want := p.restore(commit), []string{"added/new.txt", "changed.txt", "removed/deep.txt", "run.sh", "turned", "turned/now-a-directory"}; !slices.Equal(got, want) {
		t.Errorf("restored: %q, want %q", got, want)
	}
	for name, want := range map[string]string{
		"kept.txt": "as it was\n", "changed.txt": "before\r\n", "removed/deep.txt": "it was here\n", "ignored.log": "new log\n",
		"added/new.txt": "no file", "node_modules/x/index.js": "fetched\n", "turned": "a file\n",
	} {
		if got := p.read(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if st, err := os.Stat(filepath.Join(p.dir, "run.sh")); err != nil || st.Mode().Perm()&0o100 == 0 {
		t.Errorf("run.sh: %v, %v", st.Mode(), err)
	}
	if got := p.restore(commit); len(got) > 0 {
		t.Errorf("restored again: %q", got)
	}
}

// The user's repository is as it was, with what is staged in it.
func TestCheckpointLeavesTheRepositoryAlone(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.git("init", "-q")
	p.write("a.txt", "committed\n")
	p.git("add", "-A")
	p.git("commit", "-qm", "first")
	p.write("a.txt", "staged\n")
	p.git("add", "a.txt")
	p.write("a.txt", "written\n")
	look := func() string {
		return p.git("status", "--porcelain=v2", "--branch") + p.git("rev-list", "--all", "--objects") + p.git("count-objects", "-v") +
			p.git("ls-files", "--stage") + p.git("for-each-ref") + p.git("config", "--local", "--list") + p.git("reflog")
	}
	before := look()
	commit, _ := p.take("t1")
	p.write("a.txt", "by the agent\n")
	p.restore(commit)
	if got := p.read("a.txt"); got != "written\n" {
		t.Errorf("a.txt: %q", got)
	}
	if after := look(); after != before {
		t.Errorf("the repository was\n%s\nand is\n%s", before, after)
	}
}

// Nothing that a repository can bring runs: hooks, filters, monitors, drivers, and
// the settings of the user.
func TestCheckpointRunsNothingOfTheRepository(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	mark := filepath.Join(t.TempDir(), "ran")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$0 $*\" >> "+mark+"\ncat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	settings := func(run ...string) {
		for _, kv := range [][2]string{
			{"core.fsmonitor", script}, {"core.hooksPath", filepath.Dir(script)}, {"filter.evil.clean", script}, {"filter.evil.smudge", script},
			{"filter.evil.process", script}, {"filter.evil.required", "true"}, {"diff.evil.command", script}, {"diff.evil.textconv", script},
			{"diff.external", script}, {"core.pager", script}, {"core.sshCommand", script}, {"core.editor", script}, {"core.attributesFile", filepath.Join(p.dir, ".gitattributes")},
		} {
			p.git(append(run, kv[0], kv[1])...)
		}
	}
	p.git("init", "-q")
	p.git("init", "-q", "nested")
	settings("config")
	settings("config", "--global")
	settings("-C", "nested", "config")
	for _, hook := range []string{"pre-commit", "post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman", "pre-auto-gc"} {
		for _, dir := range []string{p.dir, filepath.Join(p.dir, "nested")} {
			text, _ := os.ReadFile(script)
			if err := os.WriteFile(filepath.Join(dir, ".git/hooks", hook), text, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.write(".gitattributes", "* filter=evil diff=evil text eol=crlf ident working-tree-encoding=UTF-16 merge=evil\n[attr]binary filter=evil\n")
	p.write("nested/.gitattributes", "* filter=evil diff=evil\n")
	p.write(".gitmodules", "[submodule \"nested\"]\n\tpath = nested\n\turl = ext::"+script+"\n\tupdate = !"+script+"\n")
	p.write("a.txt", "one $Id$\r\ntwo\n")
	p.write("nested/b.txt", "of a repository in the project\n")
	commit, before := p.take("t1")
	p.write("a.txt", "three\n")
	p.write("nested/b.txt", "changed\n")
	if got, want := p.changed(before), []string{"modified a.txt", "modified nested/b.txt"}; !slices.Equal(got, want) {
		t.Errorf("changes: %q, want %q", got, want)
	}
	p.restore(commit)
	if got := p.read("a.txt") + p.read("nested/b.txt"); got != "one $Id$\r\ntwo\nof a repository in the project\n" {
		t.Errorf("restored: %q", got)
	}
	if text, err := os.ReadFile(mark); err == nil {
		t.Errorf("something ran:\n%s", text)
	}
	// The traps are real ones.
	cmd := exec.CommandContext(t.Context(), "git", "status")
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "HOME="+p.home)
	_ = cmd.Run()
	if _, err := os.Stat(mark); err != nil {
		t.Error("the user's git runs nothing either")
	}
}

// Links are kept as links, and nothing is written or removed through one.
func TestCheckpointFollowsNoLink(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("outside\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.link(outside, "out")
	p.link("/etc/passwd", "passwd")
	p.link("nowhere", "broken")
	p.write("dir/file", "inside\n")
	commit, before := p.take("t1")
	if got := p.points.text(t, before.tree); !slices.Equal(got, []string{"broken", "dir/file", "out", "passwd"}) {
		t.Errorf("files: %q", got)
	}
	p.remove("dir")
	p.link(outside, "dir")
	p.remove("passwd")
	p.write("passwd", "mine\n")
	p.restore(commit)
	if text, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || string(text) != "outside\n" {
		t.Errorf("the file outside: %q, %v", text, err)
	}
	if got := p.read("dir/file"); got != "inside\n" {
		t.Errorf("dir/file: %q", got)
	}
	if target, err := os.Readlink(filepath.Join(p.dir, "passwd")); err != nil || target != "/etc/passwd" {
		t.Errorf("passwd: %q, %v", target, err)
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("outside: %v", entries)
	}
}

// text lists the names in a tree.
func (c *checkpoints) text(t *testing.T, tree string) []string {
	t.Helper()
	out, err := c.run(t.Context(), nil, "ls-tree", "-r", "-z", "--name-only", tree)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// Any name that a file can have is kept, but for those that git cannot have.
func TestCheckpointOfStrangeNames(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	names := []string{"new\nline", "tab\t", `quote"s`, `back\slash`, "-dash", "--help", ":(glob)*", "*", "[a]", "!not", "#hash", "\xff\xfe", "ü", "git~1", " space ", "con", "a:b", "\"", "diff --git a b"}
	for _, name := range names {
		p.write(name, name)
	}
	for _, name := range []string{".GIT/config", "sub/.Git/hooks/post-checkout"} {
		p.write(name, "hidden")
	}
	p.link("a", ".gitmodules")
	commit, before := p.take("t1")
	slices.Sort(names)
	if got := p.points.text(t, before.tree); !slices.Equal(got, names) {
		t.Errorf("files: %q, want %q", got, names)
	}
	for _, name := range names {
		p.write(name, "changed")
	}
	if got := p.changed(before); len(got) != len(names) || !slices.Contains(got, `modified \xff\xfe`) {
		t.Errorf("changes: %q", got)
	}
	p.restore(commit)
	for _, name := range names {
		if got := p.read(name); got != name {
			t.Errorf("%q: %q", name, got)
		}
	}
}

func TestCheckpointLeavesOutWhatIsFetched(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write(".gitignore", "!dist\n!node_modules\n/build\n")
	for _, name := range []string{"dist/a", "node_modules/a", "sub/node_modules/a", ".vite/a", ".next/a", "__pycache__/a", ".venv/a", "target/a", "build/a", "src/a", "sub/build/a"} {
		p.write(name, "x")
	}
	if err := os.Truncate(filepath.Join(p.dir, "src/a"), maxFile+1); err != nil {
		t.Fatal(err)
	}
	_, s := p.take("t1")
	if got, want := p.points.text(t, s.tree), []string{".gitignore", "sub/build/a"}; !slices.Equal(got, want) {
		t.Errorf("files: %q, want %q", got, want)
	}
	if lacks := s.lacks(); !slices.Equal(s.omitted, []string{"src/a"}) || !strings.Contains(lacks, "src/a") {
		t.Errorf("omitted: %q: %s", s.omitted, lacks)
	}
}

// The home can be the project: what cubby and the agents keep there is no part of
// it.
func TestCheckpointOfTheHome(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	points, err := openCheckpoints(&children{own: make(map[int]bool)}, os.Environ(), home, home)
	if err != nil {
		t.Fatal(err)
	}
	p := &project{t: t, dir: home, home: home, points: points}
	p.write("a.txt", "a")
	p.write(".config/opencode/x", "x")
	p.write(".claude.json", "x")
	_, s := p.take("t1")
	if got, want := p.points.text(t, s.tree), []string{"a.txt"}; !slices.Equal(got, want) {
		t.Errorf("files: %q, want %q", got, want)
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("a.txt", "a")
	none := strings.Repeat("0", 40)
	if _, err := p.points.restore(t.Context(), none); err == nil {
		t.Error("there is no checkpoint at all")
	}
	_, s := p.take("t1")
	for _, commit := range []string{none, "HEAD", "refs/tasks/t1", "--help", "", s.tree} {
		if _, err := p.points.restore(t.Context(), commit); err == nil {
			t.Errorf("%q was restored", commit)
		}
	}
	if got := p.read("a.txt"); got != "a" {
		t.Errorf("a.txt: %q", got)
	}
}

func TestDiffsAreBounded(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("binary", "a\x00b")
	p.write("turned", "a file\n")
	_, before := p.take("t1")
	p.write("binary", "a\x00c")
	p.write("long.js", strings.Repeat("x", 200<<10)+"\ndiff --git a/fake b/fake\n")
	p.write("small", "diff --git a/small b/small\nBinary files a and b differ\n")
	p.remove("turned")
	p.link("small", "turned")
	p.write("z", "the last\n")
	after, err := p.points.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	diffs, err := p.points.compare(t.Context(), before.tree, after.tree, newRedactor(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	byPath := make(map[string]task.Diff)
	for _, d := range diffs {
		byPath[d.Path] = d
	}
	if d := byPath["binary"]; len(diffs) != 5 || !d.Binary || d.Patch != "" {
		t.Errorf("binary: %+v", d)
	}
	if d := byPath["long.js"]; !d.Truncated || len(d.Patch) > maxPatch || len(d.Patch) < maxPatch-4 {
		t.Errorf("long.js: %d bytes, truncated: %t", len(d.Patch), d.Truncated)
	}
	if d := byPath["small"]; d.Truncated || d.Binary || !strings.Contains(d.Patch, "+Binary files a and b differ\n") {
		t.Errorf("small: %+v", d)
	}
	if d := byPath["turned"]; d.Status != "modified" || !strings.Contains(d.Patch, "-a file\n") || !strings.Contains(d.Patch, "+small\n") {
		t.Errorf("turned: %+v", d)
	}
	if d := byPath["z"]; !strings.Contains(d.Patch, "+the last\n") {
		t.Errorf("z: %+v", d)
	}

	for i := range 1100 {
		p.write("many/"+strings.Repeat("n", i%20)+string(rune('a'+i%26))+strings.Repeat("m", i/26), strings.Repeat("text\n", 1000))
	}
	if after, err = p.points.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diffs, err = p.points.compare(t.Context(), before.tree, after.tree, newRedactor(nil, nil)); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, d := range diffs {
		total += len(d.Patch)
	}
	if len(diffs) != maxChanged || total > maxPatches || !diffs[maxChanged-1].Truncated {
		t.Errorf("%d files, %d bytes of patches, the last: %+v", len(diffs), total, diffs[len(diffs)-1])
	}
}

// An image without git has no checkpoints, and its tasks go on.
func TestTaskWithoutGit(t *testing.T) {
	t.Parallel()
	r := start(t, "work", task.Order{Prompt: "x"}, map[string]string{"PATH": t.TempDir()})
	if result := r.result(); result.Status != task.Succeeded || result.Checkpoint != "" || !strings.Contains(result.CheckpointMessage, "no git") {
		t.Errorf("result: %+v", result)
	}
}

func TestRestoreIsAProgram(t *testing.T) {
	t.Parallel()
	home, cwd := t.TempDir(), t.TempDir()
	result := start(t, "work", task.Order{Prompt: "x", Cwd: cwd}, map[string]string{"HOME": home}).result()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(commit string) (string, error) {
		cmd := exec.CommandContext(t.Context(), self, cwd, commit)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, roleEnv + "=restore"}
		out, err := cmd.Output()
		return string(out), err
	}
	if out, err := run(strings.Repeat("1", 40)); err == nil || out != "" {
		t.Errorf("a checkpoint that is none: %q, %v", out, err)
	}
	out, err := run(result.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	rec, ok := task.Read([]byte(out))
	var restored task.Restored
	if !ok || rec.Type != task.RestoredType || json.Unmarshal(rec.Data, &restored) != nil || !slices.Equal(restored.Files, []string{"hello.txt"}) {
		t.Errorf("restored: %s", out)
	}
	if _, err := os.Stat(filepath.Join(cwd, "hello.txt")); err == nil {
		t.Error("hello.txt is still there")
	}
}
