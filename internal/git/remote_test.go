package git_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/git"
	"github.com/cubbyhq/cubby/internal/git/gittest"
)

const password = "s3cr3t-pa55word"

func TestCloneCommitPushPull(t *testing.T) {
	for _, private := range []bool{false, true} {
		name := "public"
		var o gittest.Options
		var login git.Credentials
		if private {
			name = "private"
			o = gittest.Options{Username: "alice", Password: password}
			login = git.Credentials{Username: "alice", Password: password}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := gittest.New(t, o)
			url := srv.Repo(t, "team/repo.git")
			b, other := newBox(t), newBox(t)

			c := must[git.Cloned](b, git.Clone{Path: b.dir, URL: url, Login: login})
			dir := filepath.Join(b.dir, "repo")
			if c.Path != dir || c.Branch != "main" || len(c.Commit) != 40 {
				t.Errorf("clone = %+v", c)
			}
			b.fails(git.Clone{Path: b.dir, URL: url, Login: login}, git.DestExists)
			b.fails(git.Clone{Path: b.dir, URL: url, Login: login, Dest: "x", Branch: "nosuch"}, git.RefNotFound)
			b.fails(git.Clone{Path: b.dir, URL: srv.URL + "/nosuch.git", Login: login}, git.RepoNotFound)

			theirs := filepath.Join(other.dir, "deep/er")
			must[git.Cloned](other, git.Clone{Path: other.dir, URL: url, Dest: "deep/er", Depth: 1, Branch: "main", Login: login})
			b.write(filepath.Join(dir, "new"), "text\n")
			made := must[git.Committed](b, git.Commit{Path: dir, Message: "second", All: true})
			p := must[git.Pushed](b, git.Push{Path: dir, Login: login})
			if p.Remote != "origin" || len(p.Refs) != 1 || p.Refs[0].Status != "updated" || p.Refs[0].To != "refs/heads/main" {
				t.Errorf("push = %+v", p)
			}
			if p = must[git.Pushed](b, git.Push{Path: dir, Login: login}); p.Refs[0].Status != "up_to_date" {
				t.Errorf("push again = %+v", p)
			}
			if got := strings.TrimSpace(srv.Git(t, "team/repo.git", "rev-parse", "main")); got != made.Commit {
				t.Errorf("the server has %s, pushed was %s", got, made.Commit)
			}

			// The other clone is behind, then beside, then in conflict.
			must[git.Head](other, git.Checkout{Path: theirs, Target: "side", Create: true})
			if p = must[git.Pushed](other, git.Push{Path: theirs, Login: login}); p.Refs[0].Status != "new" {
				t.Errorf("push of a new branch = %+v", p)
			}
			must[git.Head](other, git.Checkout{Path: theirs, Target: "main"})
			other.write(filepath.Join(theirs, "mine"), "text\n")
			must[git.Committed](other, git.Commit{Path: theirs, Message: "mine", All: true})
			if f := other.fails(git.Push{Path: theirs, Login: login}, git.NonFastForward); !strings.Contains(f.Hint, "pull") {
				t.Errorf("a push that is behind = %+v", f)
			}
			if pulled := must[git.Pulled](other, git.Pull{Path: theirs, Login: login}); !pulled.Updated || pulled.Branch != "main" || pulled.Before == pulled.Commit {
				t.Errorf("pull = %+v", pulled)
			}
			must[git.Pushed](other, git.Push{Path: theirs, Remote: "origin", Branch: "main", Login: login})
			if pulled := must[git.Pulled](b, git.Pull{Path: dir, Remote: "origin", Branch: "main", Login: login}); !pulled.Updated {
				t.Errorf("pull = %+v", pulled)
			}
			if pulled := must[git.Pulled](b, git.Pull{Path: dir, Login: login}); pulled.Updated {
				t.Errorf("pull of nothing = %+v", pulled)
			}
			br := must[git.Branches](b, git.Branch{Path: dir})
			if br.Current != "main" || !slices.ContainsFunc(br.Branches, func(i git.BranchInfo) bool { return i.Remote && i.Name == "origin/side" }) ||
				slices.ContainsFunc(br.Branches, func(i git.BranchInfo) bool { return i.Name == "origin/HEAD" }) {
				t.Errorf("branches = %+v", br)
			}

			b.write(filepath.Join(dir, "README"), "ours\n")
			must[git.Committed](b, git.Commit{Path: dir, Message: "ours", All: true})
			must[git.Pushed](b, git.Push{Path: dir, Login: login})
			other.write(filepath.Join(theirs, "README"), "theirs\n")
			must[git.Committed](other, git.Commit{Path: theirs, Message: "theirs", All: true})
			if f := other.fails(git.Pull{Path: theirs, Login: login}, git.Conflicted); !slices.Equal(f.Files, []string{"README"}) {
				t.Errorf("conflict = %+v", f)
			}
			w := must[git.WorkTree](other, git.Status{Path: theirs})
			if len(w.Files) != 1 || !w.Files[0].Conflict || w.Files[0].Path != "README" || w.Ahead != 1 || w.Behind != 1 || w.Upstream != "origin/main" {
				t.Errorf("status in a conflict = %+v", w)
			}
			if d := must[git.Changes](other, git.Diff{Path: theirs}); len(d.Files) != 1 || d.Files[0].Path != "README" || d.Files[0].Additions == 0 {
				t.Errorf("diff in a conflict = %+v", d)
			}
			other.write(filepath.Join(theirs, "README"), "both\n")
			merged := must[git.Committed](other, git.Commit{Path: theirs, Message: "merged", All: true})
			if len(merged.Parents) != 2 {
				t.Errorf("merge = %+v", merged)
			}
			must[git.Pushed](other, git.Push{Path: theirs, Login: login})

			b.write(filepath.Join(dir, "README"), "forced\n")
			must[git.Committed](b, git.Commit{Path: dir, Message: "forced", All: true})
			if p = must[git.Pushed](b, git.Push{Path: dir, Force: true, Login: login}); p.Refs[0].Status != "forced" {
				t.Errorf("forced push = %+v", p)
			}
			for _, x := range []*box{b, other} {
				if files := x.holds(password); files != nil {
					t.Errorf("the password is in %q", files)
				}
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	srv := gittest.New(t, gittest.Options{Username: "alice", Password: password})
	url := srv.Repo(t, "r.git")
	b := newBox(t)
	b.fails(git.Clone{Path: b.dir, URL: url}, git.AuthRequired)
	b.fails(git.Clone{Path: b.dir, URL: url, Login: git.Credentials{Username: "alice", Password: "wrong"}}, git.AuthFailed)
	b.fails(git.Clone{Path: b.dir, URL: url, Login: git.Credentials{Token: password}}, git.AuthFailed)
	if users := srv.Users(); users[len(users)-1] != "x-access-token" {
		t.Errorf("a token came as %q", users)
	}

	// A sandbox that keeps all passwords it is asked to keep.
	b.git("config", "--global", "credential.helper", "store")
	must[git.Cloned](b, git.Clone{Path: b.dir, URL: strings.Replace(url, "://", "://alice:"+password+"@", 1), Dest: "in-url"})
	must[git.Cloned](b, git.Clone{Path: b.dir, URL: strings.Replace(url, "://", "://alice@", 1), Dest: "name-in-url", Login: git.Credentials{Token: password}})
	must[git.Pulled](b, git.Pull{Path: filepath.Join(b.dir, "in-url"), Login: git.Credentials{Username: "alice", Token: password}})
	b.fails(git.Pull{Path: filepath.Join(b.dir, "in-url")}, git.AuthRequired)
	if files := b.holds(password); files != nil {
		t.Errorf("the password is in %q", files)
	}
	if files := b.holds("alice"); files != nil {
		t.Errorf("the user name is in %q", files)
	}

	// The sandbox's own helper serves operations that bring no credentials.
	b.write(filepath.Join(b.home, ".git-credentials"), strings.Replace(srv.URL, "://", "://alice:"+password+"@", 1)+"\n")
	must[git.Pulled](b, git.Pull{Path: filepath.Join(b.dir, "in-url")})
}

// TestCredentialsDoNotFollowRedirects: a server that sends git elsewhere does
// not get the credentials there.
func TestCredentialsDoNotFollowRedirects(t *testing.T) {
	thief := gittest.New(t, gittest.Options{Username: "somebody", Password: "else"})
	thief.Repo(t, "r.git")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL+r.URL.String(), http.StatusFound)
	}))
	defer srv.Close()
	b := newBox(t)
	login := git.Credentials{Username: "alice", Password: password}
	b.fails(git.Clone{Path: b.dir, URL: srv.URL + "/r.git", Login: login}, git.AuthRequired)
	b.git("init", "c")
	dir := filepath.Join(b.dir, "c")
	b.git("-C", dir, "remote", "add", "origin", srv.URL+"/r.git")
	b.fails(git.Pull{Path: dir, Branch: "main", Login: login}, git.AuthRequired)
	if users := thief.Users(); len(users) != 0 {
		t.Errorf("credentials for another host came from %q", users)
	}
}

// TestForbiddenTransports: what a repository's config says is no way around
// the list either.
func TestForbiddenTransports(t *testing.T) {
	b := newBox(t)
	b.git("init")
	b.git("config", "--global", "protocol.allow", "always")
	b.git("remote", "add", "origin", "ext::sh -c touch% "+b.dir+"/pwned")
	b.fails(git.Pull{Path: b.dir, Branch: "main"}, git.Protocol)
	if files, _ := filepath.Glob(filepath.Join(b.dir, "pwned")); files != nil {
		t.Error("a transport ran a command")
	}
}
