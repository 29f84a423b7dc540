package git_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/git"
)

// FuzzResult: whatever a sandbox prints, the result is JSON of a bounded size.
func FuzzResult(f *testing.F) {
	kinds := []string{"clone", "status", "diff", "add", "commit", "branch", "checkout", "log", "pull", "push"}
	for i, out := range []string{
		"/workspace/r\x00main\x0012ab\x00",
		"# branch.oid 12ab\x00# branch.head main\x00# branch.upstream origin/main\x00# branch.ab +1 -2\x001 .M N... 100644 100644 100644 1 2 a b\x002 R. N... 100644 100644 100644 1 2 R100 new\x00old\x00u UU N... 1 2 3 4 5 6 7 x\x00? new\x00",
		"1\t2\ta\x00-\t-\tbin\x000\t0\t\x00old\x00new\x00\x00diff --git a/a b/a\n",
		"", "main\x0012\x00\x00a\x00b\x002026-01-02T03:04:05+02:00\x00a\x00b\x00x\x00s\x00b\x00\n1\t0\ta\x00",
		"main\x00refs/heads/main\x0012\x00\x00origin/main\x00ahead 1, behind 2\x00\n", "\x0012\x00", "12\x00\x00a\x00b\x00c\x00a\x00b\x00c\x00s\x00b\x00\n",
		"12\x00main\x0034\x00README\x00", "origin\x00To http://x\n*\trefs/heads/a:refs/heads/a\t[new branch]\n!\ta:b\t[rejected] (fetch first)\nDone\n",
	} {
		f.Add(i, 0, []byte(out), []byte("fatal: not a git repository\n"))
		f.Add(i, 1, []byte(out), []byte("CONFLICT (content): x\n\r\x1b[31m"))
	}
	f.Fuzz(func(t *testing.T, kind, code int, stdout, stderr []byte) {
		kind = int(uint(kind) % uint(len(kinds)))
		raw := git.Result("git."+kinds[kind], code, stdout, stderr)
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if e, ok := v["error"].(map[string]any); ok && (e["code"] == "" || e["message"] == "") || code != 0 && !ok {
			t.Errorf("an error without words: %s", raw)
		}
	})
}

// FuzzURL: no URL becomes an option, another protocol or a stored secret.
func FuzzURL(f *testing.F) {
	for _, s := range []string{
		"https://example.com/r.git", "http://u:p@example.com:80/a/b", "ext::sh -c x", "--upload-pack=x", "file:///a", "/a/b", "git@h:r", "https://h/%2e%2e",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := git.Make(git.Clone{URL: raw})
		if err != nil {
			return
		}
		got := c.Argv[len(c.Argv)-1]
		if c.Argv[len(c.Argv)-2] != "--" {
			t.Errorf("%q: no end of options in %q", raw, c.Argv)
		}
		if strings.HasPrefix(got, "/") || strings.HasPrefix(got, "file:///") {
			return
		}
		u, err := url.Parse(got)
		if err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			t.Errorf("%q became %q", raw, got)
		}
	})
}
