package git

import (
	"path"
	"strconv"
	"strings"
)

// Clone copies a repository into the sandbox.
type Clone struct {
	Path   string // Dest is relative to it; default the workspace
	URL    string // http, https, or the absolute path of a repository in the sandbox
	Branch string // or tag; default the remote's
	Depth  int    // commits; 0 is all
	Dest   string // default the last part of the URL
	Login  Credentials
}

// Cloned is the result of a [Clone].
type Cloned struct {
	Path   string `json:"path"`
	Branch string `json:"branch"` // "" when a tag was asked for
	Commit string `json:"commit"` // "" in an empty repository
}

func (Clone) Name() string { return "clone" }

func (c Clone) plan() (plan, error) {
	from, origin, login, err := remoteURL("url", c.URL, c.Login)
	if err != nil {
		return plan{}, err
	}
	base, err := directory(c.Path)
	if err != nil {
		return plan{}, err
	}
	dest := c.Dest
	if dest == "" {
		dest = nameOf(from)
	}
	if dest == "" || len(dest) > maxPath || strings.ContainsRune(dest, 0) || strings.HasPrefix(dest, "-") {
		return plan{}, invalid("dest: not a path").Hint("give the directory that the clone makes")
	}
	into := dest
	if !path.IsAbs(dest) {
		into, dest = "./"+dest, path.Join(base, dest)
	}
	dest = path.Clean(dest)
	if c.Depth < 0 || c.Depth > maxDepth {
		return plan{}, invalid("depth: between 0 and %d", maxDepth)
	}
	args := []string{dest, into}
	if c.Branch != "" {
		if err := validateRef("branch", c.Branch); err != nil {
			return plan{}, err
		}
		args = append(args, "--branch="+c.Branch)
	}
	if c.Depth > 0 {
		args = append(args, "--depth="+strconv.Itoa(c.Depth))
	}
	return plan{
		path: c.Path, login: login, origin: origin,
		argv: script("clone", cloneScript, append(args, "--", from)...),
		asked: struct {
			URL    string `json:"url"`
			Dest   string `json:"dest"`
			Branch string `json:"branch,omitempty"`
			Depth  int    `json:"depth,omitempty"`
		}{from, dest, c.Branch, c.Depth},
	}, nil
}

const maxDepth = 1_000_000_000

const cloneScript = headFunction + `
path=$1 into=$2
shift 2
git clone --progress "$@" "$into" >&2 || exit
cd -- "$into" || exit
printf '%s\0' "$path"
head
`

// nameOf is the directory that git would clone a URL into.
func nameOf(from string) string {
	_, rest, ok := strings.Cut(from, "://")
	if ok {
		if _, rest, ok = strings.Cut(rest, "/"); !ok {
			return ""
		}
	} else {
		rest = from
	}
	rest = strings.TrimSuffix(strings.TrimRight(rest, "/"), "/.git")
	name := strings.TrimSuffix(path.Base(strings.TrimRight(rest, "/")), ".git")
	if name == "." || name == ".." || name == "/" {
		return ""
	}
	return name
}

func parseClone(out []byte) (any, error) {
	f := fields{rest: out}
	c := Cloned{Path: f.next(), Branch: f.next(), Commit: f.next()}
	return c, f.end()
}
