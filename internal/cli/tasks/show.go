package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/task"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/tty"
)

// showing is what of a task's events is shown.
type showing struct{ patches bool }

func (s *showing) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.patches, "diff", false, "print the changes themselves, and not only how many lines they have")
}

// printer prints the events of one task.
type printer struct {
	out       io.Writer
	box, task string
	json      bool // one line of JSON for each event
	showing
	terminal bool // out is one, and shows what goes on in a line that the next replaces
	colors   bool
	columns  func() int

	streaming string          // the message or thought whose deltas come now; "": none
	streamed  map[string]bool // those that were shown by their deltas
	midLine   bool            // what was printed last did not end its line
	passing   bool            // the line is to be replaced
	files     map[string]bool // those whose changes were shown
	plan      string          // as it was shown last
	failure   string          // what the agent said last that went wrong
}

func (a Env) newPrinter(cmd *cobra.Command, box, task string, o showing) *printer {
	_, terminal := tty.File(cmd.OutOrStdout())
	_, plain := a.Lookup("NO_COLOR")
	return &printer{
		out: cmd.OutOrStdout(), box: box, task: task, showing: o, terminal: terminal, colors: terminal && !plain, columns: a.Columns,
		streamed: make(map[string]bool), files: make(map[string]bool),
	}
}

// event prints an event.
func (p *printer) event(e task.Event) error {
	if p.json {
		enc := json.NewEncoder(p.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(e)
	}
	v, err := e.Value()
	if err != nil {
		return nil //nolint:nilerr // an agent's fault, of which the events after it say more
	}
	switch v := v.(type) {
	case task.Delta:
		return p.delta(v)
	case task.Message:
		return p.message(e.Type, v)
	case task.Phase:
		return p.pass(phases[v.Phase])
	case task.Tool:
		return p.tool(v)
	case task.Plan:
		return p.plans(v)
	case task.Diff:
		return p.diff(v)
	case task.Build:
		if v.OK {
			return p.line("", "build ok")
		}
		return p.block("", "build failed", v.Message)
	case task.Question:
		return p.question(v)
	case task.Push:
		return p.line("", pushed(v))
	case task.Task:
		return p.done(v)
	}
	return nil
}

// phases are what a task does, in words.
var phases = map[string]string{
	"starting": "starting", "checkpoint": "making a checkpoint", "agent_running": "the agent works", "build_check": "building",
	"health_check": "looking whether the application answers",
}

// Styles of a terminal.
const (
	dim   = "\x1b[2m"
	red   = "\x1b[31m"
	bold  = "\x1b[1m"
	reset = "\x1b[0m"
)

func (p *printer) styled(style, text string) string {
	if !p.colors || style == "" || text == "" {
		return text
	}
	return style + text + reset
}

// begin gets to the left edge, with nothing left of a line that was to be replaced.
func (p *printer) begin() string {
	text := ""
	if p.midLine {
		text = "\n"
	}
	if p.passing {
		text = "\r\x1b[K"
	}
	p.midLine, p.passing, p.streaming = false, false, ""
	return text
}

// line prints lines of their own.
func (p *printer) line(style, text string) error {
	_, err := io.WriteString(p.out, p.begin()+p.styled(style, format.Text(strings.TrimRight(text, "\n")))+"\n")
	return err
}

// block prints a line, and below it, indented, what more there is.
func (p *printer) block(style, head, body string) error {
	if body = strings.TrimSpace(body); body != "" {
		head += ":\n  " + strings.ReplaceAll(body, "\n", "\n  ")
	}
	return p.line(style, head)
}

// pass says what goes on: on a terminal in a line that the next thing replaces.
func (p *printer) pass(text string) error {
	switch {
	case text == "":
		return nil
	case !p.terminal:
		return p.line("", "["+text+"]")
	}
	shown := p.begin() + p.styled(dim, clip(format.Printable(text), p.columns()-1))
	p.passing = true
	_, err := io.WriteString(p.out, shown)
	return err
}

// clip cuts a line so that it takes no more than so many columns.
func clip(text string, columns int) string {
	width := 0
	for i, r := range text {
		w := 1
		if r >= utf8.RuneSelf {
			w = 2 // at most
		}
		if width += w; width > columns {
			return text[:i]
		}
	}
	return text
}

// delta prints a piece of a message or thought where the one before ended.
func (p *printer) delta(d task.Delta) error {
	key := d.Of + " " + d.ID
	text := ""
	if p.streaming != key {
		text = p.begin()
		if d.Of == task.ThoughtEvent && !p.colors {
			text += "(thinks) "
		}
	}
	said := format.Text(d.Text)
	style := ""
	if d.Of == task.ThoughtEvent {
		style = dim
	}
	p.streaming, p.streamed[key] = key, true
	if said != "" {
		p.midLine = !strings.HasSuffix(said, "\n")
	}
	_, err := io.WriteString(p.out, text+p.styled(style, said))
	return err
}

// message prints a whole message or thought, unless its deltas were.
func (p *printer) message(kind string, m task.Message) error {
	if key := kind + " " + m.ID; m.ID != "" && p.streamed[key] {
		delete(p.streamed, key) // there is only one of it
		_, err := io.WriteString(p.out, p.begin())
		return err
	}
	switch {
	case kind == task.ThoughtEvent && !p.colors:
		return p.line("", "(thinks) "+m.Text)
	case kind == task.ThoughtEvent:
		return p.line(dim, m.Text)
	case m.Role == "agent_error":
		p.failure = strings.TrimSpace(m.Text)
		return p.line(red, "error: "+m.Text)
	}
	return p.line("", m.Text)
}

// tool prints a call of a tool when it has ended, and on a terminal while it runs.
func (p *printer) tool(t task.Tool) error {
	what := line(strings.TrimSpace(t.Name+" "+t.Path), 200)
	switch t.Status {
	case "completed":
		return p.line(dim, "✓ "+what)
	case "error":
		return p.block(red, "✗ "+what, lastLines(t.Output, 5))
	}
	if !p.terminal {
		return nil
	}
	return p.pass("… " + what)
}

// lastLines is the end of a text.
func lastLines(text string, most int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// plans prints a plan where it changed.
func (p *printer) plans(plan task.Plan) error {
	marks := map[string]string{"completed": "[x] ", "in_progress": "[>] "}
	lines := make([]string, len(plan.Entries))
	for i, e := range plan.Entries {
		lines[i] = "  " + cmp.Or(marks[e.Status], "[ ] ") + line(e.Content, 200)
	}
	text := strings.Join(lines, "\n")
	if text == p.plan || text == "" {
		return nil
	}
	p.plan = text
	return p.line("", "plan:\n"+text)
}

// diff prints what changed of a file.
func (p *printer) diff(d task.Diff) error {
	p.files[d.Path] = true
	counts := "binary"
	if !d.Binary {
		added, removed := changed(d.Patch)
		counts = fmt.Sprintf("+%d −%d", added, removed)
		if d.Truncated {
			counts = "more than " + counts
		}
	}
	text := counts + " " + d.Path
	if d.Status != "modified" && d.Status != "" {
		text += " (" + d.Status + ")"
	}
	if p.patches && d.Patch != "" {
		text += "\n" + d.Patch
	}
	return p.line("", text)
}

// changed counts the lines that a unified diff adds and removes.
func changed(patch string) (added, removed int) {
	inHunk := false
	for l := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(l, "@@"):
			inHunk = true
		case strings.HasPrefix(l, "diff --git "):
			inHunk = false
		case inHunk && l[0] == '+':
			added++
		case inHunk && l[0] == '-':
			removed++
		}
	}
	return added, removed
}

func (p *printer) question(q task.Question) error {
	if q.Status != "pending" {
		outcome := q.Outcome
		for _, o := range q.Options {
			if o.ID == q.Outcome {
				outcome = o.Name
			}
		}
		return p.line(dim, "answered: "+line(outcome, 100))
	}
	text := "the agent asks leave for " + line(strings.TrimSpace(q.Tool.Name+" "+q.Tool.Path), 300) + "   [question " + line(q.ID, 100) + "]"
	for i, o := range q.Options {
		text += fmt.Sprintf("\n  %d  %s   [%s]", i+1, line(o.Name, 100), line(o.ID, 100))
	}
	return p.line(bold, text)
}

func pushed(p task.Push) string {
	if !p.OK {
		return "push failed: " + line(cmp.Or(p.Message, "cause unknown"), 400)
	}
	return "pushed " + format.Digest(p.Commit) + " to " + p.Branch
}

// tokens says what the models used; "" when that is not known.
func tokens(t *task.Tokens) string {
	if t == nil || t.Total == 0 && t.Cost == 0 {
		return ""
	}
	text := fmt.Sprintf("%d tokens", t.Total)
	if t.Cost > 0 {
		text += fmt.Sprintf(", $%.2f", t.Cost)
	}
	return text
}

// done prints how the task ended.
func (p *printer) done(t task.Task) error {
	var lines []string
	for _, name := range first(slices.DeleteFunc(slices.Clone(t.FilesChanged), func(name string) bool { return p.files[name] }), 50) {
		lines = append(lines, "changed "+name)
	}
	parts := []string{state(t) + " in " + duration(t).String()}
	if n := len(t.FilesChanged); n == 1 {
		parts = append(parts, "1 file changed")
	} else {
		parts = append(parts, fmt.Sprintf("%d files changed", n))
	}
	if used := tokens(t.Tokens); used != "" {
		parts = append(parts, used)
	}
	lines = append(lines, strings.Join(parts, ", "))
	if !t.BuildOK && t.BuildMessage != "" {
		lines = append(lines, "the build failed: "+line(lastLines(t.BuildMessage, 1), 200))
	}
	if t.Preview == "error" {
		lines = append(lines, "the application does not work: "+line(t.PreviewError, 200))
	}
	style := bold
	if t.Status == task.Failed {
		style = red
		if t.ErrorMessage != "" && strings.TrimSpace(t.ErrorMessage) != p.failure {
			lines = append(lines, t.ErrorMessage)
		}
	}
	if err := p.line(style, strings.Join(lines, "\n")); err != nil {
		return err
	}
	if t.CheckpointMessage != "" {
		if err := p.line(dim, line(t.CheckpointMessage, 300)); err != nil {
			return err
		}
	}
	if len(t.FilesChanged) > 0 && t.Checkpoint != "" {
		return p.line(dim, fmt.Sprintf("undo: cubby task restore %s %s", p.box, p.task))
	}
	return nil
}

// end leaves the cursor at the left edge.
func (p *printer) end() error {
	if p.json {
		return nil
	}
	_, err := io.WriteString(p.out, p.begin())
	return err
}

// address is where a sandbox's application is seen: its first declared port that
// something listens on, else the first one of all; "" when nothing listens.
func address(ctx context.Context, c *client.Client, box string) string {
	list, err := c.Ports(ctx, box)
	if err != nil {
		return ""
	}
	list = slices.DeleteFunc(list, func(p client.Port) bool { return !p.Listening || p.URL == "" })
	if len(list) == 0 {
		return ""
	}
	best := list[0]
	if i := slices.IndexFunc(list, func(p client.Port) bool { return p.Declared }); i >= 0 {
		best = list[i]
	}
	url, err := c.PortURL(ctx, box, best.Port)
	if err != nil {
		return ""
	}
	return url
}
