package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cubbyhq/cubby/internal/cli/doctor"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestPrefixOfAnID: commands take the beginning of an id, and never one that
// somebody else's longer name begins with.
func TestPrefixOfAnID(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	do := func(args ...string) result {
		t.Helper()
		return cubby(t, d.URL, nil, args...)
	}
	made := strings.TrimSpace(do("create").stdout)
	for _, id := range []string{"web-one", "web-two", "data"} {
		if res := do("create", "--id", id); res.code != 0 {
			t.Fatalf("create: %+v", res)
		}
	}
	for _, tt := range []struct {
		args   []string
		code   int
		stdout string
		stderr string // a part of it
	}{
		{[]string{"exec", "dat", "echo", "here"}, 0, "here\n", ""},
		{[]string{"exec", "DAT", "echo", "here"}, 0, "here\n", ""},
		{[]string{"exec", made[:20], "echo", "here"}, 0, "here\n", ""},
		{[]string{"exec", "web", "true"}, 125, "", "2 sandboxes begin with \"web\": web-"},
		{[]string{"stop", "web-t"}, 0, "web-two\n", ""},
		{[]string{"stop", "nothing"}, 1, "", "nothing"},
		// A name is destroyed by the whole of it.
		{[]string{"rm", "dat"}, 1, "", "dat"},
		{[]string{"rm", made[:20]}, 0, made + "\n", ""},
		{[]string{"rm", "data"}, 0, "data\n", ""},
	} {
		res := do(tt.args...)
		if res.code != tt.code || res.stdout != tt.stdout || !strings.Contains(res.stderr, tt.stderr) {
			t.Errorf("%q: %+v, want %+v", tt.args, res, tt)
		}
	}
	// What was destroyed is not taken for another whose name begins so.
	if res := do("create", "--id", "data-2"); res.code != 0 {
		t.Fatalf("create: %+v", res)
	}
	if res := do("exec", "data", "true"); res.code != 125 || res.stdout != "" {
		t.Errorf("exec in a destroyed sandbox: %+v", res)
	}
}

// moreArgs are what commands need behind the id.
var moreArgs = map[string][]string{
	"exec": {"true"}, "install": {"six"}, "code": {"-c", "1"}, "egress explain": {"example.com"}, "egress set": {"--mode", "none"},
	"git checkout": {"x"}, "git clone": {"https://example.com/x"}, "git commit": {"-m", "x"}, "import": {os.Args[0]},
	"kernels interrupt": {"k"}, "kernels restart": {"k"}, "kernels rm": {"k"}, "port-forward": {"3000"}, "task run": {"x"}, "task cancel": {"1"}, "task restore": {"1"}, "task answer": {"1", "q", "o"}, "services logs": {"web"}, "services restart": {"web"}, "services start": {"web"}, "services stop": {"web"}, "rollback": {"point"}, "url": {"3000"},
}

// TestWhatTakesIDs: everything that takes the id of a sandbox takes a prefix of
// one: arguments, flags, and places of the form ID:path.
func TestWhatTakesIDs(t *testing.T) {
	const prefix, whole = "01j00000000000000000", "01j00000000000000000000000"
	var mu sync.Mutex
	var asked []string // guarded by mu
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		asked = append(asked, r.URL.String()+" "+string(body))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/v1/sandboxes":
			_, _ = io.WriteString(w, `{"sandboxes":[{"id":"`+whole+`","status":"running"}]}`)
		case "/v1/snapshots":
			_, _ = io.WriteString(w, `{"snapshots":[]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":{"code":"not_found","message":"no such sandbox"}}`)
		}
	}))
	defer srv.Close()
	finds := func(args ...string) {
		t.Helper()
		mu.Lock()
		asked = nil
		mu.Unlock()
		res := cubby(t, srv.URL, nil, args...)
		mu.Lock()
		defer mu.Unlock()
		if !slices.ContainsFunc(asked, func(request string) bool { return strings.Contains(request, whole) }) {
			t.Errorf("%q does not take the beginning of an id: it asked %q: %+v", args, asked, res)
		}
	}

	here := filepath.Join(t.TempDir(), "x")
	places := map[string][][]string{ // of the form ID:path
		"cp": {{prefix + ":x", here}, {os.Args[0], prefix + ":x"}}, "import": {{"a-box", prefix + ":x"}},
	}
	flags := map[string][]string{"snapshot ls --sandbox": nil}                          // and what is needed beside them
	chosen := map[string]bool{"create --id": true, "run --id": true, "fork --id": true} // ids of new sandboxes
	place := regexp.MustCompile(`\b(ID|OTHER):[A-Za-z]`)
	foundArgs, foundFlags := 0, 0
	for _, cmd := range commands((&app{}).root()) {
		path := strings.TrimPrefix(cmd.CommandPath(), "cubby ")
		if cmd.ValidArgsFunction != nil && idArgs(cmd.Use) == 0 && path != "cp" { // which takes places only
			t.Errorf("%s: its usage %q does not say that it takes an ID", path, cmd.Use)
		}
		if idArgs(cmd.Use) != 0 {
			foundArgs++
			finds(slices.Concat(strings.Fields(path), []string{prefix}, moreArgs[path])...)
		}
		if place.MatchString(cmd.Use+" "+cmd.Long) != (places[path] != nil) {
			t.Errorf("%s: takes places in sandboxes, and is not tried, or does not", path)
		}
		for _, args := range places[path] {
			finds(append(strings.Fields(path), args...)...)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name := path + " --" + f.Name
			what, _ := pflag.UnquoteUsage(f)
			more, ok := flags[name]
			if what != "ID" && !ok || chosen[name] {
				return
			}
			foundFlags++
			finds(slices.Concat(strings.Fields(path), []string{"--" + f.Name, prefix}, more)...)
		})
	}
	if foundArgs < 40 || foundFlags != len(flags) {
		t.Errorf("found %d commands, and %d flags of %d", foundArgs, foundFlags, len(flags))
	}
}

func TestTypos(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"create", "creat", 1}, {"sl", "ls", 1}, {"memroy", "memory", 1}, {"exec", "events", 4}} {
		if got := typos(tt.a, tt.b); got != tt.want {
			t.Errorf("typos(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestCopySeveral: several sources, and between sandboxes.
func TestCopySeveral(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	do := func(args ...string) result {
		t.Helper()
		return cubby(t, d.URL, nil, args...)
	}
	for _, id := range []string{"one", "two"} {
		if res := do("create", "--id", id); res.code != 0 {
			t.Fatalf("create: %+v", res)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	ok := func(args ...string) {
		t.Helper()
		if res := do(args...); res != (result{}) {
			t.Errorf("%q: %+v", args, res)
		}
	}
	ok("cp", a, b, "one:")
	if res := do("exec", "one", "mkdir", "-p", "tree/deep"); res.code != 0 {
		t.Fatalf("mkdir: %+v", res)
	}
	ok("cp", "one:a", "one:b", a, "one:tree/deep")
	ok("cp", "one:tree", "tw:") // a prefix
	ok("cp", "one:a", "two:renamed")
	ok("cp", "one:tree/.", "two:flat")
	if res := do("exec", "two", "--", "sh", "-c", "cat tree/deep/a tree/deep/b renamed flat/deep/b"); res.stdout != "abab" {
		t.Errorf("in two: %+v", res)
	}
	for _, tt := range []struct{ args, reason string }{
		{a + " " + b + " one:file", "file is no directory of one"},
		{"one:a one:b " + a, a + " is no directory"},
		{"one:a none:", "no such sandbox"},
	} {
		if res := do(append([]string{"cp"}, strings.Fields(tt.args)...)...); res.code != 1 || !strings.Contains(res.stderr, tt.reason) {
			t.Errorf("cp %s: %+v, want exit 1 and %q", tt.args, res, tt.reason)
		}
	}
	res := do("__complete", "cp", "o")
	if !strings.HasPrefix(res.stdout, "one:") || strings.Contains(res.stdout, "two:") {
		t.Errorf("completion of o: %q", res.stdout)
	}
}

// TestExecOfALine: what was meant for a shell and given as a program says how.
func TestExecOfALine(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	if res := cubby(t, d.URL, nil, "create", "--id", "box"); res.code != 0 {
		t.Fatalf("create: %+v", res)
	}
	res := cubby(t, d.URL, nil, "exec", "box", "echo a | cat")
	if res.code != 127 || !strings.Contains(res.stderr, "for a line of shell: sh -c 'echo a | cat'") {
		t.Errorf("exec of a line: %+v", res)
	}
	if res := cubby(t, d.URL, nil, "exec", "box", "no-such-program"); strings.Contains(res.stderr, "line of shell") {
		t.Errorf("exec of a program: %+v", res)
	}
	// The history says which command it was.
	res = cubby(t, d.URL, nil, "events", "box")
	if got := strings.Count(res.stdout, "`echo a | cat`") + strings.Count(res.stdout, "`'echo a | cat'`"); got == 0 {
		t.Errorf("events: %s", res.stdout)
	}
}

// TestImagesOfTheDaemon: the images are those of the daemon that was named.
func TestImagesOfTheDaemon(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	res := cubby(t, d.URL, nil, "image", "ls")
	if res.code != 0 || !strings.Contains(res.stdout, "base") {
		t.Errorf("image ls: %+v", res)
	}
	here := cubby(t, d.URL, nil, "image", "ls", "--image-dir", t.TempDir())
	if strings.Contains(here.stdout, "base") {
		t.Errorf("image ls --image-dir: %+v", here)
	}
	if res := cubby(t, "http://127.0.0.1:9", nil, "image", "ls"); res.code != 1 || !strings.Contains(res.stderr, "no daemon answers at http://127.0.0.1:9") {
		t.Errorf("image ls of a daemon that is not there: %+v", res)
	}
}

// TestDoctorAsksTheDaemon: images and readiness are those of the daemon that was
// named, which may be on another machine.
func TestDoctorAsksTheDaemon(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	examine := func(url string, args ...string) map[string]doctor.Check {
		t.Helper()
		res := cubbyEnv(t, []string{"CUBBY_URL=" + url, "CUBBY_DATA_DIR=" + t.TempDir()}, nil, nil, append([]string{"doctor", "--no-boot", "--json"}, args...)...)
		var checks []doctor.Check
		if err := json.Unmarshal([]byte(res.stdout), &checks); err != nil {
			t.Fatalf("%v: %+v", err, res)
		}
		byName := map[string]doctor.Check{}
		for _, c := range checks {
			if c.Group == "Images and daemon" {
				byName[c.Name] = c
			}
		}
		return byName
	}
	there := examine(d.URL)
	if c := there["images"]; c.Verdict != doctor.Good || c.Detail != "base at "+d.URL {
		t.Errorf("images: %+v", c)
	}
	if c := there["daemon"]; c.Verdict != doctor.Good || c.Detail != "ready at "+d.URL {
		t.Errorf("daemon: %+v", c)
	}
	if c := examine(d.URL, "--image-dir", t.TempDir())["images"]; c.Verdict != doctor.Warned || strings.Contains(c.Detail, d.URL) {
		t.Errorf("images of a directory that was named: %+v", c)
	}
	gone := examine("http://127.0.0.1:9")
	if c := gone["daemon"]; c.Verdict != doctor.Warned || !strings.Contains(c.Detail, "no daemon answers at http://127.0.0.1:9") {
		t.Errorf("a daemon that is not there: %+v", c)
	}
	if c := gone["images"]; c.Verdict == doctor.Good {
		t.Errorf("images of a daemon that is not there: %+v", c)
	}
}

// TestGoneSandboxInTheCommandLine: every command that takes an id says what
// became of the sandbox that had it.
func TestGoneSandboxInTheCommandLine(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	for _, args := range [][]string{{"create", "--id", "gone"}, {"rm", "gone"}} {
		if res := cubby(t, d.URL, nil, args...); res.code != 0 {
			t.Fatalf("%q: %+v", args, res)
		}
	}
	history := map[string]bool{ // is kept
		"events": true, "logs": true, "task ls": true, "task get": true, "task logs": true, "task cancel": true, "task answer": true, "task restore": true,
	}
	terminal := map[string]bool{"shell": true} // is the first that it asks for
	asked := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "cubby ")
		if cmd.ValidArgsFunction == nil || idArgs(cmd.Use) == 0 || history[path] || terminal[path] {
			return
		}
		asked++
		args := append(strings.Fields(path), "gone")
		res := cubby(t, d.URL, nil, append(args, moreArgs[path]...)...)
		if res.code == 0 || !strings.Contains(res.stderr, "destroyed ") {
			t.Errorf("%q: %+v", append(args, moreArgs[path]...), res)
		}
	}
	walk((&app{}).root())
	for _, args := range [][]string{{"cp", "gone:/workspace/x", t.TempDir()}, {"cp", os.Args[0], "gone:x"}} {
		if res := cubby(t, d.URL, nil, args...); res.code == 0 || !strings.Contains(res.stderr, "destroyed ") {
			t.Errorf("%q: %+v", args, res)
		}
	}
	if asked < 15 {
		t.Errorf("%d commands were asked", asked)
	}
}
