package git_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/git"
)

// TestLocalLife is a repository's life without a remote, with names that would
// be something else to a shell, to git or to a careless parser.
func TestLocalLife(t *testing.T) {
	b := newBox(t)
	b.git("init")
	odd := []string{"-rf", "$(touch pwned)", "a b\tc", "new\nline", "*.txt", ":(exclude)x", "quote'\"", "ü", "sub dir/deep"}
	for _, name := range odd {
		b.write(name, "one\n")
	}
	b.write("other.txt", "one\n")

	w := must[git.WorkTree](b, git.Status{Path: b.dir})
	if w.Clean || w.Branch != "main" || w.Commit != "" || len(w.Files) != len(odd)+1 || w.Files[0].WorkTree != "untracked" {
		t.Errorf("the status before the first commit = %+v", w)
	}
	w = must[git.WorkTree](b, git.Add{Path: b.dir, Files: odd})
	var staged []string
	for _, f := range w.Files {
		if f.Index == "added" {
			staged = append(staged, f.Path)
		}
	}
	slices.Sort(staged)
	slices.Sort(odd)
	if diff := cmp.Diff(odd, staged); diff != "" {
		t.Errorf("what is staged (-want +got):\n%s", diff)
	}
	const message = "it's \"$(touch pwned)\" `touch pwned`\n\n-- the body\n"
	first := must[git.Committed](b, git.Commit{Path: b.dir, Message: message, AuthorName: `A "$(x)" B`, AuthorEmail: "a@example.com"})
	if first.Subject != "it's \"$(touch pwned)\" `touch pwned`" || first.Body != "-- the body" || first.Author.Name != `A "$(x)" B` ||
		first.Committer.Email != "a@example.com" || first.Author.Time.IsZero() || first.Branch != "main" || len(first.Parents) != 0 ||
		len(first.Changes.Files) != len(odd) || first.Changes.Additions != int64(len(odd)) {
		t.Errorf("the first commit = %+v", first)
	}
	if f := b.fails(git.Commit{Path: b.dir, Message: "again"}, git.NothingToCommit); f.Hint == "" {
		t.Error("nothing to commit has no hint")
	}
	second := must[git.Committed](b, git.Commit{Path: b.dir, Message: "all of it", All: true})
	if second.Author.Name != "Cubby Sandbox" || second.Author.Email != "sandbox@localhost" || len(second.Parents) != 1 || second.Parents[0] != first.Commit {
		t.Errorf("the second commit = %+v", second)
	}
	if w = must[git.WorkTree](b, git.Status{Path: b.dir}); !w.Clean || w.Commit != second.Commit {
		t.Errorf("the status after it = %+v", w)
	}

	// Changes: one in the index, one not, a rename and a binary file.
	b.git("mv", "other.txt", "renamed\tfile")
	b.write("ü", "one\ntwo\n")
	b.write("bin", "a\x00b")
	must[git.WorkTree](b, git.Add{Path: b.dir, Files: []string{"bin"}})
	d := must[git.Changes](b, git.Diff{Path: b.dir})
	if diff := cmp.Diff([]git.FileDiff{{Path: "ü", Additions: 1}}, d.Files); diff != "" {
		t.Errorf("the diff (-want +got):\n%s", diff)
	}
	d = must[git.Changes](b, git.Diff{Path: b.dir, Staged: true})
	if diff := cmp.Diff([]git.FileDiff{{Path: "bin", Binary: true}, {Path: "renamed\tfile", From: "other.txt"}}, d.Files); diff != "" {
		t.Errorf("the staged diff (-want +got):\n%s", diff)
	}
	if d = must[git.Changes](b, git.Diff{Path: b.dir, Files: []string{"*.txt", "-rf"}}); len(d.Files) != 0 {
		t.Errorf("a name was taken for a pattern: %+v", d)
	}
	w = must[git.WorkTree](b, git.Status{Path: b.dir})
	if diff := cmp.Diff([]git.FileStatus{
		{Path: "bin", Index: "added"}, {Path: "renamed\tfile", From: "other.txt", Index: "renamed"}, {Path: "ü", WorkTree: "modified"},
	}, w.Files); diff != "" {
		t.Errorf("the status (-want +got):\n%s", diff)
	}
	if files := b.holds("pwned"); len(files) == 0 {
		t.Error("the search finds nothing at all")
	}
	if _, err := filepath.Glob(filepath.Join(b.dir, "pwned")); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, "pwned")); left != nil {
		t.Error("a shell read what was an argument")
	}
}

func TestBranchesAndLog(t *testing.T) {
	b := newBox(t)
	b.git("init")
	br := must[git.Branches](b, git.Branch{Path: b.dir})
	if br.Current != "main" || len(br.Branches) != 0 {
		t.Errorf("the branches of an empty repository = %+v", br)
	}
	b.write("a", "1\n")
	one := must[git.Committed](b, git.Commit{Path: b.dir, Message: "one", All: true})
	br = must[git.Branches](b, git.Branch{Path: b.dir, Create: "feature/x"})
	if diff := cmp.Diff([]git.BranchInfo{{Name: "feature/x", Commit: one.Commit}, {Name: "main", Commit: one.Commit}}, br.Branches); diff != "" {
		t.Errorf("branches (-want +got):\n%s", diff)
	}
	b.fails(git.Branch{Path: b.dir, Create: "feature/x"}, git.BranchExists)
	h := must[git.Head](b, git.Checkout{Path: b.dir, Target: "feature/x"})
	if h.Branch != "feature/x" || h.Commit != one.Commit {
		t.Errorf("checkout = %+v", h)
	}
	if h = must[git.Head](b, git.Checkout{Path: b.dir, Target: "other", Create: true}); h.Branch != "other" {
		t.Errorf("checkout of a new branch = %+v", h)
	}
	b.write("a", "2\n")
	two := must[git.Committed](b, git.Commit{Path: b.dir, Message: "two\n\nwith\nlines", Files: []string{"a"}})
	b.write("a", "3\n")
	b.fails(git.Checkout{Path: b.dir, Target: "main"}, git.LocalChanges)
	b.fails(git.Checkout{Path: b.dir, Target: "nosuch"}, git.RefNotFound)
	b.git("checkout", "a")
	if h = must[git.Head](b, git.Checkout{Path: b.dir, Target: one.Commit}); h.Branch != "" || h.Commit != one.Commit {
		t.Errorf("checkout of a commit = %+v", h)
	}
	// A file of a branch's name is not meant.
	b.write("main", "a file\n")
	if h = must[git.Head](b, git.Checkout{Path: b.dir, Target: "main"}); h.Branch != "main" {
		t.Errorf("checkout of a branch that is a file too = %+v", h)
	}

	l := must[git.History](b, git.Log{Path: b.dir, Branch: "other"})
	if len(l.Commits) != 2 || l.Commits[0].Commit != two.Commit || l.Commits[0].Body != "with\nlines" || l.Commits[1].Commit != one.Commit {
		t.Errorf("log = %+v", l)
	}
	if l = must[git.History](b, git.Log{Path: b.dir, Branch: "other", Limit: 1}); len(l.Commits) != 1 {
		t.Errorf("log of 1 = %+v", l)
	}
	if l = must[git.History](b, git.Log{Path: b.dir, Files: []string{"nosuch"}}); len(l.Commits) != 0 {
		t.Errorf("log of a file that never was = %+v", l)
	}
	b.fails(git.Log{Path: b.dir, Branch: "nosuch"}, git.RefNotFound)
	b.fails(git.Add{Path: b.dir, Files: []string{"nosuch"}}, git.FileNotFound)
	b.fails(git.Status{Path: b.home}, git.NotARepository)
	b.fails(git.Push{Path: b.dir}, git.NoRemote)
	b.path = "/nonexistent"
}

// TestWithoutGit is an image that has a shell and no git.
func TestWithoutGit(t *testing.T) {
	if f := decodeFailure(t, git.Result("git.commit", 127, nil, []byte("sh: 3: git: not found\n"))); f.Code != git.NoGit || f.Hint == "" {
		t.Errorf("%+v", f)
	}
}

func TestIdentityOfTheSandboxWins(t *testing.T) {
	b := newBox(t)
	b.git("init")
	b.git("config", "user.name", "Own Name")
	b.git("config", "user.email", "own@example.com")
	b.write("a", "1\n")
	c := must[git.Committed](b, git.Commit{Path: b.dir, Message: "one", All: true})
	if c.Author.Name != "Own Name" || c.Committer.Email != "own@example.com" {
		t.Errorf("%+v", c)
	}
	b.write("a", "2\n")
	c = must[git.Committed](b, git.Commit{Path: b.dir, Message: "two", All: true, AuthorName: "Given"})
	if c.Author.Name != "Given" || c.Author.Email != "own@example.com" {
		t.Errorf("%+v", c)
	}
}

// TestHooksDoNotSpeakInResults: a hook may print what looks like a result.
func TestHooksDoNotSpeakInResults(t *testing.T) {
	b := newBox(t)
	b.git("init")
	hook := filepath.Join(b.dir, ".git/hooks/pre-commit")
	b.write(hook, "#!/bin/sh\necho 'main\tfaked'\nprintf 'x\\0y\\0'\n")
	b.chmod(hook)
	b.write("a", "1\n")
	c := must[git.Committed](b, git.Commit{Path: b.dir, Message: "one", All: true})
	if c.Branch != "main" || !strings.HasPrefix(b.git("log", "--format=%H"), c.Commit) {
		t.Errorf("%+v", c)
	}
	b.write(hook, "#!/bin/sh\necho no >&2\nexit 1\n")
	b.write("a", "2\n")
	b.fails(git.Commit{Path: b.dir, Message: "two", All: true}, git.Unclassified)
}
