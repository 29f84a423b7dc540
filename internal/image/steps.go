package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Steps are what a build does in a sandbox that is begun from the image so far:
// first npm's packages, then pip's, then the commands, each as root.
type Steps struct {
	NPM []string `json:"npm,omitempty" toml:"npm"` // for everybody, below /usr/local
	PIP []string `json:"pip,omitempty" toml:"pip"` // into the system's Python
	Run []string `json:"run,omitempty" toml:"run"` // texts for sh
	// Allow are the hosts that the commands of Run may reach; none by default.
	// npm and pip reach their registries and nothing else.
	Allow []string `json:"allow,omitempty" toml:"allow"`
}

// none reports whether there is nothing to do.
func (s Steps) none() bool { return len(s.NPM)+len(s.PIP)+len(s.Run) == 0 }

// Bounds of what a build is asked.
const (
	maxPackages = 200
	maxPackage  = 300 // bytes of a name with its version
	maxCommands = 100
	maxCommand  = 64 << 10
)

// check refuses what is no package, and what a command line would take for an
// option.
func (s Steps) check() error {
	for _, list := range []struct {
		key      string
		packages []string
		more     string // characters of a package beside letters and digits
	}{
		{"npm", s.NPM, "@/._-~^<>=*+| "}, {"pip", s.PIP, "._-[],<>=!~*+ "},
	} {
		if err := checkPackages(list.key, list.packages, list.more); err != nil {
			return err
		}
	}
	if len(s.Run) > maxCommands {
		return errs.E(errs.Invalid, "run: more than %d commands", maxCommands)
	}
	for _, c := range s.Run {
		if strings.TrimSpace(c) == "" || len(c) > maxCommand || strings.ContainsRune(c, 0) {
			return errs.E(errs.Invalid, "run: a command is empty, longer than %d bytes or holds a NUL", maxCommand)
		}
	}
	if len(s.Allow) > 0 && len(s.Run) == 0 {
		return errs.E(errs.Invalid, "allow: there is no command that could use a host").
			Hint("npm and pip reach their registries without it; give the hosts with a run step")
	}
	return nil
}

// checkPackages checks names with their versions, which follow no scheme here:
// no character has a meaning for a shell that is not used, and the first one
// is none of an option, a path or a URL.
func checkPackages(key string, packages []string, more string) error {
	if len(packages) > maxPackages {
		return errs.E(errs.Invalid, "%s: more than %d packages", key, maxPackages)
	}
	for _, p := range packages {
		_, p = forArchitecture(p)
		ok := p != "" && len(p) <= maxPackage && !strings.Contains(p, "//") && !strings.Contains(p, "..")
		for i, c := range []byte(p) {
			alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
			if !alnum && (strings.IndexByte(more, c) < 0 || i == 0 && c != '@') {
				ok = false
			}
		}
		// A slash is only in the name of a scope: @scope/name.
		if slash := strings.IndexByte(p, '/'); slash >= 0 && (p[0] != '@' || strings.Count(p, "/") > 1) {
			ok = false
		}
		if !ok {
			return errs.E(errs.Invalid, "%s: %.80q is not a package", key, p).
				Hint("write it as NAME or with its version: six==1.16.0 for pip, lodash@4.17.21 for npm, jq for apt")
		}
	}
	return nil
}

// forArchitecture splits "amd64:name": the package is only for that
// architecture, in Go's words.
func forArchitecture(p string) (arch, name string) {
	if arch, name, ok := strings.Cut(p, ":"); ok && (arch == "amd64" || arch == "arm64") {
		return arch, name
	}
	return "", p
}

// here is the packages of a list for the architecture of this host.
func here(packages []string) []string {
	var out []string
	for _, p := range packages {
		if arch, name := forArchitecture(p); arch == "" || arch == runtime.GOARCH {
			out = append(out, name)
		}
	}
	return out
}

// onThisHost is the steps without what is for other architectures.
func (s Steps) onThisHost() Steps {
	s.NPM, s.PIP = here(s.NPM), here(s.PIP)
	return s
}

// stepsKey changes with the steps, and with the image that they begin from.
func stepsKey(from string, rounds []Steps, env []string) string {
	text, _ := json.Marshal([]any{"cubby steps 1", runtime.GOARCH, from, rounds, env, targetsKey()}) // strings only
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
