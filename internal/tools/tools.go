// Package tools is what agents can do with sandboxes. Each tool is described once:
// its name and its words, the schemas of its arguments and of its answer, what it
// does to the sandbox, and how it is run. The MCP door and cubby's own agent offer
// them to their models.
//
// A session of the tools is a sandbox of a thread, the conversation; sandboxes of
// other threads cannot be used. A tool decodes its arguments, asks core and answers
// with a value of its shape. What it refuses or fails at is a value too, which a model
// can read, and never a Go error.
//
// The package speaks no protocol of agents. How an answer travels, how much of it a
// reader is given and how images are shown is decided by whoever calls.
package tools

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Config is what a Set needs.
type Config struct {
	Core *core.Service
	Log  *slog.Logger
	// Life ends when the daemon begins to stop: tools that wait say under which
	// number their command goes on.
	Life context.Context //nolint:containedctx // it outlives every call
	// Work ends when nothing may go on any more: then commands are left as they are.
	Work context.Context //nolint:containedctx // as Life
	// OwnSessions: calls may leave out the session, which is then the conversation's
	// own one of a language. [Call.Own] has to be set.
	OwnSessions bool
	Bounds      Bounds
}

// Bounds is how much tools read for one answer.
type Bounds struct {
	Stdout, Stderr int64 // of a command that was waited for, in bytes
	// CodeEnds: of what code prints there are the beginning and the end, as of what
	// commands print, and not the beginning alone.
	CodeEnds bool
	// Output is what get_output returns at once, Entries how many files
	// list_files names, and EntryBytes what their names may take: in bytes, as [Weight]
	// counts them.
	Output, Entries, EntryBytes int
	// Read is how many bytes read_file returns when nobody says more, and MostRead
	// what may be asked for.
	Read, MostRead int64
}

// Tool is the description of one tool.
type Tool struct {
	Name, Title, Description string

	Input  *jsonschema.Schema // of the arguments, an object
	Output *jsonschema.Schema // of the answer's value, when the tool did not fail

	// What it does to the session and the world beyond.
	ReadOnly, Destructive, Idempotent, Open bool

	run func(ctx context.Context, c *call) (Answer, error)
}

// Call is one call of a tool.
type Call struct {
	Arguments json.RawMessage
	// Documents has the long texts that were taken out of the arguments; nil: none.
	Documents *front.Documents
	Thread    string              // the conversation
	Interface admission.Interface // the way through which sandboxes are made
	// Watch, when not nil, is called when something begins that takes time. What is
	// said of it is told in one goroutine, and nothing any more when done is called.
	// Nobody follows the output any more when heard returns false.
	Watch func(ctx context.Context) (heard func(Said) bool, done func())
	// Whole: the output that is told comes to its end before the call returns.
	Whole bool
	// Own finds the conversation's own session of a language, "" being the default
	// one, and makes it if it may.
	Own func(ctx context.Context, language string, make bool) (Own, error)
	// Lent is a sandbox that may be used although it is of no thread, or of another.
	// It is not stopped.
	Lent string
}

// Own is a conversation's own session.
type Own struct {
	ID string
	// Anew says why it was made again and what is lost, "" when it was not.
	Anew string
}

// Said is something that happens while a tool works.
type Said struct {
	Session string // "": it is a word about the work, and not output
	Exec    int64
	Stream  sandbox.Stream
	Data    []byte
}

// Answer is what a tool gives.
type Answer struct {
	// Value is a struct of the tool's output schema, or a [Failure]. Texts in it
	// are as long as the bounds of reading let them be.
	Value any
	// Session is the sandbox that was used, and Exec the number of what ran to its
	// end in it.
	Session        string
	Exec           int64
	Stdout, Stderr Printed // what is missing of those of a command that was waited for
	// Image is the image file that was read, as far as it can be shown; nil: none.
	Image *Image
	// Again says why the session began anew, "" when it did not.
	Again  string
	Failed bool
}

// Printed says what is missing of a text that a command printed: so many bytes, before
// End, which ends the text. End is "" where the log has not kept the end.
type Printed struct {
	Cut int64
	End string
}

// printed is what a command printed, as text.
func printed(head, end []byte, cut int64) (string, Printed) {
	if len(end) > 0 { // both were cut somewhere, maybe within a character
		torn := front.PartialRune(head)
		head = head[:len(head)-torn]
		for range utf8.UTFMax - 1 {
			if len(end) > 0 && !utf8.RuneStart(end[0]) {
				end, torn = end[1:], torn+1
			}
		}
		cut += int64(torn)
	}
	p := Printed{Cut: cut, End: asUTF8(end)}
	return asUTF8(head) + p.End, p
}

// Set is the tools over one core.
type Set struct {
	core *core.Service
	log  *slog.Logger
	life context.Context //nolint:containedctx // as in Config
	work context.Context //nolint:containedctx // as in Config

	bounds Bounds
	all    []Tool
}

// New returns the tools.
func New(c Config) *Set {
	s := &Set{core: c.Core, log: c.Log, life: c.Life, work: c.Work, bounds: c.Bounds}
	s.all = []Tool{
		s.createSessionTool(), s.executeCodeTool(), s.executeTerminalTool(), s.importFilesTool(), s.exportFilesTool(), s.stopSessionTool(),
		s.listSessionsTool(), s.readFileTool(), s.writeFileTool(), s.editFileTool(), s.listFilesTool(), s.searchFilesTool(), s.showImageTool(),
		s.listPortsTool(), s.previewURLTool(),
		s.startCommandTool(), s.getOutputTool(), s.killCommandTool(),
		s.startTaskTool(), s.getTaskTool(), s.cancelTaskTool(), s.answerTaskTool(), s.restoreTaskTool(),
	}
	if c.OwnSessions {
		for i := range s.all {
			s.all[i].Input = withOwnSession(s.all[i].Input)
		}
	}
	return s
}

// Tools returns the tools of some names, in their order. It panics when there is no
// tool of one of them, which is a mistake of the program.
func (s *Set) Tools(names ...string) []Tool {
	list := make([]Tool, len(names))
	for i, name := range names {
		at := slices.IndexFunc(s.all, func(t Tool) bool { return t.Name == name })
		if at < 0 {
			panic("no tool is named " + name)
		}
		list[i] = s.all[at]
	}
	return list
}

// Run runs a tool. An error is in the answer.
func (s *Set) Run(ctx context.Context, t Tool, given Call) Answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.work, cancel)()
	ctx, losses := scope.WithLosses(ctx)
	c := &call{Call: given, arguments: parseArguments(given.Arguments), set: s, core: s.core, losses: losses}
	c.long = given.Documents
	a, err := t.run(ctx, c)
	if err != nil {
		a = Answer{Value: s.failure(ctx, t, c, err), Failed: true}
	}
	a.Session, a.Again = c.id, c.anew()
	return a
}
