package git_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/git"
	"github.com/cubbyhq/cubby/internal/git/gittest"
)

// What a directory holds is committed, into a repository that is made if there is
// none, and published without anything of that repository having a say: its hooks,
// its config and its credential helpers never see the credentials.
func TestPublishRunsNothingOfTheRepository(t *testing.T) {
	const user, password = "ada", "s3cret-token"
	server := gittest.New(t, gittest.Options{Username: user, Password: password})
	url := server.Repo(t, "app.git")
	login := git.Credentials{Username: user, Token: password}
	b := newBox(t)
	must[git.Cloned](b, git.Clone{Path: b.dir, URL: url, Dest: "app", Login: login})
	dir := filepath.Join(b.dir, "app")
	b.write(filepath.Join(dir, "index.html"), "<h1>hello</h1>\n")

	first := must[git.Recorded](b, git.Record{Path: dir, Branch: "main", Message: "task 1"})
	if again := must[git.Recorded](b, git.Record{Path: dir, Branch: "main", Message: "task 1"}); again != first {
		t.Errorf("nothing differs: %+v, then %+v", first, again)
	}
	seen := filepath.Join(b.home, "seen")
	spy := "#!/bin/sh\nenv >> " + seen + "\ncat >> " + seen + "\n"
	for _, hook := range []string{"pre-push", "reference-transaction", "post-update"} {
		path := filepath.Join(dir, ".git", "hooks", hook)
		b.write(path, spy)
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config, err := os.ReadFile(filepath.Join(dir, ".git", "config"))
	if err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(dir, ".git", "config"), string(config)+"[credential]\n\thelper = \"!cat >> "+seen+"; env >> "+seen+"\"\n"+
		"[core]\n\tfsmonitor = \"env >> "+seen+"\"\n\talternateRefsCommand = \"env >> "+seen+"\"\n[push]\n\tgpgSign = true\n[gpg]\n\tprogram = \"/bin/false\"\n"+
		"[url \"https://evil.invalid/\"]\n\tinsteadOf = "+server.URL+"\n")

	pushed := must[git.Pushed](b, git.Publish{URL: url, Branch: "main", Commit: first.Commit, Objects: first.Objects, Login: login})
	if len(pushed.Refs) != 1 || pushed.Refs[0].Status != "updated" {
		t.Errorf("publish = %+v", pushed)
	}
	if got := strings.TrimSpace(server.Git(t, "app.git", "rev-parse", "refs/heads/main")); got != first.Commit {
		t.Errorf("the remote has %s, not %s", got, first.Commit)
	}
	if text, err := os.ReadFile(seen); err == nil {
		t.Errorf("something of the repository ran: %s", text)
	}
	if files := b.holds(password); files != nil {
		t.Errorf("the token is in %q", files)
	}

	// Never by force.
	other := newBox(t)
	other.write(filepath.Join(other.dir, "other"), "x\n")
	theirs := must[git.Recorded](other, git.Record{Path: other.dir, Branch: "main", Message: "unrelated"})
	other.fails(git.Publish{URL: url, Branch: "main", Commit: theirs.Commit, Objects: theirs.Objects, Login: login}, git.NonFastForward)
	other.fails(git.Publish{URL: url, Branch: "main", Commit: theirs.Commit, Objects: theirs.Objects}, git.AuthRequired)
}

// Programs that the sandbox's user puts before those of the system, and what the
// sandbox's environment makes git and the loader run, had the token in their
// environment.
func TestPublishRunsTheSystemsProgramsOnly(t *testing.T) {
	const user, password = "ada", "s3cret-token"
	server := gittest.New(t, gittest.Options{Username: user, Password: password})
	url := server.Repo(t, "app.git")
	b := newBox(t)
	b.write("index.html", "<h1>hello</h1>\n")
	made := must[git.Recorded](b, git.Record{Path: b.dir, Branch: "main", Message: "task 1"})

	seen := filepath.Join(b.home, "seen")
	bin := filepath.Join(b.home, ".local", "bin")
	for _, name := range []string{"git", "sh", "env", "sed", "mktemp", "rm", "ls", "git-remote-http", "spy"} {
		path := filepath.Join(bin, name)
		b.write(path, "#!/bin/sh\n/usr/bin/env >> "+seen+"\nexit 1\n")
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spy := filepath.Join(bin, "spy")
	b.write(filepath.Join(b.home, "config"), "[core]\n\tfsmonitor = "+spy+"\n\thooksPath = "+bin+"\n[credential]\n\thelper = !"+spy+"\n")
	b.write(filepath.Join(b.home, ".netrc"), "machine 127.0.0.1 login x password y\n")
	b.path = bin + ":" + b.path
	b.env = []string{
		"GIT_EXEC_PATH=" + bin, "GIT_TEMPLATE_DIR=" + bin, "GIT_CONFIG_PARAMETERS='include.path=" + b.home + "/config'", "GIT_CONFIG_SYSTEM=" + b.home + "/config",
		"GIT_PROXY_COMMAND=" + spy, "GIT_SSH_COMMAND=" + spy, "GIT_EXTERNAL_DIFF=" + spy, "GIT_TRACE_CURL=" + seen, "GIT_TRACE2=" + seen,
		"GIT_DIR=" + b.dir + "/.git", "GIT_OBJECT_DIRECTORY=" + b.dir + "/.git/objects", "TMPDIR=" + b.home, "ENV=" + spy, "BASH_ENV=" + spy,
		"LD_PRELOAD=" + filepath.Join(bin, "missing.so"), "SHELLOPTS=braceexpand:xtrace", "TWO_LINES=a\nGIT_TRACE=b",
	}
	pushed := must[git.Pushed](b, git.Publish{URL: url, Branch: "task", Commit: made.Commit, Objects: made.Objects, Login: git.Credentials{Username: user, Token: password}})
	if len(pushed.Refs) != 1 || pushed.Refs[0].Status != "new" {
		t.Errorf("publish = %+v", pushed)
	}
	if text, err := os.ReadFile(seen); err == nil {
		t.Errorf("something of the user's ran, or was written: %s", text)
	}
}

func TestPublishTakesHashesOnly(t *testing.T) {
	good := git.Publish{URL: "https://example.com/app", Branch: "main", Commit: strings.Repeat("a", 40), Objects: "/workspace/.git/objects"}
	if _, err := git.Make(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*git.Publish){
		"an option":           func(p *git.Publish) { p.Commit = "--force" },
		"a name":              func(p *git.Publish) { p.Commit = "HEAD" },
		"a refspec":           func(p *git.Publish) { p.Commit = "+" + strings.Repeat("a", 39) },
		"two alternates":      func(p *git.Publish) { p.Objects = "/a\n/b" },
		"a relative path":     func(p *git.Publish) { p.Objects = "objects" },
		"a branch with colon": func(p *git.Publish) { p.Branch = "a:b" },
		"ssh":                 func(p *git.Publish) { p.URL = "ssh://example.com/app" },
	} {
		p := good
		change(&p)
		if _, err := git.Make(p); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
