package git_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/git"
)

func (b *box) chmod(path string) {
	b.t.Helper()
	if err := os.Chmod(path, 0o755); err != nil {
		b.t.Fatal(err)
	}
}

func decodeFailure(t *testing.T, raw json.RawMessage) git.Failure {
	t.Helper()
	var v struct{ Error git.Failure }
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v.Error
}

func TestMakeRefuses(t *testing.T) {
	long := strings.Repeat("x", 1<<17)
	const ok = "https://example.com/r.git"
	tests := map[string]git.Operation{
		"no URL":                   git.Clone{},
		"ext":                      git.Clone{URL: "ext::sh -c touch% /tmp/x"},
		"ext that looks like http": git.Clone{URL: "ext::http://example.com/r"},
		"option as URL":            git.Clone{URL: "--upload-pack=touch /tmp/x"},
		"option as host":           git.Clone{URL: "https://-oProxyCommand=x/r.git"},
		"ssh":                      git.Clone{URL: "ssh://git@example.com/r.git"},
		"scp":                      git.Clone{URL: "git@example.com:r.git"},
		"git":                      git.Clone{URL: "git://example.com/r.git"},
		"ftp":                      git.Clone{URL: "ftp://example.com/r.git"},
		"relative path":            git.Clone{URL: "../r"},
		"file of another host":     git.Clone{URL: "file://host/r"},
		"newline in the URL":       git.Clone{URL: "https://example.com/r\nx"},
		"space in the URL":         git.Clone{URL: "https://example.com/r x"},
		"query":                    git.Clone{URL: "https://example.com/r?access_token=1"},
		"fragment":                 git.Clone{URL: "https://example.com/r#x"},
		"wildcard host":            git.Clone{URL: "https://*.example.com/r"},
		"no host":                  git.Clone{URL: "https:///r"},
		"no name":                  git.Clone{URL: "https://example.com"},
		"long URL":                 git.Clone{URL: ok + long},
		"dest":                     git.Clone{URL: ok, Dest: "--template=x"},
		"dest with NUL":            git.Clone{URL: ok, Dest: "a\x00b"},
		"branch":                   git.Clone{URL: ok, Branch: "--upload-pack=x"},
		"depth":                    git.Clone{URL: ok, Depth: -1},
		"two passwords":            git.Clone{URL: ok, Login: git.Credentials{Username: "a", Password: "b", Token: "c"}},
		"no name for a password":   git.Clone{URL: ok, Login: git.Credentials{Password: "b"}},
		"newline in a password":    git.Clone{URL: ok, Login: git.Credentials{Username: "a", Password: "b\nhost=x"}},
		"passwords at two places":  git.Clone{URL: "https://a:b@example.com/r", Login: git.Credentials{Token: "c"}},
		"names at two places":      git.Clone{URL: "https://a@example.com/r", Login: git.Credentials{Username: "c", Password: "d"}},
		"path":                     git.Status{Path: "a\x00b"},
		"nothing to add":           git.Add{},
		"all and files":            git.Add{All: true, Files: []string{"a"}},
		"empty file":               git.Diff{Files: []string{""}},
		"many files":               git.Add{Files: make([]string, 1001)},
		"long names":               git.Add{Files: slices.Repeat([]string{strings.Repeat("x", 4000)}, 100)},
		"no message":               git.Commit{Message: " \n"},
		"long message":             git.Commit{Message: long},
		"author":                   git.Commit{Message: "m", AuthorName: "a\nb"},
		"author's address":         git.Commit{Message: "m", AuthorEmail: "<a>"},
		"branch option":            git.Branch{Create: "-D"},
		"branch dots":              git.Branch{Create: "a..b"},
		"branch lock":              git.Branch{Create: "a.lock"},
		"branch HEAD":              git.Branch{Create: "HEAD"},
		"checkout option":          git.Checkout{Target: "-f"},
		"checkout nothing":         git.Checkout{},
		"checkout new":             git.Checkout{Target: "a b", Create: true},
		"log option":               git.Log{Branch: "--output=/tmp/x"},
		"log limit":                git.Log{Limit: 1000},
		"pull option":              git.Pull{Remote: "--upload-pack=x"},
		"pull URL":                 git.Pull{Remote: "https://a:b@example.com/r"},
		"pull refspec":             git.Pull{Branch: "+a:b"},
		"push option":              git.Push{Remote: "-x"},
		"push delete":              git.Push{Branch: ":main"},
	}
	for name, op := range tests {
		c, err := git.Make(op)
		if !errors.Is(err, errs.Invalid) && !errors.Is(err, errs.TooLarge) {
			t.Errorf("%s: Make = %q, %v", name, c.Argv, err)
			continue
		}
		if info := errs.Public(err); strings.Contains(info.Message+info.Hint, "access_token") {
			t.Errorf("%s: the error repeats what it was given", name)
		}
	}
}

// TestSecretsHaveOnePlace: of all that Make returns only Secrets may hold them.
func TestSecretsHaveOnePlace(t *testing.T) {
	const secret = "p%40ss/w*rd"
	for _, op := range []git.Operation{
		git.Clone{URL: "https://alice:p%2540ss%2Fw*rd@example.com:8443/a/b.git"},
		git.Clone{URL: "https://example.com/a/b.git", Login: git.Credentials{Username: "alice", Password: secret}},
		git.Pull{Login: git.Credentials{Username: "alice", Token: secret}},
		git.Push{Login: git.Credentials{Username: "alice", Token: secret}},
	} {
		c, err := git.Make(op)
		if err != nil {
			t.Fatal(err)
		}
		if c.Secrets["CUBBY_GIT_PASSWORD"] != secret || c.Secrets["CUBBY_GIT_USERNAME"] != "alice" {
			t.Errorf("%T: the secrets are %q", op, c.Secrets)
		}
		c.Secrets = nil
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if s := string(text); strings.Contains(s, "ss/w") || strings.Contains(s, "alice") || strings.Contains(s, "%40") {
			t.Errorf("%T: a secret is in %s", op, s)
		}
	}
	c, err := git.Make(git.Clone{URL: "HTTPS://alice:x@Example.com/a/b.git/"})
	if err != nil || c.Cwd != "/workspace" || c.Kind != "git.clone" || string(c.Detail) != `{"url":"https://Example.com/a/b.git/","dest":"/workspace/b"}` {
		t.Errorf("Make = %+v, %v; detail %s", c, err, c.Detail)
	}
}

// TestResultOfNoWayOut: what git says where no proxy says it for the policy.
func TestResultOfNoWayOut(t *testing.T) {
	for stderr, want := range map[string]string{
		"fatal: unable to access 'https://h/x/': Could not resolve host: h\n":                         git.EgressDenied,
		"ssh: Could not resolve hostname h: Name or service not known\r\nfatal: Could not read\n":     git.EgressDenied,
		"ssh: Could not resolve hostname h: Temporary failure in name resolution\r\nfatal: Could\n":   git.Unreachable,
		"fatal: unable to access 'https://192.0.2.3/x/': GnuTLS, handshake failed: Access was denied": git.EgressDenied,
		"fatal: unable to access 'https://h/x/': Could not resolve proxy: p\n":                        git.Unreachable,
		"kex_exchange_identification: read: Connection reset by peer\n":                               git.Unreachable,
	} {
		if f := decodeFailure(t, git.Result("git.clone", 128, nil, []byte(stderr))); f.Code != want || f.Hint == "" {
			t.Errorf("%q is %+v, want %s", stderr, f, want)
		}
	}
}
