package packages

import (
	"regexp"
	"strings"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// ecosystem is what packages of a runtime are called, and their versions.
type ecosystem struct {
	installer string
	name      *regexp.Regexp
	named     string // what a name looks like, for people
	// exact matches one version, ranges what else may stand in its place; nil
	// is nothing else.
	exact, ranges *regexp.Regexp
	versioned     string // what a version looks like, for people
	// join makes the installer's argument of a name and a version that is not
	// empty.
	join func(name, version string, exact bool) string
}

const (
	pythonVersion = `v?[0-9][0-9A-Za-z]*([.!+_-][0-9A-Za-z]+)*`
	pythonClause  = `(==|!=|<=|>=|~=|<|>) ?` + pythonVersion + `(\.\*)?`
	nodeVersion   = `v?[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z.-]+)?`
	nodePartial   = `v?([0-9]+|[xX*])(\.([0-9]+|[xX*])){0,2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?`
	nodeClause    = `(\^|~|<=|>=|<|>|=)? ?` + nodePartial
)

var ecosystems = map[string]ecosystem{
	sandbox.RuntimePython: {
		installer: "pip",
		name:      regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`),
		named:     "letters, digits and . _ - between them",
		exact:     regexp.MustCompile(`^` + pythonVersion + `$`),
		ranges:    regexp.MustCompile(`^` + pythonClause + `( ?, ?` + pythonClause + `)*$`),
		versioned: `2.2.3, or a specifier as ">=2,<3"`,
		join: func(name, version string, exact bool) string {
			if exact {
				version = "==" + version
			}
			return name + strings.ReplaceAll(version, " ", "")
		},
	},
	sandbox.RuntimeNode: {
		installer: "npm",
		name:      regexp.MustCompile(`^(@[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`),
		named:     "letters, digits and . _ - between them, perhaps behind a scope as in @types/node",
		exact:     regexp.MustCompile(`^` + nodeVersion + `$`),
		// A range, several with "||", or a tag as "latest" or "next".
		ranges:    regexp.MustCompile(`^(` + nodeClause + `( ` + nodeClause + `)*( ?\|\| ?` + nodeClause + `( ` + nodeClause + `)*)*|[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*)$`),
		versioned: `4.17.21, a range as "^4.17.0", or a tag as "latest"`,
		join:      func(name, version string, _ bool) string { return name + "@" + version },
	},
	sandbox.RuntimeR: {
		installer: "install.packages",
		name:      regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.]*[A-Za-z0-9]$`),
		named:     "letters and digits with dots between them",
		exact:     regexp.MustCompile(`^[0-9]+([.-][0-9]+)+$`),
		versioned: "1.5.3, exactly",
		join:      func(name, version string, _ bool) string { return name + "@" + version },
	},
}

// argument is a package as the runtime's installer takes it.
func (e ecosystem) argument(name, version string) (string, error) {
	if len(name) > sandbox.MaxDependency || !e.name.MatchString(name) {
		return "", invalid("%.80q is not the name of a package that %s installs", name, e.installer).
			Hint("a name has at most %d characters: %s", sandbox.MaxDependency, e.named)
	}
	switch exact := e.exact.MatchString(version); {
	case version == "":
		return name, nil
	case len(version) > sandbox.MaxVersion, !exact && (e.ranges == nil || !e.ranges.MatchString(version)):
		return "", invalid("%.80q is not a version of %s that %s takes", version, name, e.installer).
			Hint("a version is like %s; an empty one is any", e.versioned)
	default:
		return e.join(name, version, exact), nil
	}
}
