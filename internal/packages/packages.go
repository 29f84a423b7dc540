// Package packages makes the commands that install packages in a sandbox, and
// typed results out of what they print. It runs nothing.
//
// Each runtime has one fixed program in its own language (python.py, node.cjs,
// r.R). What a caller gives is checked against the rules of the runtime's
// packages and travels as one argument of that program, never through a shell,
// and never where an option could stand.
package packages

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Kind is the kind of an exec that installs packages.
const Kind = "packages.install"

// Request asks for packages. The zero Runtime is Python.
type Request struct {
	Runtime string // one of sandbox's Runtime constants
	// Dependencies are names with versions. "" is any version: what is there
	// already, else the newest.
	Dependencies map[string]string
}

// Command is what carries a request out, and what is remembered of it.
type Command struct {
	Argv   []string
	Cwd    string // absolute
	Detail json.RawMessage
}

// Spec is the exec that runs the command.
func (c Command) Spec() sandbox.ExecSpec {
	return sandbox.ExecSpec{Kind: Kind, Argv: c.Argv, Cwd: c.Cwd, Detail: c.Detail}
}

//go:embed python.py
var pythonProgram string

//go:embed node.cjs
var nodeProgram string

//go:embed r.R
var rProgram string

// Make validates a request and returns its command. Errors are Invalid and
// name the package.
func Make(r Request) (Command, error) {
	if r.Runtime == "" {
		r.Runtime = sandbox.RuntimePython
	}
	if err := sandbox.ValidateRuntime(r.Runtime); err != nil {
		return Command{}, err
	}
	if len(r.Dependencies) == 0 {
		return Command{}, invalid("there is none").Hint(`give packages with their versions, as {"pandas":"2.2.3","matplotlib":""}`)
	}
	if len(r.Dependencies) > sandbox.MaxDependencies {
		return Command{}, invalid("more than %d", sandbox.MaxDependencies)
	}
	wanted := make([]requirement, 0, len(r.Dependencies))
	for _, name := range slices.Sorted(maps.Keys(r.Dependencies)) {
		argument, err := ecosystems[r.Runtime].argument(name, r.Dependencies[name])
		if err != nil {
			return Command{}, err
		}
		wanted = append(wanted, requirement{Name: name, Argument: argument})
	}
	detail, err := plainJSON(asked(r))
	if err != nil {
		return Command{}, err
	}
	list, err := plainJSON(wanted)
	if err != nil {
		return Command{}, err
	}
	// Only npm minds where it runs. The others would find modules and profiles
	// of the workspace there.
	c := Command{Cwd: "/", Detail: detail}
	switch r.Runtime {
	case sandbox.RuntimeNode:
		c.Argv, c.Cwd = []string{"node", "-e", nodeProgram, string(list)}, sandbox.WorkspaceDir
	case sandbox.RuntimeR:
		c.Argv = []string{"Rscript", "--no-save", "--no-restore", "--no-init-file", "-e", rProgram}
		for _, w := range wanted {
			c.Argv = append(c.Argv, w.Argument)
		}
	default:
		c.Argv = []string{"python3", "-c", pythonProgram, string(list)}
	}
	return c, nil
}

// Validate reports what [Make] would.
func (r Request) Validate() error {
	_, err := Make(r)
	return err
}

// requirement is a package as the programs get it.
type requirement struct {
	Name     string `json:"name"`
	Argument string `json:"argument"` // with its version, as the runtime's installer takes it
}

// asked is a request as histories show it.
type asked struct {
	Runtime      string            `json:"runtime"`
	Dependencies map[string]string `json:"dependencies"`
}

// Describe says in words what an installation was asked, from the Detail of its
// command: "install numpy 2.1.0, six (pip)".
func Describe(detail json.RawMessage) string {
	var r asked
	if json.Unmarshal(detail, &r) != nil || len(r.Dependencies) == 0 {
		return "install packages"
	}
	names := make([]string, 0, len(r.Dependencies))
	for _, name := range slices.Sorted(maps.Keys(r.Dependencies)) {
		if version := r.Dependencies[name]; version != "" {
			name += " " + version
		}
		names = append(names, name)
	}
	installer := map[string]string{sandbox.RuntimeNode: "npm", sandbox.RuntimeR: "CRAN"}[r.Runtime]
	return "install " + strings.Join(names, ", ") + " (" + cmp.Or(installer, "pip") + ")"
}

func invalid(format string, args ...any) *errs.Error {
	return errs.E(errs.Invalid, "dependencies: "+format, args...)
}

// plainJSON keeps "<" and ">" as they are.
func plainJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
