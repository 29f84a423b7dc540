// Package toolset is what the model of an agent's thread may call: the tools of
// internal/tools in the sandboxes of that thread. It gives them what a conversation
// needs and a protocol has not: a session that is there without being asked for,
// answers of a size that a model reads, images that a model sees, and output while it
// is printed.
//
// A tool that is not told a session uses the thread's own one of a language, which is
// made when it is first needed and made again when it is gone; the answer says so.
// Nothing of the daemon's environment and no key of a provider enters a sandbox.
package toolset

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/coalesce"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/tools"
)

// names are the tools that models are offered, in this order.
var names = []string{
	"create_session", "execute_code", "execute_terminal", "import_files", "export_files", "stop_session",
	"read_file", "write_file", "edit_file", "list_files", "search_files",
	"start_command", "get_output", "kill_command",
	"list_ports", "preview_url", "show_image",
}

// Config is what a Toolset needs.
type Config struct {
	Log *slog.Logger // nil: silent
	// Life ends when the daemon begins to stop, and Work when nothing may go on any
	// more: until then what a call began is ended when the call is given up.
	Life, Work context.Context //nolint:containedctx // they outlive every call
	// Base is where clients find the API, without a slash at the end; nil or "" makes
	// addresses that are relative to it.
	Base func() string
	// Interface is the way through which sandboxes are made, which says what they may
	// use; "" is cubby's own.
	Interface admission.Interface
}

// Toolset is the tools for all threads.
type Toolset struct {
	core  *core.Service
	log   *slog.Logger
	base  func() string
	way   admission.Interface
	set   *tools.Set
	tools map[string]tools.Tool
	list  []llm.Tool
	owns  coalesce.Calls[ownKey, tools.Own]
}

// New returns the tools.
func New(s *core.Service, c Config) *Toolset {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Base == nil {
		c.Base = func() string { return "" }
	}
	t := &Toolset{
		core: s, log: c.Log, base: c.Base, way: c.Interface, tools: make(map[string]tools.Tool),
		set: tools.New(tools.Config{Core: s, Log: c.Log, Life: c.Life, Work: c.Work, OwnSessions: true, Bounds: bounds}),
	}
	for _, tool := range t.set.Tools(names...) {
		delete(tool.Input.Properties, "agents") // those take other tools
		schema, err := json.Marshal(tool.Input)
		if err != nil {
			panic(err) // it is a constant of the program
		}
		t.tools[tool.Name] = tool
		t.list = append(t.list, llm.Tool{Name: tool.Name, Description: tool.Description, Schema: schema})
	}
	return t
}

// ReadOnly reports whether a tool changes nothing, neither in a sandbox nor beyond.
func (t *Toolset) ReadOnly(name string) bool { return t.tools[name].ReadOnly }

// Options are those of one run.
type Options struct {
	// Sandbox is used instead of the thread's own sessions; "" is none. It is the
	// caller's, of the same tenant, and no tool destroys it.
	Sandbox string
}

// Thread is the tools of one thread, as somebody uses them.
type Thread struct {
	*Toolset
	who     auth.Principal
	name    string
	options Options
}

var _ loop.Tools = (*Thread)(nil)

// Thread returns the tools of a thread of the principal's tenant.
func (t *Toolset) Thread(who auth.Principal, name string, o Options) *Thread {
	return &Thread{Toolset: t, who: who, name: name, options: o}
}

// List implements [loop.Tools].
func (t *Thread) List() []llm.Tool { return t.list }

// as is a context of the thread's principal.
func (t *Thread) as(ctx context.Context) context.Context { return auth.WithPrincipal(ctx, t.who) }

// Call implements [loop.Tools].
func (t *Thread) Call(ctx context.Context, c loop.Call) (r loop.Result) {
	tool, ok := t.tools[c.Name]
	if !ok {
		return failed(tools.Failure{
			Error: fmt.Sprintf("ValueError: there is no tool %.100q", c.Name), Hint: "Use one of the tools that you were given.",
		})
	}
	ctx = t.as(ctx)
	defer func() {
		if p := recover(); p != nil {
			t.log.ErrorContext(ctx, "a tool panicked", "tool", c.Name, "panic", p, "stack", string(debug.Stack()))
			r = failed(tools.Failure{Error: "RuntimeError: internal error", Hint: "This is a fault of the server, which its log explains. Tell the user."})
		}
	}()
	call := tools.Call{
		Arguments: c.Arguments, Thread: t.name, Lent: t.options.Sandbox, Whole: true, Interface: t.way,
		Own: func(ctx context.Context, language string, make bool) (tools.Own, error) {
			return t.own(ctx, language, make)
		},
	}
	if c.Output != nil {
		call.Watch = func(context.Context) (func(tools.Said) bool, func()) {
			f := newFeed(c.Output)
			return f.heard, f.end
		}
	}
	return t.result(t.set.Run(ctx, tool, call))
}
