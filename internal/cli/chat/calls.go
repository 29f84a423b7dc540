package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client/agent"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/render"
)

// call is one call of a tool.
type call struct {
	message string // that has it
	index   int
	id      string
	name    string
	args    string // as far as they have come
	begun   time.Time
	took    time.Duration // of one that has ended
	ended   bool
	failed  bool
	result  string
	// reviewed: a person has decided about it.
	reviewed bool
	output   string // the newest of what it prints
}

// calls are those of a thread in the order in which they were made.
type calls struct {
	list []*call
	last time.Time // when the newest one ended
}

// longLine is as wide as a line may be that no terminal bounds.
const longLine = 200

// maxCalls is how many are remembered, maxOutput how much of what one prints.
const (
	maxCalls  = 100
	maxOutput = 8 << 10
)

// add reads the calls of a piece of a message, and reports whether there were any.
func (l *calls) add(c *agent.Chunk) bool {
	now := time.Now()
	for _, piece := range c.ToolCallChunks {
		have := l.find(func(x *call) bool { return x.message == c.ID && x.index == piece.Index && !x.ended })
		if have == nil {
			have = &call{message: c.ID, index: piece.Index}
			l.list = append(l.list, have)
		}
		if piece.ID != "" {
			have.id = piece.ID
		}
		have.name += piece.Name
		have.args += piece.Args
		have.begun = now
	}
	if len(c.ToolCallChunks) > 0 {
		return true
	}
	for i, whole := range c.ToolCalls {
		if l.find(func(x *call) bool { return x.id == whole.ID || x.message == c.ID && x.index == i }) == nil {
			l.list = append(l.list, &call{message: c.ID, index: i, id: whole.ID, name: whole.Name, args: string(whole.Args), begun: now})
		}
	}
	if more := len(l.list) - maxCalls; more > 0 {
		l.list = slices.Delete(l.list, 0, more)
	}
	return len(c.ToolCalls) > 0
}

func (l *calls) find(is func(*call) bool) *call {
	for _, c := range slices.Backward(l.list) {
		if is(c) {
			return c
		}
	}
	return nil
}

// print keeps the newest of what a call prints.
func (l *calls) print(id, text string) {
	if c := l.find(func(x *call) bool { return x.id == id }); c != nil {
		if c.output += text; len(c.output) > 2*maxOutput {
			c.output = strings.ToValidUTF8(c.output[len(c.output)-maxOutput:], "")
		}
	}
}

// decided notes what a person has decided about a call, so that the call is shown as it
// runs. The question does not say its id: it is the first one like it, or one of a turn
// that was not seen.
func (l *calls) decided(a agent.Action, d agent.Decision) {
	i := slices.IndexFunc(l.list, func(x *call) bool { return !x.ended && !x.reviewed && x.name == a.Name && sameJSON(x.args, a.Args) })
	if i < 0 {
		l.list, i = append(l.list, &call{index: -1, name: a.Name, args: string(a.Args), begun: time.Now()}), len(l.list)
	}
	c := l.list[i]
	c.reviewed, c.begun = true, time.Now()
	if d.Edited != nil {
		c.name, c.args = d.Edited.Name, string(d.Edited.Args)
	}
}

func sameJSON(a string, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// finish notes the result of a call. One that was not seen to begin is made.
func (l *calls) finish(m agent.Message) *call {
	now := time.Now()
	c := l.find(func(x *call) bool { return x.id == m.ToolCallID })
	if c == nil { // one that was decided about
		if i := slices.IndexFunc(l.list, func(x *call) bool { return !x.ended && x.id == "" && x.reviewed && x.name == m.Name }); i >= 0 {
			c = l.list[i]
			c.id = m.ToolCallID
		}
	}
	switch {
	case c == nil:
		c = &call{id: m.ToolCallID, name: m.Name, begun: now}
		l.list = append(l.list, c)
	case c.ended:
		return nil
	}
	if c.begun.Before(l.last) { // it had to wait for the one before
		c.begun = l.last
	}
	c.ended, c.failed, c.result, c.took, l.last = true, m.Status == "error", m.Text(), now.Sub(c.begun), now
	return c
}

// open are the calls that have no result yet.
func (l *calls) open() []*call {
	return slices.DeleteFunc(slices.Clone(l.list), func(c *call) bool { return c.ended })
}

// forget drops calls that will have no result.
func (l *calls) forget() {
	l.list = slices.DeleteFunc(l.list, func(c *call) bool { return !c.ended })
}

// newest is the call that was made last, nil for none.
func (l *calls) newest() *call { return l.find(func(*call) bool { return true }) }

// about is what a call is about, in a few words.
func (c *call) about() string {
	var args map[string]any
	if json.Unmarshal([]byte(c.args), &args) != nil {
		return ""
	}
	var parts []string
	for _, names := range [][]string{{"language", "runtime"}, {"command", "path", "file_path", "url", "query", "name", "prompt"}} {
		for _, name := range names {
			if text, ok := args[name].(string); ok && text != "" {
				parts = append(parts, brief(text))
				break
			}
		}
	}
	return strings.Join(parts, "  ")
}

// brief is the beginning of a text on one line.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if short := []rune(text); len(short) > 60 {
		text = string(short[:59]) + "…"
	}
	return format.Printable(text)
}

// head is a call on one line of so many columns, with the time that it took and what
// else is said behind it.
func (c *call) head(took time.Duration, columns int, behind string) string {
	text, behind := "▸ "+format.Printable(c.name), "  "+seconds(took)+behind
	if room := columns - wide(text) - wide(behind) - 3; room > 8 {
		if about := clip(c.about(), room); about != "" {
			text += "  " + about
		}
	}
	return clip(text+behind, columns)
}

// line is a call that has ended, on one line.
func (c *call) line(columns int) string {
	if !c.failed {
		return c.head(c.took, columns, "  ok")
	}
	text := c.head(c.took, columns, "  failed")
	if why := c.why(); why != "" {
		text = clip(text+": "+why, columns)
	}
	return text
}

// wide is how many columns a text takes.
func wide(text string) (n int) {
	for _, c := range text {
		n += render.Width(c)
	}
	return n
}

// clip cuts a line so that it stays one.
func clip(text string, columns int) string {
	width := 0
	for i, c := range text {
		if width += render.Width(c); width >= columns {
			return text[:i]
		}
	}
	return text
}

// why is what a failed call says, in a few words.
func (c *call) why() string {
	var result map[string]json.RawMessage
	if json.Unmarshal([]byte(c.result), &result) == nil {
		var text string
		var object struct{ Message string }
		if json.Unmarshal(result["error"], &text) != nil && json.Unmarshal(result["error"], &object) == nil {
			text = object.Message
		}
		return brief(text)
	}
	return brief(c.result)
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// whole is all of a call for people: what it was given and what it gave.
func (c *call) whole() string {
	text := c.head(c.took, longLine, "") + "\n\ninput:\n" + fields(c.args)
	switch {
	case c.ended:
		text += "\noutput:\n" + fields(c.result)
	case c.output != "":
		text += "\noutput so far:\n" + c.output
	}
	return format.Text(text)
}

// fields writes a JSON object with a line for each of its values, and texts of several
// lines below their names. Other texts stay as they are.
func fields(raw string) string {
	dec := json.NewDecoder(strings.NewReader(raw))
	var b strings.Builder
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return strings.TrimRight(raw, "\n") + "\n"
	}
	for dec.More() {
		name, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return strings.TrimRight(raw, "\n") + "\n"
		}
		var text string
		switch isText := json.Unmarshal(value, &text) == nil; {
		case bytes.Equal(value, []byte("null")), isText && text == "":
		case isText && strings.Contains(text, "\n"):
			fmt.Fprintf(&b, "  %v:\n    %s\n", name, strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    "))
		case isText:
			fmt.Fprintf(&b, "  %v: %s\n", name, text)
		default:
			var pretty bytes.Buffer
			_ = json.Indent(&pretty, value, "  ", "  ") // it was decoded
			fmt.Fprintf(&b, "  %v: %s\n", name, pretty.String())
		}
	}
	return b.String()
}
