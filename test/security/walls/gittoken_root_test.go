//go:build root

package walls_test

import (
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/task"
	"github.com/cubbyhq/cubby/internal/git/gittest"
	"github.com/cubbyhq/cubby/test/harness"
)

// tokenThief is a coding agent that wants the token with which its work is pushed.
// Everything that it plants notes its environment and what it reads: programs in
// all directories of PATH that it may write to, hooks, settings of its repository
// and of its home with a file that they include, a helper for credentials, and a
// process that looks at the environment of all others.
const tokenThief = `echo '{"type":"text","part":{"id":"p","text":"made"}}'
echo made > made.txt
spy=/workspace/spy dirs=$PATH PATH=/usr/bin:/bin
printf '#!/bin/sh\n{ echo ran-as-$(/usr/bin/id -u); /usr/bin/env; } >> /tmp/seen\n[ ! -x /usr/bin/${0##*/} ] || exec /usr/bin/${0##*/} "$@"\n' > $spy
chmod 755 $spy
IFS=:
for dir in $dirs $HOME/.local/bin $HOME/.npm-global/bin /workspace /usr/local/bin; do
	mkdir -p "$dir" 2> /dev/null
	for name in git sh bash env sed mktemp rm ls cat git-remote-https git-remote-http; do cp $spy "$dir/$name" 2> /dev/null; done
done
unset IFS
for hook in pre-push pre-commit reference-transaction post-index-change; do cp $spy .git/hooks/$hook; done
git config core.fsmonitor $spy
git config core.hooksPath .git/hooks
git config core.sshCommand $spy
git config credential.helper "!$spy"
printf '[core]\n\tfsmonitor = %s\n\thooksPath = /workspace\n[credential]\n\thelper = !%s\n[http]\n\tcookieFile = /tmp/seen\n\tsaveCookies = true\n' $spy $spy > $HOME/included
printf '[include]\n\tpath = %s/included\n[includeIf "gitdir:/tmp/"]\n\tpath = %s/included\n' $HOME $HOME > $HOME/.gitconfig
mkdir -p $HOME/.config/git && cp $HOME/.gitconfig $HOME/.config/git/config
printf 'machine 127.0.0.2 login thief password thief\n' > $HOME/.netrc
for name in .profile .bashrc .bash_profile .shrc; do echo "$spy" > $HOME/$name; done
ln -s /tmp/seen /tmp/tmp.XXXXXXXXXX
setsid sh -c 'echo $$ > /tmp/watcher; while :; do cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; sleep 0.02; done >> /tmp/seen 2> /dev/null' > /dev/null 2>&1 < /dev/null &`

// A git, sh or mktemp of the sandbox's user had GIT_TOKEN in its environment: the
// push ran as root with that user's PATH.
func TestTheCodingAgentDoesNotGetTheGitToken(t *testing.T) {
	const user, token = "x-access-token", "ghp_s3cr3t-t0ken"
	server := gittest.New(t, gittest.Options{Address: "127.0.0.2:0", Username: user, Password: token})
	c := client.New(harness.Start(t, harness.Options{Flags: []string{"--egress-allow", "127.0.0.2"}}).URL)
	if _, err := c.SetSecret(t.Context(), "", "GIT_TOKEN", token); err != nil {
		t.Fatal(err)
	}
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			url := server.Repo(t, isolation+".git")
			b, err := c.Create(t.Context(), client.CreateOptions{Isolation: isolation, GitRemoteURL: url, Env: map[string]string{
				"HOME": "/home/sandbox", "TMPDIR": "/workspace", "PATH": "/workspace:/home/sandbox/.local/bin:bin:/home/sandbox/.npm-global/bin:/usr/bin:/bin",
			}})
			if err != nil {
				t.Fatal(err)
			}
			run := func(user, line string) string {
				t.Helper()
				x, err := c.Exec(t.Context(), b.ID, client.ExecOptions{Shell: line, User: user})
				if err != nil {
					t.Fatal(err)
				}
				return x.Stdout
			}
			if _, err := c.GitClone(t.Context(), b.ID, client.GitCloneOptions{URL: url, Dest: "app", GitLogin: client.GitLogin{Token: token}}); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"git", "sh", "env", "sed", "mktemp", "rm", "git-remote-http"} {
				if _, err := c.Files(b.ID).Write(t.Context(), "/usr/local/bin/"+name, strings.NewReader("#!/usr/bin/false\n"), client.WriteOptions{Mode: 0o755}); err != nil {
					t.Fatal(err)
				}
			}
			if owners := run("root", "/usr/bin/stat -c %u /usr/local/bin/* | /usr/bin/sort -u"); owners != "0\n" {
				t.Errorf("what a caller puts into /usr/local/bin belongs to %q", owners)
			}
			run("root", "/usr/bin/chown 1000 /usr/local/bin/*") // as in an image
			// The first plants it, and the second one's push meets all of it.
			for range 2 {
				done, err := c.Tasks(b.ID).Run(t.Context(), task.Options{Prompt: "x", Command: []string{"/bin/sh", "-c", tokenThief, "agent"}, Protocol: "json-lines", Cwd: "app"})
				if err != nil || done.Push == nil || !done.Push.OK {
					t.Fatalf("the task was not pushed: %v, %+v", err, done.Push)
				}
			}
			for _, line := range []string{"true", "git -C / status", "ls /; mktemp -d"} {
				run("root", line)
			}
			seen := run("root", "/bin/kill $(/bin/cat /tmp/watcher); /bin/tr '\\0' '\\n' < /tmp/seen | /usr/bin/sort -u")
			if !strings.Contains(seen, "PATH=") {
				t.Errorf("it saw nothing at all: %q", seen)
			}
			if strings.Contains(seen, token) {
				t.Error("it saw the token")
			}
			if strings.Contains(seen, "\nran-as-0\n") || !strings.Contains(seen, "\nran-as-1000\n") {
				t.Error("something of its own ran as root, or nothing ran")
			}
			if path := run("root", "echo $PATH"); path != "/usr/bin:/bin\n" {
				t.Errorf("root's PATH is %q", path)
			}
		})
	}
}

// Programs of a sandbox whose user is root read the environment of its every
// process.
func TestNoGitTokenIsGivenToAnAgentThatIsRoot(t *testing.T) {
	c := client.New(harness.Start(t, harness.Options{}).URL)
	if _, err := c.SetSecret(t.Context(), "", "GIT_TOKEN", "ghp_s3cr3t-t0ken"); err != nil {
		t.Fatal(err)
	}
	b, err := c.Create(t.Context(), client.CreateOptions{User: "0", GitRemoteURL: "https://git.example.com/app"})
	if err != nil {
		t.Fatal(err)
	}
	done, err := c.Tasks(b.ID).Run(t.Context(), task.Options{Prompt: "x", Command: []string{"sh", "-c", `echo '{"type":"text","part":{"id":"p","text":"made"}}'; echo made > made.txt`}, Protocol: "json-lines"})
	if err != nil {
		t.Fatal(err)
	}
	if done.Push == nil {
		t.Fatalf("it was not pushed at all: %+v", done)
	}
	if done.Push.OK || !strings.Contains(done.Push.Message, "root") {
		t.Errorf("its push: %+v", done.Push)
	}
}
