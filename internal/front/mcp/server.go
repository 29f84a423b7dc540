package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
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

// newServer returns a server with all tools and resources. It keeps nothing
// about its clients.
func (d *Door) newServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "cubby", Title: "Cubby sandboxes", Version: d.version}, &sdk.ServerOptions{
		Instructions: instructions,
		Logger:       slog.New(warnings{d.log.Handler()}),
		SetCacheable: caching,
		// The lists never change, and there is no logging to clients.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
	})
	for _, t := range d.tools() {
		s.AddTool(t.definition(), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
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

// tool is one of the tools.
type tool struct {
	name, title, description string
	input                    *jsonschema.Schema
	output                   *jsonschema.Schema
	// What it does to the session and the world beyond.
	readOnly, destructive, idempotent, open bool

	run func(ctx context.Context, c *call) (answer, error)
}

func (d *Door) tools() []tool {
	return []tool{
		d.createSessionTool(), d.executeCodeTool(), d.executeTerminalTool(), d.importFilesTool(), d.exportFilesTool(), d.stopSessionTool(),
		d.listSessionsTool(), d.readFileTool(), d.writeFileTool(), d.listFilesTool(),
		d.startCommandTool(), d.getOutputTool(), d.killCommandTool(),
		d.startTaskTool(), d.getTaskTool(), d.cancelTaskTool(), d.answerTaskTool(), d.restoreTaskTool(),
	}
}

func (t tool) definition() *sdk.Tool {
	return &sdk.Tool{
		Name: t.name, Title: t.title, Description: t.description,
		InputSchema: t.input,
		// What a failed call answers has a shape too.
		OutputSchema: &jsonschema.Schema{Type: "object", AnyOf: []*jsonschema.Schema{t.output, shape[failure]()}},
		Annotations: &sdk.ToolAnnotations{
			Title: t.title, ReadOnlyHint: t.readOnly, DestructiveHint: &t.destructive, IdempotentHint: t.idempotent, OpenWorldHint: &t.open,
		},
	}
}

// answer is what a tool gives: a value of its output's shape, which is shown
// as JSON too, and content beside it.
type answer struct {
	value any
	// text is the value as it is to be read, when that is not all of it.
	text  any
	extra []sdk.Content
}

// call runs a tool. Its result is never nil, and an error is in it.
func (d *Door) call(ctx context.Context, t tool, req *sdk.CallToolRequest) *sdk.CallToolResult {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.work, cancel)()
	d.beginStream(req.Extra)
	c := newCall(d, req)
	a, err := t.run(ctx, c)
	if err != nil {
		return result(answer{value: d.failure(ctx, c, err)}, true)
	}
	return result(a, false)
}

func result(a answer, failed bool) *sdk.CallToolResult {
	if a.text == nil {
		a.text = a.value
	}
	return sendable(&sdk.CallToolResult{
		Content:           append([]sdk.Content{&sdk.TextContent{Text: string(encode(a.text))}}, a.extra...),
		StructuredContent: encode(a.value),
		IsError:           failed,
	})
}

// encode writes compact JSON that a person can read.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // every v is a struct of this package
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
