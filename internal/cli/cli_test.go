package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite golden files")

// result is what a user sees of one command.
type result struct {
	stdout, stderr string
	code           int
}

// cubby runs one command line against the daemon at url.
func cubby(t *testing.T, url string, stdin io.Reader, args ...string) result {
	t.Helper()
	return cubbyEnv(t, []string{"CUBBY_URL=" + url}, stdin, nil, args...)
}

func cubbyEnv(t *testing.T, environ []string, stdin io.Reader, signals <-chan os.Signal, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Main(context.Background(), Env{
		Args: args, Environ: environ, Stdin: stdin, Stdout: &stdout, Stderr: &stderr, Signals: signals,
	})
	return result{stdout.String(), stderr.String(), code}
}

// golden compares with a file below testdata, or rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), go test -update rewrites it:\n%s", path, diff)
	}
}

// commands lists every command that people see.
func commands(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			list = append(list, commands(sub)...)
		}
	}
	return list
}

func TestHelp(t *testing.T) {
	for _, cmd := range commands((&app{}).root()) {
		words := strings.Fields(cmd.CommandPath())
		t.Run(strings.Join(words, "-"), func(t *testing.T) {
			res := cubby(t, "", nil, append(words[1:], "--help")...)
			if res.code != 0 || res.stderr != "" {
				t.Errorf("exit %d, stderr %q", res.code, res.stderr)
			}
			golden(t, "help/"+strings.Join(words, "-")+".txt", res.stdout)
		})
	}
}

// TestHelpIsWide: what does not fit on 100 columns is not read.
func TestHelpIsWide(t *testing.T) {
	for _, cmd := range commands((&app{}).root()) {
		if cmd.Short == "" || strings.ToLower(cmd.Short[:1]) != cmd.Short[:1] || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short help %q: want lower case without a full stop", cmd.CommandPath(), cmd.Short)
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if n := len([]rune(line)); n > 90 {
				t.Errorf("%s: a line of %d characters: %s", cmd.CommandPath(), n, line)
			}
		}
	}
}

// TestParentsKnowTheirCommands: a word that is no command of one that only has
// others is an error, and help shows what help of the command itself does.
func TestParentsKnowTheirCommands(t *testing.T) {
	parents := 0
	for _, cmd := range commands((&app{}).root()) {
		words := strings.Fields(cmd.CommandPath())[1:]
		help := cubby(t, "", nil, append(words, "--help")...)
		if res := cubby(t, "", nil, append([]string{"help"}, words...)...); res != help {
			t.Errorf("help %q: %+v, want %+v", words, res, help)
		}
		if !cmd.HasAvailableSubCommands() || cmd.ValidArgsFunction != nil {
			continue
		}
		parents++
		if res := cubby(t, "", nil, words...); cmd.Name() != "settings" && res != help { // which shows them
			t.Errorf("%q: %+v, want its help", words, res)
		}
		want := fmt.Sprintf("cubby: %s has no command \"xyzzy\"\n", cmd.CommandPath())
		if res := cubby(t, "", nil, append(words, "xyzzy")...); res.code != 2 || !strings.HasPrefix(res.stderr, want) {
			t.Errorf("%q xyzzy: %+v, want %q", words, res, want)
		}
	}
	if parents < 9 {
		t.Errorf("found %d commands that have others", parents)
	}
}

func TestExitCodes(t *testing.T) {
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(503)
		_, _ = io.WriteString(w, `{"error":{"code":"sandbox_capacity","message":"the host has no memory left","retryable":true}}`)
	}))
	defer full.Close()
	none := httptest.NewServer(nil)
	gone := none.URL
	none.Close()

	tests := []struct {
		name   string
		url    string
		args   []string
		code   int
		stderr string
	}{
		{"no daemon", gone, []string{"ls"}, 1, "cubby: no daemon answers at " + gone + "\n  start one with `cubby serve`, or set CUBBY_URL\n"},
		{"no daemon, run", gone, []string{"run", "--", "true"}, 125, "cubby: no daemon answers at " + gone + "\n  start one with `cubby serve`, or set CUBBY_URL\n"},
		{"no daemon, exec", gone, []string{"exec", "a", "true"}, 125, "cubby: no daemon answers at " + gone + "\n  start one with `cubby serve`, or set CUBBY_URL\n"},
		{"full host", full.URL, []string{"create"}, 1, "cubby: the host has no memory left\n  try again in 30s\n"},
		{"bad URL", "localhost:9090", []string{"ls"}, 1, "cubby: \"localhost:9090\" is not the URL of a daemon\n  write it as http://host:port\n"},
		{"unknown command", gone, []string{"xyzzy"}, 2, "cubby: cubby has no command \"xyzzy\"\n  cubby --help\n"},
		{"mistyped command", gone, []string{"creat"}, 2, "cubby: cubby has no command \"creat\"; did you mean \"create\"?\n  cubby --help\n"},
		{"exchanged letters", gone, []string{"image", "sl"}, 2, "cubby: cubby image has no command \"sl\"; did you mean \"ls\"?\n  cubby image --help\n"},
		{"mistyped flag", gone, []string{"create", "--memroy", "1GiB"}, 2, "cubby: unknown flag: --memroy; did you mean --memory?\n  cubby create --help\n"},
		{"mistyped command of a command that takes an id", gone, []string{"services", "lgos", "a"}, 2, "cubby: cubby services has no command \"lgos\"; did you mean \"logs\"?\n  cubby services --help\n"},
		{"two ids", gone, []string{"services", "a-box", "b-box"}, 2, "cubby: accepts 1 arg(s), received 2\n  cubby services --help\n"},
		{"help for a mistyped command", gone, []string{"help", "snapshto"}, 2, "cubby: cubby has no command \"snapshto\"; did you mean \"snapshot\"?\n  cubby --help\n"},
		{"help for a mistyped command of a command", gone, []string{"help", "services", "lgos"}, 2, "cubby: cubby services has no command \"lgos\"; did you mean \"logs\"?\n  cubby services --help\n"},
		{"help for no command", gone, []string{"help", "xyzzy"}, 2, "cubby: cubby has no command \"xyzzy\"\n  cubby --help\n"},
		{"mistyped flag after the id", gone, []string{"exec", "a", "--timeuot", "1s", "--", "true"}, 125, "cubby: unknown flag: --timeuot; did you mean --timeout?\n  cubby exec --help\n"},
		{"unknown flag", gone, []string{"ls", "--frob"}, 2, "cubby: unknown flag: --frob\n  cubby ls --help\n"},
		{"missing id", gone, []string{"get"}, 2, "cubby: accepts 1 arg(s), received 0\n  cubby get --help\n"},
		{"bad size", gone, []string{"create", "--memory", "much"}, 2, "cubby: invalid argument \"much\" for \"--memory\" flag: \"much\" is not a size: write 512MiB or 2GiB\n  cubby create --help\n"},
		{"bad label", gone, []string{"create", "-l", "x"}, 2, "cubby: label \"x\" is not KEY=VALUE\n  cubby create --help\n"},
		{"nothing to run", gone, []string{"run"}, 125, "cubby: which command? give it after --\n  cubby run --help\n"},
		{"nothing to exec", gone, []string{"exec", "a", "--"}, 125, "cubby: which command? give it after the id\n  cubby exec --help\n"},
		{"exec flag after the id", gone, []string{"exec", "a", "--frob", "--", "x"}, 125, "cubby: unknown flag: --frob\n  cubby exec --help\n"},
		{"rm of nothing", gone, []string{"rm"}, 2, "cubby: give ids, or --all, or --label\n  cubby rm --help\n"},
		{"rm of both", gone, []string{"rm", "--all", "a"}, 2, "cubby: give ids, or --all, or --label\n  cubby rm --help\n"},
		{"two local paths", gone, []string{"cp", "a", "b"}, 2, "cubby: write a path in a sandbox as ID:path; cubby copies nothing from here to here\n  cubby cp --help\n"},
		{"bad seq", gone, []string{"logs", "a", "x"}, 2, "cubby: \"x\" is not the number of a command\n  cubby logs --help\n"},
		{"bad setting", gone, []string{"serve", "--max-sandboxes", "many"}, 1, "cubby: max-sandboxes (from --max-sandboxes): \"many\" is not a whole number\n"},
		{"open to the world", gone, []string{"serve", "--listen", "0.0.0.0:1"}, 1, "cubby: listen: 0.0.0.0:1 is reachable from other machines and there are no tokens\n  set CUBBY_TOKENS=name:secret, or listen on 127.0.0.1\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := cubby(t, tt.url, nil, tt.args...)
			if res.code != tt.code {
				t.Errorf("cubby %q: exit %d, want %d", tt.args, res.code, tt.code)
			}
			if res.stderr != tt.stderr {
				t.Errorf("stderr %q, want %q", res.stderr, tt.stderr)
			}
			if res.stdout != "" {
				t.Errorf("stdout %q, want none", res.stdout)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	if res := cubby(t, "", nil, "version"); !strings.HasPrefix(res.stdout, "cubby ") || res.code != 0 {
		t.Errorf("got %+v", res)
	}
	if res := cubby(t, "", nil, "version", "--json"); !strings.Contains(res.stdout, `"version": "`) || res.code != 0 {
		t.Errorf("got %+v", res)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if res := cubby(t, "", nil, "completion", shell); res.code != 0 || len(res.stdout) < 1000 {
			t.Errorf("completion %s: exit %d, %d bytes", shell, res.code, len(res.stdout))
		}
	}
	if res := cubby(t, "", nil, "completion", "tcsh"); res.code != 2 {
		t.Errorf("completion tcsh: exit %d, want 2", res.code)
	}

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"sandboxes":[{"id":"one","status":"running","image":"base"},{"id":"two","status":"stopped","image":"r"}]}`)
	}))
	defer s.Close()
	const files, noFiles, noSpace = ":0\n", ":4\n", ":2\n" // what the shell does beside
	ids := "one\trunning base\ntwo\tstopped r\n"
	places := "one:\trunning base\ntwo:\tstopped r\n"
	for _, tt := range []struct{ line, want string }{
		{"exec ", ids + noFiles},
		{"exec one ", files},
		{"rm one ", ids + noFiles},
		{"cp ", places + noSpace},
		{"cp o", "one:\trunning base\n" + noSpace},
		{"cp file t", "two:\tstopped r\n" + noSpace},
		{"cp file one:a t", "two:\tstopped r\n" + noSpace}, // the last of several
		{"cp x", files},
		{"cp ./o", files},
		{"cp one:", files},
	} {
		args := append([]string{"__complete"}, strings.Split(tt.line, " ")...)
		if res := cubby(t, s.URL, nil, args...); res.stdout != tt.want {
			t.Errorf("cubby %s<Tab> = %q, want %q", tt.line, res.stdout, tt.want)
		}
	}
}

// TestTokenIsSent: from the environment, and never from a flag.
func TestTokenIsSent(t *testing.T) {
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		w.WriteHeader(401)
		_, _ = io.WriteString(w, `{"error":{"code":"unauthorized","message":"unknown token"}}`)
	}))
	defer s.Close()
	res := cubbyEnv(t, []string{"CUBBY_URL=http://127.0.0.1:1", "CUBBY_TOKEN=s3cret"}, nil, nil, "--url", s.URL, "ls")
	if got != "Bearer s3cret" {
		t.Errorf("Authorization %q", got)
	}
	if want := "cubby: unknown token\n  set CUBBY_TOKEN to one of the daemon's tokens\n"; res.stderr != want {
		t.Errorf("stderr %q, want %q", res.stderr, want)
	}
}
