package tasks

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/task"
)

const (
	// deltaEvery is the shortest time between two pieces of a message, but for
	// what does not fit into one.
	deltaEvery = 200 * time.Millisecond
	maxDelta   = 8 << 10
	// maxSpeech bounds a whole message in memory.
	maxSpeech = 1 << 20
	// maxFinal bounds the final message of a result, in bytes of JSON.
	maxFinal = 256 << 10
	// maxCalls bounds the calls of tools that are told apart.
	maxCalls = 100_000
	// maxPrinting bounds the calls whose output is gathered at the same time.
	maxPrinting   = 100
	maxToolField  = 200 // characters
	maxToolOutput = 4 << 10
)

// narrator tells what an agent does: records of messages in pieces and whole, of
// tools, plans and usage. Its methods are safe for concurrent use.
type narrator struct {
	out *recorder
	now func() time.Time

	mu     sync.Mutex
	speech *speech // the one that goes on
	spoken int     // messages and thoughts so far
	calls  map[string]*call
	// printing are the calls of which output was gathered.
	printing int
	heard    bool // the agent did something that is seen
	final    string
	tokens   task.Tokens
}

// speech is a message or a thought as it comes.
type speech struct {
	of      string
	source  string // the agent's name of it, "" for none
	id      string
	text    strings.Builder // without secrets
	held    string          // may be the beginning of a secret
	pending string          // of text, not printed yet
	last    time.Time       // when a piece was printed
	timer   *time.Timer
}

// call is a call of a tool.
type call struct {
	tool task.Tool
	said map[string]bool // its statuses that were printed
	// output is the end of what it printed in pieces.
	output []byte
}

func newNarrator(out *recorder, now func() time.Time) *narrator {
	return &narrator{out: out, now: now, calls: make(map[string]*call)}
}

// say takes a piece of a message or a thought. One of another source or kind
// begins the next.
func (n *narrator) say(of, source, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.speech != nil && (n.speech.of != of || source != "" && n.speech.source != source) {
		n.end()
	}
	if text == "" {
		return
	}
	n.heard = true
	if n.speech == nil {
		n.spoken++
		n.speech = &speech{of: of, source: source, id: "m" + strconv.Itoa(n.spoken)}
	}
	s := n.speech
	clean, held := n.out.redact.split(s.held+text, false)
	s.held = held
	n.piece(s, clean)
}

// piece prints as much of a speech as is due. n.mu is held.
func (n *narrator) piece(s *speech, clean string) {
	if room := maxSpeech - s.text.Len(); len(clean) > room {
		clean = head(clean, room)
	}
	s.text.WriteString(clean)
	s.pending += clean
	for len(s.pending) >= maxDelta {
		n.delta(s, head(s.pending, maxDelta))
	}
	if s.pending == "" {
		return
	}
	wait := deltaEvery - n.now().Sub(s.last)
	if wait <= 0 {
		n.delta(s, s.pending)
	} else if s.timer == nil {
		s.timer = time.AfterFunc(wait, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			s.timer = nil
			if n.speech == s && s.pending != "" {
				n.delta(s, s.pending)
			}
		})
	}
}

// delta prints the beginning of what is pending. n.mu is held.
func (n *narrator) delta(s *speech, text string) {
	s.pending = s.pending[len(text):]
	s.last = n.now()
	n.out.record(task.DeltaType, &task.Delta{Of: s.of, ID: s.id, Text: text})
}

// end prints the speech that goes on as a whole. n.mu is held.
func (n *narrator) end() {
	s := n.speech
	if s == nil {
		return
	}
	n.speech = nil
	if s.timer != nil {
		s.timer.Stop()
	}
	clean, _ := n.out.redact.split(s.held, true)
	s.text.WriteString(clean)
	if s.pending += clean; s.pending != "" {
		n.delta(s, s.pending)
	}
	text := fit(s.text.String(), maxText)
	if s.of == task.ThoughtType {
		n.out.record(task.ThoughtType, &task.Thought{Text: text, ID: s.id})
		return
	}
	if strings.TrimSpace(text) != "" {
		n.final = fit(text, maxFinal)
	}
	n.out.record(task.MessageType, &task.Message{Role: task.RoleAgent, Text: text, ID: s.id})
}

// pause ends what the agent says.
func (n *narrator) pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
}

// message prints a message that comes as a whole.
func (n *narrator) message(text string) {
	n.say(task.MessageType, "", text)
	n.pause()
}

// notice prints a message that is not the model's.
func (n *narrator) notice(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	n.out.record(task.MessageType, &task.Message{Role: task.RoleAgent, Text: fit(n.out.redact.text(strings.TrimSpace(text)), maxText)})
}

// fault prints what the agent says went wrong.
func (n *narrator) fault(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	n.out.record(task.MessageType, &task.Message{Role: task.RoleError, Text: fit(n.out.redact.text(text), maxText)})
}

// tool takes what is known about a call of a tool, and prints it once for each
// status. Fields that are empty say nothing new.
func (n *narrator) tool(t task.Tool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	n.heard = true
	c := n.call(t)
	if c == nil {
		return
	}
	if c.tool.Status == "" {
		c.tool.Status = "pending"
	}
	if c.said[c.tool.Status] {
		return
	}
	c.said[c.tool.Status] = true
	printed := c.tool
	if printed.Status == "completed" || printed.Status == "error" {
		output := t.Output
		if output == "" {
			output = string(c.output)
		}
		printed.Output = tail(n.out.redact.text(output), maxToolOutput)
		if c.output != nil {
			n.printing--
		}
		c.output = nil
	}
	n.out.record(task.ToolType, &printed)
}

// learn takes what is known about a call of a tool and prints nothing.
func (n *narrator) learn(t task.Tool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.call(t)
}

// call enters what is known about a call; nil when there are too many. n.mu is
// held.
func (n *narrator) call(t task.Tool) *call {
	c := n.calls[t.ID]
	if c == nil {
		if len(n.calls) >= maxCalls {
			return nil
		}
		c = &call{said: make(map[string]bool)}
		c.tool.ID = n.out.redact.text(t.ID)
		n.calls[t.ID] = c
	}
	if c.tool.Name == "" {
		// Some agents put the arguments into a later title.
		c.tool.Name = runes(n.out.redact.text(t.Name), maxToolField)
	}
	for _, f := range []struct {
		to   *string
		from string
	}{{&c.tool.Path, t.Path}, {&c.tool.Kind, t.Kind}, {&c.tool.Status, t.Status}} {
		if f.from != "" {
			*f.to = runes(n.out.redact.text(f.from), maxToolField)
		}
	}
	return c
}

// toolOutput takes a piece of what a call prints.
func (n *narrator) toolOutput(id, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.call(task.Tool{ID: id}); c != nil && (c.output != nil || n.printing < maxPrinting) {
		if c.output == nil {
			n.printing++
		}
		keep := maxToolOutput + n.out.redact.longest
		if c.output = append(c.output, text...); len(c.output) > 2*keep {
			c.output = append(c.output[:0], c.output[len(c.output)-keep:]...)
		}
	}
}

// known returns what is known about a call of a tool.
func (n *narrator) known(id string) task.Tool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.calls[id]; c != nil {
		return c.tool
	}
	return task.Tool{}
}

const maxPlan = 100

func (n *narrator) plan(p task.Plan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	n.heard = true
	p.Entries = p.Entries[:min(len(p.Entries), maxPlan)]
	for i := range p.Entries {
		p.Entries[i].Content = head(n.out.redact.text(p.Entries[i].Content), 1<<10)
	}
	n.out.record(task.PlanType, &p)
}

// use takes what the models have used so far.
func (n *narrator) use(update func(t *task.Tokens)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.tokens
	update(&n.tokens)
	if n.tokens != before {
		shown := n.tokens
		n.out.record(task.UsageType, &shown)
	}
}

// summary is what a result has of it.
func (n *narrator) summary() (final string, tokens task.Tokens, heard bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	return n.final, n.tokens, n.heard
}
