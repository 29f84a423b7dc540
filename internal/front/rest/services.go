package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/core/services"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// ServiceSpec declares a service.
type ServiceSpec struct {
	Name     string            `json:"name" maxLength:"63" doc:"1 to 63 of A-Z a-z 0-9 . _ -, beginning with a letter or digit."`
	Command  string            `json:"command" doc:"For the shell."`
	Port     int               `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"That it listens on. It is a declared port, and in the service's environment as PORT."`
	Cwd      string            `json:"cwd,omitempty" doc:"Default /workspace."`
	Env      map[string]string `json:"env,omitempty" doc:"On top of the sandbox's; never shown again."`
	Restart  string            `json:"restart,omitempty" enum:"always,on_failure,never" doc:"Whether it starts again when its command has ended: always (default), on_failure (unless it exited with 0) or never."`
	Requires string            `json:"requires,omitempty" doc:"An absolute path that has to exist before the first start. It is looked for after commands, transfers and requests of previews."`
}

func serviceSpecs(list []ServiceSpec) []sandbox.Service {
	if list == nil {
		return nil
	}
	all := make([]sandbox.Service, len(list))
	for i, s := range list {
		all[i] = sandbox.Service{
			Name: s.Name, Command: s.Command, Port: s.Port, Cwd: s.Cwd, Env: s.Env, Restart: sandbox.RestartPolicy(s.Restart), Requires: s.Requires,
		}
	}
	return all
}

// Service is a service of a sandbox as it stands.
type Service struct {
	Name      string     `json:"name"`
	Command   string     `json:"command"`
	Port      int        `json:"port,omitempty"`
	Cwd       string     `json:"cwd,omitempty"`
	Restart   string     `json:"restart" enum:"always,on_failure,never"`
	Requires  string     `json:"requires,omitempty"`
	State     string     `json:"state" enum:"waiting,starting,running,ready,backoff,failed,stopped,sleeping" doc:"waiting: for the path that it requires. starting: it is started, or does not listen on its port yet. running: it has no port. ready: it listens on its port. backoff: it ended and starts again in a while. failed: it is given up. sleeping: it goes on when the sandbox wakes."`
	Reason    string     `json:"reason,omitempty" doc:"Why it failed, or cannot be started now."`
	PID       int64      `json:"pid,omitempty" doc:"Inside the sandbox."`
	Restarts  int        `json:"restarts" doc:"Since the sandbox was started."`
	Exec      int64      `json:"exec,omitempty" doc:"The seq of the last run: …/execs/{seq}/output is what it printed. Absent: it never ran."`
	ExitCode  *int       `json:"exit_code,omitempty" doc:"Of the last run, when it has ended."`
	ExitWhy   string     `json:"exit_reason,omitempty" doc:"How the last run ended, as reason of an exec."`
	StartedAt *time.Time `json:"started_at,omitempty" doc:"Of the last run."`
	URL       string     `json:"url,omitempty" doc:"The preview of its port, for whoever may see it; absent while the daemon serves none."`
}

// ServiceList is the services of a sandbox.
type ServiceList struct {
	Services []Service `json:"services" nullable:"false"`
}

// ServiceInput is exported because huma sets it inside of other inputs.
type ServiceInput struct {
	IDInput
	Name string `path:"name" maxLength:"63"`
}

func (d *door) serviceJSON(id string, st services.Status) Service {
	s := Service{
		Name: st.Service.Name, Command: st.Service.Command, Port: st.Service.Port, Cwd: st.Service.Cwd, Requires: st.Service.Requires,
		Restart: restartWord(st.Service.Restart), State: string(st.State), Reason: st.Reason,
		PID: st.PID, Restarts: st.Restarts, Exec: st.Exec, StartedAt: timeOrNil(st.StartedAt),
	}
	if st.Service.Port != 0 {
		s.URL = d.Core.Previews().URL(sandbox.ID(id), st.Service.Port)
	}
	if st.Exit != nil {
		s.ExitCode, s.ExitWhy = st.Exit.Code, string(st.Exit.Reason)
	}
	return s
}

func restartWord(p sandbox.RestartPolicy) string {
	if p == "" {
		p = sandbox.RestartAlways
	}
	return string(p)
}

// declaredJSON is the services of a sandbox as they were declared, without env.
func declaredJSON(list []sandbox.Service) []ServiceSpec {
	all := make([]ServiceSpec, len(list))
	for i, s := range list {
		all[i] = ServiceSpec{Name: s.Name, Command: s.Command, Port: s.Port, Cwd: s.Cwd, Restart: restartWord(s.Restart), Requires: s.Requires}
	}
	return all
}

func (d *door) serviceRoutes() {
	const path = "/v1/sandboxes/{id}/services"
	register(d, operation{
		id: "list-services", method: http.MethodGet, path: path, tag: "services",
		summary:     "List the services of a sandbox, and how they stand",
		description: "It is no activity and wakes nothing.",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body ServiceList }, error) {
		list, err := d.Core.Services().List(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := ServiceList{Services: make([]Service, len(list))}
		for i, st := range list {
			out.Services[i] = d.serviceJSON(in.ID, st)
		}
		return &struct{ Body ServiceList }{out}, nil
	})
	type serviceOutput struct{ Body Service }
	answer := func(id string, st services.Status, err error) (*serviceOutput, error) {
		if err != nil {
			return nil, err
		}
		return &serviceOutput{d.serviceJSON(id, st)}, nil
	}
	register(d, operation{
		id: "get-service", method: http.MethodGet, path: path + "/{name}", tag: "services", summary: "Get a service of a sandbox",
	}, func(ctx context.Context, in *ServiceInput) (*serviceOutput, error) {
		st, err := d.Core.Services().Get(ctx, in.ID, in.Name)
		return answer(in.ID, st, err)
	})
	for _, act := range []struct {
		name, summary, description string
		do                         func(ctx context.Context, id, name string) (services.Status, error)
	}{
		{"start", "Start a service", "Also one that was given up. One that runs is left as it is.", d.Core.Services().Start},
		{"stop", "Stop a service", "SIGTERM, and SIGKILL after 10 seconds. It stays stopped until it is started, or the sandbox is.", d.Core.Services().Stop},
		{"restart", "Stop a service if it runs, and start it", "", d.Core.Services().Restart},
	} {
		register(d, operation{
			id: act.name + "-service", method: http.MethodPost, path: path + "/{name}/" + act.name, tag: "services",
			summary: act.summary, description: act.description,
		}, func(ctx context.Context, in *ServiceInput) (*serviceOutput, error) {
			st, err := act.do(ctx, in.ID, in.Name)
			return answer(in.ID, st, err)
		})
	}
}

// servicesPatch are the services of an update; nil stays nil.
func servicesPatch(list *[]ServiceSpec) *[]sandbox.Service {
	if list == nil {
		return nil
	}
	all := serviceSpecs(*list)
	if all == nil {
		all = []sandbox.Service{}
	}
	return &all
}
