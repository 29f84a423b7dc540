package mcp

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	instructions = intro + `
runs Python, JavaScript or R in an interpreter that remembers what earlier calls defined and shows the value of the last
expression, plots and tables. execute_terminal runs shell commands; for servers and anything that takes longer than five
minutes use start_command and get_output. start_task gives a coding agent work there. The working directory is /workspace. Files come in with import_files or
write_file; ` + outro

	instructionsSix = intro + `
runs Python, JavaScript or R in an interpreter that remembers what earlier calls defined and shows the value of the last
expression, plots and tables. execute_terminal runs shell commands. The working directory is /workspace. Files come in with
import_files; ` + outro

	intro = `Cubby gives you Linux computers of your own, called sessions, to run code and commands in.

Call create_session once and reuse its session_id: variables, files and installed packages stay in it. execute_code`
	outro = `export_files makes results available to the user and to other sessions. Call stop_session when a session is
not needed any more: its files are gone then.`
)

// sixTools are those of sandbox-agent.
var sixTools = []string{"create_session", "execute_code", "execute_terminal", "import_files", "export_files", "stop_session"}

// offered are all tools of the door.
var offered = append(slices.Clone(sixTools), "list_sessions", "read_file", "write_file", "list_files", "start_command", "get_output", "kill_command",
	"start_task", "get_task", "cancel_task", "answer_task", "restore_task")

// newServer returns a server with all tools and resources. It keeps nothing
// about its clients.
func (d *Door) newServer() *sdk.Server {
	follow := newSubscriptions(d)
	s := sdk.NewServer(&sdk.Implementation{Name: "cubby", Title: "Cubby sandboxes", Version: d.version}, &sdk.ServerOptions{
		Instructions: instructions,
		Logger:       slog.New(warnings{d.log.Handler()}),
		SetCacheable: caching,
		// The lists never change, and there is no logging to clients.
		Capabilities:      &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
		CompletionHandler: d.complete, SubscribeHandler: follow.subscribe, UnsubscribeHandler: follow.unsubscribe,
	})
	follow.server = s
	for _, t := range d.tools.Tools(offered...) {
		s.AddTool(definition(t), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return d.call(ctx, t, req), nil
		})
	}
	d.addResources(s)
	s.AddReceivingMiddleware(conform)
	return s
}

// warnings keeps what the SDK tells of every request out of the log.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// definition is what clients are told of a tool.
func definition(t tools.Tool) *sdk.Tool {
	return &sdk.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description,
		InputSchema: t.Input,
		// What a failed call answers has a shape too.
		OutputSchema: &jsonschema.Schema{Type: "object", AnyOf: []*jsonschema.Schema{t.Output, tools.FailureSchema()}},
		Annotations: &sdk.ToolAnnotations{
			Title: t.Title, ReadOnlyHint: t.ReadOnly, DestructiveHint: &t.Destructive, IdempotentHint: t.Idempotent, OpenWorldHint: &t.Open,
		},
	}
}

// call runs a tool. Its result is never nil, and an error is in it.
func (d *Door) call(ctx context.Context, t tools.Tool, req *sdk.CallToolRequest) *sdk.CallToolResult {
	d.beginStream(req.Extra)
	c := tools.Call{Arguments: req.Params.Arguments, Documents: &d.long, Thread: thread(ctx, req.Extra), Interface: Interface}
	if wantsSix(req.Extra) {
		c.Interface = SixInterface
	}
	if req.Params.GetProgressToken() != nil {
		c.Watch = func(ctx context.Context) (func(tools.Said) bool, func()) { return progress(ctx, req) }
	}
	a := d.tools.Run(ctx, t, c)
	return result(fit(a), a.Failed)
}

// localThread is the conversation of a daemon's local user, who has no name.
const localThread = "local"

// thread returns the conversation of a request.
func thread(ctx context.Context, extra *sdk.RequestExtra) string {
	header, _ := ctx.Value(listensFor{}).(string)
	if extra != nil {
		header = extra.Header.Get(ThreadHeader)
	}
	return cmp.Or(header, auth.From(ctx).Name, localThread)
}
