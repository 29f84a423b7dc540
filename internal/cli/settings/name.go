package settings

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/client/settings"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

// name is the name of a setting.
type name struct {
	group string // "", "approval", or a provider
	field string // "" with a provider: all of it
}

func (n name) String() string {
	switch {
	case n.group == "":
		return n.field
	case n.field == "":
		return n.group
	}
	return n.group + "." + n.field
}

// parseName reads a name; one without a dot that is no setting is a provider. A
// provider's may begin with "providers.", as in the JSON of the API.
func parseName(text string) (name, error) {
	text = strings.TrimPrefix(text, "providers.")
	group, field, dotted := strings.Cut(text, ".")
	unknown := fmt.Errorf("%s is not the name of a setting; see cubby settings --help", format.Printable(text))
	switch {
	case group == "" || dotted && field == "":
		return name{}, unknown
	case group == "approval" && dotted:
		return name{group, field}, nil
	case dotted && (field == "key" || field == "base_url"):
		return name{group, field}, nil
	case dotted:
		return name{}, unknown
	}
	switch text {
	case "model", "supports_vision", "max_iterations", "token_budget", "approval":
		return name{field: text}, nil
	}
	return name{group: text}, nil
}

// put writes a value into a patch; nil removes.
func (n name) put(p settings.Patch, value any) {
	below := func(p settings.Patch, key string) settings.Patch {
		inner, ok := p[key].(settings.Patch)
		if !ok {
			inner = settings.Patch{}
			p[key] = inner
		}
		return inner
	}
	switch {
	case n.group == "":
		p[n.field] = value
	case n.group == "approval":
		below(p, "approval")[n.field] = value
	case n.field == "":
		below(p, "providers")[n.group] = value
	default:
		below(below(p, "providers"), n.group)[n.field] = value
	}
}

// assignment is a setting that is to be set; not given: its value is to be read.
type assignment struct {
	name
	value string
	given bool
}

// parseAll reads NAME=VALUE and PROVIDER.key.
func parseAll(args []string) ([]assignment, error) {
	var all []assignment
	for _, arg := range args {
		text, value, given := strings.Cut(arg, "=")
		n, err := parseName(text)
		switch {
		case err != nil:
			return nil, err
		case n.group != "" && n.field == "" || n == name{field: "approval"}:
			return nil, fmt.Errorf("%s is not one setting; see cubby settings --help", n)
		case !given && n.field != "key":
			return nil, fmt.Errorf("%s has no value; write %s=VALUE", n, n)
		case given && value == "":
			return nil, fmt.Errorf("%s has an empty value; cubby settings rm %s removes it", n, n)
		}
		for _, before := range all {
			if before.name == n {
				return nil, fmt.Errorf("%s is there twice", n)
			}
			if !before.given && !given {
				return nil, fmt.Errorf("%s and %s are both to be read; set one at a time", before.name, n)
			}
		}
		all = append(all, assignment{n, value, given})
	}
	return all, nil
}

// typed is the value as the daemon takes it.
func (a assignment) typed() (any, error) {
	if a.group != "" || a.field != "max_iterations" && a.field != "token_budget" {
		return a.value, nil
	}
	n, err := strconv.ParseInt(a.value, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %s is not a number", a.name, format.Printable(a.value))
	}
	return n, nil
}
