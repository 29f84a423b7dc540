package sandbox

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Bounds of services.
const (
	MaxServices       = 32
	maxServiceCommand = 64 << 10  // bytes of one command
	maxServiceBytes   = 256 << 10 // of all services of a sandbox, env included
)

// RestartPolicy says whether a service runs again after its command has ended;
// "" is [RestartAlways].
type RestartPolicy string

const (
	RestartAlways    RestartPolicy = "always"
	RestartOnFailure RestartPolicy = "on_failure" // unless it exited with 0
	RestartNever     RestartPolicy = "never"
)

// Service is a command that runs for as long as its sandbox does.
type Service struct {
	Name    string            `json:"name"`
	Command string            `json:"command"`        // for the shell
	Port    int               `json:"port,omitempty"` // that it listens on, and a declared one; 0: none
	Cwd     string            `json:"cwd,omitempty"`  // "": WorkspaceDir
	Env     map[string]string `json:"env,omitempty"`
	Restart RestartPolicy     `json:"restart,omitempty"`
	// Requires is a path that has to exist before the first start; "": none.
	Requires string `json:"requires,omitempty"`
	// Revision names what runs: it is another one when the command, its directory,
	// port or env is another. See [Revise].
	Revision UID `json:"revision,omitempty"`
}

// ServiceRun marks an exec as a run of a service.
type ServiceRun struct {
	Name     string `json:"name"`
	Revision UID    `json:"revision"`
}

// ServicePhase is where a service stands, as far as that is stored.
type ServicePhase string

const (
	ServiceWaiting ServicePhase = "waiting" // for the path that it requires
	ServiceRunning ServicePhase = "running" // or about to
	ServiceBackoff ServicePhase = "backoff" // ended, and starts again in a while
	ServiceFailed  ServicePhase = "failed"  // given up
	ServiceStopped ServicePhase = "stopped" // on request, or it ended and is not restarted
)

// ServiceState is what became of a service since its sandbox began cold.
type ServiceState struct {
	Phase    ServicePhase `json:"phase"`
	Reason   string       `json:"reason,omitempty"` // of a failure, for people
	Revision UID          `json:"revision"`         // that this is about
	Exec     int64        `json:"exec,omitempty"`   // the seq of the last run; 0: none; or RunElsewhere
	Restarts int          `json:"restarts,omitempty"`
	Quick    int          `json:"quick,omitempty"` // runs in a row that were too short
	Tries    int          `json:"tries,omitempty"` // that the pause grows with
}

// RunElsewhere stands for the number of a run that another sandbox has.
const RunElsewhere = -1

// CopiedServices are the states in a copy of a sandbox's memory, which has none of
// the runs by their numbers.
func CopiedServices(states map[string]ServiceState) map[string]ServiceState {
	copied := maps.Clone(states)
	for name, state := range copied {
		state.Restarts = 0
		if state.Exec != 0 {
			state.Exec = RunElsewhere
		}
		copied[name] = state
	}
	return copied
}

// ExecSpec is the command of a run.
func (s Service) ExecSpec() ExecSpec {
	env := maps.Clone(s.Env)
	if _, set := env["PORT"]; s.Port != 0 && !set {
		if env == nil {
			env = map[string]string{}
		}
		env["PORT"] = strconv.Itoa(s.Port)
	}
	var unbounded time.Duration
	return ExecSpec{
		Shell: s.Command, Cwd: s.Cwd, Env: env, Timeout: &unbounded,
		Service: &ServiceRun{Name: s.Name, Revision: s.Revision},
	}
}

// same reports whether two services run the same.
func (s Service) same(t Service) bool {
	return s.Command == t.Command && s.Port == t.Port && s.Cwd == t.Cwd && maps.Equal(s.Env, t.Env)
}

// Revise gives services their revisions: those of before where the same runs
// under the same name, else fresh ones.
func Revise(before, services []Service) []Service {
	revised := slices.Clone(services)
	for i := range revised {
		s := &revised[i]
		at := slices.IndexFunc(before, func(b Service) bool { return b.Name == s.Name && b.same(*s) })
		if at >= 0 && before[at].Revision != "" {
			s.Revision = before[at].Revision
		} else {
			s.Revision = NewUID()
		}
	}
	return revised
}

// Validate checks one service.
func (s Service) Validate() error {
	if err := ValidateName("services: name", s.Name); err != nil {
		return err
	}
	where := "services: " + s.Name + ": "
	switch {
	case strings.TrimSpace(s.Command) == "":
		return invalid("%scommand: it is empty", where)
	case len(s.Command) > maxServiceCommand:
		return errs.E(errs.TooLarge, "%scommand: longer than %d bytes", where, maxServiceCommand).Hint("write it to a file in the sandbox first")
	case strings.ContainsRune(s.Command, 0):
		return invalid("%scommand: it has a NUL byte", where)
	case s.Port < 0 || s.Port > 65535:
		return invalid("%sport: %d is not between 1 and 65535", where, s.Port)
	case len(s.Cwd) > maxPath || strings.ContainsRune(s.Cwd, 0):
		return invalid("%scwd: not a path", where)
	case s.Requires != "" && (!path.IsAbs(s.Requires) || len(s.Requires) > maxPath || strings.ContainsRune(s.Requires, 0)):
		return invalid("%srequires: not an absolute path", where)
	}
	if err := oneOf(where+"restart", s.Restart, "", RestartAlways, RestartOnFailure, RestartNever); err != nil {
		return err
	}
	return validateEnv(s.Env)
}

func validateServices(services []Service) error {
	if len(services) > MaxServices {
		return invalid("services: more than %d", MaxServices)
	}
	for i, s := range services {
		if err := s.Validate(); err != nil {
			return err
		}
		for _, other := range services[:i] {
			switch {
			case other.Name == s.Name:
				return invalid("services: %q is there twice", s.Name)
			case other.Port == s.Port && s.Port != 0:
				return invalid("services: %q and %q have the same port", other.Name, s.Name)
			}
		}
	}
	text, err := json.Marshal(services)
	if err != nil || len(text) > maxServiceBytes {
		return errs.E(errs.TooLarge, "services: more than %d bytes together", maxServiceBytes)
	}
	return nil
}

// DeclaredPorts are the spec's ports and those of its services.
func (s Spec) DeclaredPorts() []int {
	all := slices.Clone(s.Ports)
	for _, service := range s.Services {
		if service.Port != 0 && !slices.Contains(all, service.Port) {
			all = append(all, service.Port)
		}
	}
	return all
}
