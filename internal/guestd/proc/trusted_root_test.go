//go:build root

package proc

import (
	"os"
	"path/filepath"
	"testing"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

// Root's PATH began with a directory of the sandbox's user, also for the git that
// had the operator's token in its environment.
func TestRootsPathHasNoDirectoryOfAnotherUser(t *testing.T) {
	top := t.TempDir()
	make := func(name string, mode os.FileMode, uid, gid int) string {
		t.Helper()
		dir := filepath.Join(top, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	link := func(name, to string, uid int) string {
		t.Helper()
		at := filepath.Join(top, name)
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(at, uid, uid); err != nil {
			t.Fatal(err)
		}
		return at
	}
	own := make("own", 0o755, 0, 0)
	theirs := make("theirs", 0o755, 1000, 1000)
	open := make("open", 0o777, 0, 0)
	sticky := make("sticky", os.ModeSticky|0o777, 0, 0)
	for name, tt := range map[string]struct {
		dir  string
		safe bool
	}{
		"root's":                           {own, true},
		"through a link of root's":         {link("link", "own", 0), true},
		"below one that is sticky":         {make("sticky/own", 0o755, 0, 0), true},
		"nobody else can make it":          {filepath.Join(own, "none"), true},
		"with dots":                        {filepath.Join(top, "theirs") + "/../own", false},
		"another user's":                   {theirs, false},
		"below another user's":             {make("theirs/roots", 0o755, 0, 0), false},
		"another user can make it":         {filepath.Join(theirs, "none"), false},
		"everybody's":                      {open, false},
		"everybody's and sticky":           {sticky, false},
		"everybody can make it":            {filepath.Join(sticky, "none"), false},
		"of a group with the default user": {make("group", 0o775, 0, 1000), false},
		"a link of another user's":         {link("sticky/link", own, 1000), false},
		"a link to another user's":         {link("to", "theirs", 0), false},
		"a link to itself":                 {link("loop", "loop", 0), false},
		"relative":                         {"bin", false},
		"the current one":                  {".", false},
		"empty":                            {"", false},
	} {
		for _, boot := range [][]string{{"PATH=" + tt.dir + ":/usr/bin"}, nil} {
			start := new(guestv1.ExecStart)
			if boot == nil { // a command's own
				start.Env = []string{"PATH=" + tt.dir + ":/usr/bin"}
			}
			want := "/usr/bin"
			if tt.safe {
				want = tt.dir + ":/usr/bin"
			}
			if got, _ := LookupEnv(environment(boot, start, Account{name: "root", home: "/root"}), "PATH"); got != want {
				t.Errorf("%s: root's PATH is %q, want %q", name, got, want)
			}
			sandbox := Account{name: "sandbox", UID: 1000, GID: 1000, home: "/home/sandbox"}
			if got, _ := LookupEnv(environment(boot, start, sandbox), "PATH"); got != tt.dir+":/usr/bin" {
				t.Errorf("%s: the user's PATH is %q", name, got)
			}
		}
	}
	// A PATH of nothing would be the current directory.
	if got, _ := LookupEnv(environment([]string{"PATH=" + theirs}, new(guestv1.ExecStart), Account{name: "root"}), "PATH"); got != defaultPath {
		t.Errorf("without one directory that is safe it is %q", got)
	}
	for prefix, kept := range map[string]bool{own: true, theirs: false} {
		if _, ok := LookupEnv(environment([]string{"NPM_CONFIG_PREFIX=" + prefix}, new(guestv1.ExecStart), Account{name: "root"}), "NPM_CONFIG_PREFIX"); ok != kept {
			t.Errorf("root has npm's prefix %s: %v, want %v", prefix, ok, kept)
		}
	}
}
