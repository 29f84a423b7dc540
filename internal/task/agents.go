package task

import (
	"github.com/cubbyhq/cubby/internal/errs"
)

// DefaultAgent does a task that names none.
const DefaultAgent = "opencode"

// Names lists the agents that Known knows.
func Names() []string { return nil }

// Keys are the variables that an agent's provider is told by: keys and addresses.
// Those that an operator set reach the agent's environment.
func Keys(agent string) []string { return nil }

// Known returns how an agent is started that is known by its name. Env has what the
// task's environment sets of its [Keys], to choose a provider by; its values end up
// in no field of the result but as addresses of servers. It is Invalid for a name
// that is not known, and for a model that the agent cannot be given.
func Known(name, model string, env map[string]string) (Agent, error) {
	return Agent{}, errs.E(errs.Invalid, "agent: %.40q is not known", name)
}

// Provider is the host and port of the server that an agent's model is asked at:
// that of an address among trusted, which has what the operator set, or else the
// default of the provider. "" when it is on loopback or cannot be known.
func Provider(name, model string, trusted map[string]string) string { return "" }
