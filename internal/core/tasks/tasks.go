// Package tasks is what coding agents are asked to do in sandboxes. A task is an
// exec: its supervisor is a program of the sandbox's agent, which makes a checkpoint,
// drives the coding agent and says how it went, and its records are the exec's
// journal. So a task goes on without whoever asked for it, without the daemon, and
// over a sleep of its sandbox; its events are there for as long as its journal.
//
// What a supervisor prints is not trusted: it comes out of the sandbox. This package
// reads it under bounds, does the two acts that a supervisor may ask for, and makes
// the result honest where the supervisor could not: killed, out of memory, lost.
package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/core/services"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/task"
)

const (
	// DefaultTimeout is the time limit of an agent that gets none, as sandboxed's.
	DefaultTimeout = 10 * time.Minute
	// MaxTimeout is the longest.
	MaxTimeout = 24 * time.Hour
	// endTime is what a task may take beyond its agent's limit: to end the agent, to
	// build, to look whether the application answers, and to push.
	endTime = 6 * time.Minute
	// shownPrompt is how much of a prompt histories show.
	shownPrompt = 8 << 10
	maxCommand  = 64
)

// Config is what tasks are done with. All fields are required.
type Config struct {
	Store    *store.Store
	Journals *journal.Journals
	Live     *live.Sandboxes
	Git      *program.Git
	Services *services.Services
	Scope    *scope.Scope
	Budget   budget.Budget // the zero one charges nothing
	Gate     *gate.Gate
	Log      *slog.Logger
	Now      func() time.Time
	// Secrets are those values that the operator has set for a tenant, of the names
	// that are asked for.
	Secrets func(ctx context.Context, tenant string, names []string) (map[string]string, error)
	// Program is cubby-init in every sandbox, as a command.
	Program []string
	// Note writes an event down.
	Note func(ctx context.Context, e sandbox.Event)
}

// Tasks is the tasks of all sandboxes. Methods may be called from any goroutine.
type Tasks struct {
	cfg  Config
	dirs keylock.Locks // by sandbox and directory: one task at a time is begun in each

	mu        sync.Mutex
	phases    map[sandbox.UID]task.Phase // of tasks that are attended, by their id; guarded by mu
	cancelled map[sandbox.UID]bool       // tasks that are killed if they do not end; guarded by mu
}

// New returns the tasks of all sandboxes.
func New(cfg Config) *Tasks {
	return &Tasks{cfg: cfg, phases: make(map[sandbox.UID]task.Phase), cancelled: make(map[sandbox.UID]bool)}
}

// Request is what a caller asks for. Only the prompt is required.
type Request struct {
	Prompt string
	// Agent is one of [task.Names]; "" is [task.DefaultAgent], or "custom" with
	// Command.
	Agent string
	// Command is another agent, which speaks Protocol; "" is ACP.
	Command  []string
	Protocol task.Protocol
	// Model is the agent's own name of a model; "" is its default.
	Model string
	// Cwd is the directory of the project; default the workspace.
	Cwd string
	// Env is for the agent alone, and kept nowhere.
	Env map[string]string
	// Secrets names values that the operator has set, which the agent gets beside
	// those that its provider is told by.
	Secrets []string
	// Timeout is the agent's limit; nil is [DefaultTimeout], 0 is none.
	Timeout *time.Duration
	// Resume is the id of an earlier task, whose session the agent goes on with.
	Resume      string
	Permissions task.Permissions // default allow
}

// detail is what histories show of a task.
type detail struct {
	Prompt      string           `json:"prompt"`
	Cut         bool             `json:"prompt_cut,omitempty"`
	Agent       string           `json:"agent"`
	Command     []string         `json:"command,omitempty"`
	Model       string           `json:"model,omitempty"`
	Cwd         string           `json:"cwd"`
	Resume      string           `json:"resume,omitempty"`
	Permissions task.Permissions `json:"permissions"`
	Seconds     float64          `json:"timeout_seconds"`
	// Providers are the hosts that the agent's model may be asked at.
	Providers []string `json:"providers,omitempty"`
}

// customAgent is the name of an agent that is given by its command.
const customAgent = "custom"

// Start begins a task and returns at once; it goes on when ctx ends. It is a use of
// the sandbox: one that sleeps is woken. TaskInProgress while another one works in
// the same directory.
func (t *Tasks) Start(ctx context.Context, id string, req Request) (Task, error) {
	leave, err := t.cfg.Gate.Enter(ctx)
	if err != nil {
		return Task{}, err
	}
	defer leave()
	b, err := t.cfg.Scope.Find(ctx, id)
	if err != nil {
		return Task{}, err
	}
	order, secrets, asked, err := t.prepare(ctx, b, req)
	if err != nil {
		return Task{}, err
	}
	unlock, err := t.dirs.Lock(ctx, string(b.UID)+" "+asked.Cwd)
	if err != nil {
		return Task{}, err
	}
	defer unlock()
	if err := t.refuseSecond(ctx, b, asked.Cwd); err != nil {
		return Task{}, err
	}
	spec, err := t.specOf(order, secrets, asked)
	if err != nil {
		return Task{}, err
	}
	x, err := t.cfg.Live.Execs().Start(ctx, id, spec)
	if err != nil {
		return Task{}, err
	}
	if b.Spec.Network.Mode != sandbox.NetworkNone {
		for _, provider := range asked.Providers {
			t.noteProvider(context.WithoutCancel(ctx), x, provider)
		}
	}
	return taskOf(b, x), nil
}

// refuseSecond is an error while a task works in a directory.
func (t *Tasks) refuseSecond(ctx context.Context, b sandbox.Sandbox, cwd string) error {
	running, err := t.unfinished(ctx, b.UID)
	if err != nil {
		return err
	}
	for _, x := range running {
		if asked := detailOf(x); asked.Cwd == cwd {
			return errs.E(errs.TaskInProgress, "task %s works in %s", x.UID, cwd).
				Hint("wait for its end, cancel it, or name another cwd")
		}
	}
	return nil
}

// unfinished are the tasks of a sandbox, and the restorings, that have not ended.
func (t *Tasks) unfinished(ctx context.Context, box sandbox.UID) ([]sandbox.Exec, error) {
	var all []sandbox.Exec
	for _, kind := range []string{task.Kind, task.KindRestore} {
		list, err := t.cfg.Live.Execs().Unfinished(ctx, box, kind)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// prepare makes of a request what the supervisor is told, the values that the agent
// gets, and what histories show.
func (t *Tasks) prepare(ctx context.Context, b sandbox.Sandbox, req Request) (task.Order, map[string]string, detail, error) {
	fail := func(err error) (task.Order, map[string]string, detail, error) {
		return task.Order{}, nil, detail{}, err
	}
	if err := req.validate(); err != nil {
		return fail(err)
	}
	name := cmp.Or(req.Agent, task.DefaultAgent)
	if len(req.Command) > 0 {
		name = customAgent
	}
	wanted := append(task.Keys(name), req.Secrets...)
	trusted, err := t.cfg.Secrets(ctx, b.Tenant, wanted)
	if err != nil {
		return fail(err)
	}
	for _, secret := range req.Secrets {
		if _, ok := trusted[secret]; !ok {
			return fail(errs.E(errs.Invalid, "secrets: %.128q is not set", secret).Hint("the operator sets it: cubby secret set NAME"))
		}
	}
	// What the caller gives comes before what the operator set, and that before what
	// the sandbox has.
	known := maps.Clone(b.Spec.Env)
	if known == nil {
		known = make(map[string]string)
	}
	maps.Copy(known, trusted)
	maps.Copy(known, req.Env)
	agent := task.Agent{Name: customAgent, Protocol: cmp.Or(req.Protocol, task.ACP), Command: req.Command, Model: req.Model}
	var providers []string
	if name != customAgent {
		if agent, err = task.Known(name, req.Model, known); err != nil {
			return fail(err)
		}
		providers = task.Providers(name, req.Model, known, trusted)
	}
	secrets := maps.Clone(trusted)
	if secrets == nil {
		secrets = make(map[string]string)
	}
	maps.Copy(secrets, req.Env)
	asked := detail{
		Agent: name, Command: req.Command, Model: req.Model, Cwd: cwdOf(req.Cwd), Resume: req.Resume,
		Permissions: cmp.Or(req.Permissions, task.Allow), Providers: providers, Seconds: req.limit().Seconds(),
	}
	asked.Prompt, asked.Cut = shorten(req.Prompt, shownPrompt)
	order := task.Order{
		ID: string(sandbox.NewUID()), Prompt: req.Prompt, Cwd: asked.Cwd, Agent: agent, Permissions: asked.Permissions, Seconds: asked.Seconds,
		Secrets: slices.Sorted(maps.Keys(trusted)), Push: b.Spec.GitRemoteURL != "", Port: appPort(b), Output: t.cfg.Journals.PerExec(),
	}
	_, order.DevServer = devServer(b)
	if req.Resume != "" {
		if order.Session, err = t.sessionOf(ctx, b, req.Resume, name); err != nil {
			return fail(err)
		}
	}
	return order, secrets, asked, nil
}

func (r Request) limit() time.Duration {
	if r.Timeout == nil {
		return DefaultTimeout
	}
	return *r.Timeout
}

func (r Request) validate() error {
	invalid := func(format string, args ...any) *errs.Error { return errs.E(errs.Invalid, format, args...) }
	switch limit := r.limit(); {
	case strings.TrimSpace(r.Prompt) == "":
		return invalid("prompt: empty").Hint("say what the agent shall do")
	case strings.ContainsRune(r.Prompt, 0):
		return invalid("prompt: not text")
	case len(r.Prompt) > task.MaxPrompt:
		return errs.E(errs.TooLarge, "prompt: longer than %d bytes", task.MaxPrompt).Hint("put what is long into a file of the sandbox, and name it")
	case limit < 0 || limit > MaxTimeout:
		return invalid("timeout_seconds: between 0 and %d", int(MaxTimeout.Seconds()))
	case r.Permissions != "" && r.Permissions != task.Allow && r.Permissions != task.Ask:
		return invalid("permissions: allow or ask")
	case r.Protocol != "" && r.Protocol != task.ACP && r.Protocol != task.JSONLines:
		return invalid("protocol: %s or %s", task.ACP, task.JSONLines)
	case r.Protocol != "" && len(r.Command) == 0:
		return invalid("protocol: only with command")
	case len(r.Command) > 0 && r.Agent != "" && r.Agent != customAgent:
		return invalid("command: both an agent and a command")
	case len(r.Command) == 0 && r.Agent == customAgent:
		return invalid("command: missing").Hint("give the agent's program and its arguments")
	case len(r.Command) > maxCommand:
		return invalid("command: more than %d arguments", maxCommand)
	case len(r.Model) > 256 || strings.ContainsFunc(r.Model, notPrintable):
		return invalid("model: not a name")
	case len(r.Cwd) > 4096 || strings.ContainsRune(r.Cwd, 0):
		return invalid("cwd: not a path")
	}
	for _, arg := range r.Command {
		if strings.ContainsRune(arg, 0) || len(arg) > 4096 {
			return invalid("command: not an argument")
		}
	}
	return nil
}

func notPrintable(r rune) bool { return r < ' ' || r == 0x7f }

// cwdOf is a directory as an absolute path.
func cwdOf(dir string) string {
	if !path.IsAbs(dir) {
		dir = path.Join(sandbox.WorkspaceDir, dir)
	}
	return path.Clean(dir)
}

// shorten cuts a text between characters.
func shorten(text string, limit int) (string, bool) {
	if len(text) <= limit {
		return text, false
	}
	return strings.ToValidUTF8(text[:limit], ""), true
}

// specOf is the exec that a task is.
func (t *Tasks) specOf(order task.Order, secrets map[string]string, asked detail) (sandbox.ExecSpec, error) {
	env, err := order.Env()
	if err != nil {
		return sandbox.ExecSpec{}, err
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return sandbox.ExecSpec{}, err
	}
	limit := time.Duration(0)
	if asked.Seconds > 0 {
		limit = time.Duration(asked.Seconds*float64(time.Second)) + endTime
	}
	return sandbox.ExecSpec{
		Kind: task.Kind, Detail: text, Argv: append(slices.Clone(t.cfg.Program), task.Verb), Cwd: "/", Env: env, Secrets: secrets,
		Stdin: true, Timeout: &limit, Program: sandbox.AgentTasks,
	}, nil
}

// devServerName is the service that a project's dev server is.
const devServerName = "dev"

// devServer is the service of a sandbox that is its dev server.
func devServer(b sandbox.Sandbox) (sandbox.Service, bool) {
	for _, service := range b.Spec.Services {
		if service.Name == devServerName {
			return service, true
		}
	}
	return sandbox.Service{}, false
}

// appPort is where the application of a sandbox answers, for all that is known
// before: the dev server's port, else the first that is declared; 0 is none.
func appPort(b sandbox.Sandbox) int {
	if service, ok := devServer(b); ok && service.Port != 0 {
		return service.Port
	}
	if len(b.Spec.Ports) > 0 {
		return b.Spec.Ports[0]
	}
	return 0
}
