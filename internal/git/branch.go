package git

import "strings"

// Branch lists branches, after making one when Create names it.
type Branch struct {
	Path   string
	Create string
}

// Branches is the result of a [Branch].
type Branches struct {
	Current  string       `json:"current"` // "" when none is checked out
	Branches []BranchInfo `json:"branches"`
}

// BranchInfo is one branch.
type BranchInfo struct {
	Name     string `json:"name"` // "main"; "origin/main" of a remote one
	Commit   string `json:"commit"`
	Remote   bool   `json:"remote,omitempty"`
	Upstream string `json:"upstream,omitempty"`
	Ahead    int    `json:"ahead,omitempty"`
	Behind   int    `json:"behind,omitempty"`
}

func (Branch) Name() string { return "branch" }

func (b Branch) plan() (plan, error) {
	var args []string
	if b.Create != "" {
		if err := validateBranch("name", b.Create); err != nil {
			return plan{}, err
		}
		args = []string{b.Create}
	}
	return plan{
		path: b.Path, argv: script("branch", branchScript, args...),
		asked: struct {
			Path string `json:"path,omitempty"`
			Name string `json:"name,omitempty"`
		}{b.Path, b.Create},
	}, nil
}

const branchScript = `
if [ $# != 0 ]; then git branch -- "$1" >&2 || exit; fi
printf '%s\0' "$(git symbolic-ref -q --short HEAD)"
git for-each-ref --count=1000 --format='%(refname)%00%(objectname)%00%(symref)%00%(upstream:short)%00%(upstream:track,nobracket)%00' refs/heads refs/remotes
`

func parseBranch(out []byte) (any, error) {
	f := fields{rest: out}
	b := Branches{Current: f.next(), Branches: []BranchInfo{}}
	for !f.empty() {
		ref := f.next()
		info := BranchInfo{Commit: f.next()}
		symbolic := f.next()
		info.Upstream = f.next()
		for part := range strings.SplitSeq(f.next(), ", ") {
			switch word, n, _ := strings.Cut(part, " "); word {
			case "ahead":
				info.Ahead = count(n)
			case "behind":
				info.Behind = count(n)
			}
		}
		if f.bad || len(f.rest) == 0 || f.rest[0] != '\n' {
			return nil, errMalformed
		}
		f.rest = f.rest[1:]
		if symbolic != "" {
			continue
		}
		var local bool
		if info.Name, local = strings.CutPrefix(ref, "refs/heads/"); !local {
			if info.Name, info.Remote = strings.CutPrefix(ref, "refs/remotes/"); !info.Remote {
				return nil, errMalformed
			}
		}
		b.Branches = append(b.Branches, info)
	}
	return b, f.end()
}

// Checkout switches to a branch, a tag or a commit.
type Checkout struct {
	Path   string
	Target string
	Create bool // make the branch first, where HEAD is
}

// Head is what is checked out, and the result of a [Checkout].
type Head struct {
	Branch string `json:"branch"` // "" when it is no branch
	Commit string `json:"commit"` // "" before the first one
}

func (Checkout) Name() string { return "checkout" }

func (c Checkout) plan() (plan, error) {
	mode := "switch"
	err := validateRef("name", c.Target)
	if c.Create {
		mode, err = "create", validateBranch("name", c.Target)
	}
	if err != nil {
		return plan{}, err
	}
	return plan{
		path: c.Path, argv: script("checkout", checkoutScript, mode, c.Target),
		asked: struct {
			Path   string `json:"path,omitempty"`
			Name   string `json:"name"`
			Create bool   `json:"create,omitempty"`
		}{c.Path, c.Target, c.Create},
	}, nil
}

const checkoutScript = headFunction + `
if [ "$1" = create ]; then git checkout -b "$2" >&2; else git checkout "$2" -- >&2; fi || exit
head
`

func parseCheckout(out []byte) (any, error) {
	f := fields{rest: out}
	return Head{Branch: f.next(), Commit: f.next()}, f.end()
}
