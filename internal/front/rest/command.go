package rest

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/packages"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Command is the "cmd" of an exec: a string for the shell, or an array that
// runs as it is. Exactly one is set.
type Command struct {
	Shell string
	Argv  []string
}

// Schema describes both forms.
func (Command) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{
		Description: "An array runs as it is; a string runs through bash -c, or sh -c where there is no bash.",
		OneOf: []*huma.Schema{
			{Type: huma.TypeString},
			{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}},
		},
		Examples: []any{[]string{"python3", "-c", "print(1+1)"}},
	}
	s.PrecomputeMessages()
	return s
}

// UnmarshalJSON reads either form.
func (c *Command) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &c.Shell)
	}
	return json.Unmarshal(b, &c.Argv)
}

// MarshalJSON writes the form that is set.
func (c Command) MarshalJSON() ([]byte, error) {
	if c.Argv != nil {
		return front.PlainJSON(c.Argv)
	}
	return front.PlainJSON(c.Shell)
}

func (c Command) validate() error {
	if c.Shell == "" && len(c.Argv) == 0 {
		return errs.E(errs.Invalid, "cmd: empty").Hint(`give a string for the shell, or an array: {"cmd":["ls","-l"]}`)
	}
	return nil
}

// asked is the command as its caller knows it. What cubby runs for an operation
// or a terminal is a program of its own, which says nothing to anybody.
func asked(x sandbox.ExecSpec) Command {
	switch {
	case x.Cell != nil:
		return Command{}
	case x.Kind == packages.Kind:
		return Command{Shell: packages.Describe(x.Detail)}
	case x.Kind != "":
		return Command{Shell: strings.ReplaceAll(x.Kind, ".", " ")}
	case x.Terminal != "" && x.Shell == "":
		return Command{Shell: "terminal " + x.Terminal}
	}
	return Command{Shell: x.Shell, Argv: x.Argv}
}
