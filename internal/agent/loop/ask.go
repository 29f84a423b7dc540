package loop

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/llm"
)

// maxFolds bounds how often a request is made smaller.
const maxFolds = 6

// ask is the node that asks the model.
func (r *run) ask(ctx context.Context) error {
	if r.asked++; r.MaxTurns > 0 && r.asked > r.MaxTurns {
		return r.limited(fmt.Sprintf("the model was asked %d times, which is the most, and was not done", r.MaxTurns))
	}
	if r.MaxTokens > 0 && r.tokens >= r.MaxTokens {
		return &failure{kind: "TokenBudgetError", message: fmt.Sprintf("the run has used %d tokens, and its budget is %d", r.tokens, r.MaxTokens)}
	}
	t, err := r.started(conversation.NodeAgent)
	if err != nil {
		return err
	}
	w := &writer{run: r, id: r.answerID(t)}
	err = r.stream(ctx, w)
	r.count(w.answer.Usage)
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrStopping):
		return ErrStopping
	case ctx.Err() != nil:
		return r.breakOff(ctx, t, w)
	case err != nil:
		f := faultOf(err)
		if told := r.ended(t, conversation.TaskEnded{Error: f.Error()}); told != nil {
			return told
		}
		return f
	}
	m := w.message()
	if r.fold > 0 {
		m.ResponseMetadata[foldKey] = number(r.fold)
	}
	if err := w.finish(m); err != nil {
		return err
	}
	if err := r.ended(t, conversation.TaskEnded{Messages: []conversation.Message{m}}); err != nil {
		return err
	}
	state, err := conversation.Add(r.state, []conversation.Message{m})
	if err != nil {
		return err
	}
	var next []string
	if len(m.ToolCalls)+len(m.InvalidToolCalls) > 0 {
		next = []string{conversation.NodeTools}
	}
	c := r.checkpoint(conversation.SourceLoop, next)
	// With the calls, and not later: whoever goes on after a crash or a cancel is bound by it.
	c.Approval = asksFor(undecided(r.at.Approval, state), r.Policy, m)
	return r.add(ctx, c, state)
}

// answerID is the id of the message that a task makes. It is another one in each run: one
// that answers an old question anew makes another message. So does the next daemon:
// clients join pieces by the id, and have some of what the last one began.
func (r *run) answerID(t conversation.Task) string {
	seed := r.start.RunID + " " + t.ID
	if r.start.Again {
		seed += " " + conversation.NewID()
	}
	return "run--" + uuid.NewSHA1(conversation.GraphNamespace, []byte(seed)).String()
}

// breakOff ends the answer of a canceled run: what there is of its text is kept, what
// was to be called is not.
func (r *run) breakOff(ctx context.Context, t conversation.Task, w *writer) error {
	m := w.message()
	m.ToolCalls, m.InvalidToolCalls = nil, nil
	m.ResponseMetadata["finish_reason"] = conversation.Text("canceled")
	if conversation.TextOf(m.Content) == "" {
		return ctx.Err()
	}
	if err := w.finish(m); err != nil {
		return err
	}
	if err := r.ended(t, conversation.TaskEnded{Messages: []conversation.Message{m}}); err != nil {
		return err
	}
	state, err := conversation.Add(r.state, []conversation.Message{m})
	if err != nil {
		return err
	}
	if err := r.commit(ctx, conversation.SourceLoop, nil, state); err != nil {
		return err
	}
	return ctx.Err()
}

// stream asks the model, in smaller words when the messages are too long for it, and
// without images when it has no eyes.
func (r *run) stream(ctx context.Context, w *writer) error {
	for {
		shown := r.request(ctx)
		err := r.attempt(ctx, shown, w)
		var fault *llm.Error
		if !errors.As(err, &fault) || w.begun || ctx.Err() != nil {
			return err
		}
		switch {
		case fault.Fault == llm.TooLong && r.fold < maxFolds:
			r.fold++
			left := r.folded()
			if left == 0 && r.fold > 1 {
				return err // there is nothing older
			}
			if err := r.notice(conversation.Notice{
				Type: conversation.NoticeFolded, Messages: left,
				Message: "the conversation is longer than the model can take in: it is shown earlier turns in short",
			}); err != nil {
				return err
			}
		case fault.Fault == llm.Unsupported && r.eyes && hasImages(shown.Messages):
			if r.Sight != nil {
				r.Sight.Blind()
			}
			r.eyes = false
		default:
			return err
		}
	}
}

func (r *run) attempt(ctx context.Context, q llm.Request, w *writer) error {
	for e, err := range r.Model.Stream(ctx, q) {
		if err != nil {
			return err
		}
		if again, ok := e.(llm.Retrying); ok {
			n := conversation.Notice{Type: conversation.NoticeRetry, RetryAfter: again.After.Milliseconds()}
			if again.Err != nil {
				n.Message = again.Err.Error()
			}
			if err := r.notice(n); err != nil {
				return err
			}
			continue
		}
		if err := w.add(e); err != nil {
			return err
		}
	}
	if w.answer.Stop == "" {
		return &llm.Error{Fault: llm.Broken, Provider: r.Provider, Message: "the answer has no end"}
	}
	return nil
}

// count adds what an answer took.
func (r *run) count(u llm.Usage) {
	r.tokens += u.Input + u.Output
	if u.Cost != nil {
		sum := *u.Cost
		if r.cost != nil {
			sum += *r.cost
		}
		r.cost = &sum
	}
}

// faults names what a provider can lack, as Python's clients do.
var faults = map[llm.Fault]string{
	llm.Denied: "AuthenticationError", llm.NoModel: "ModelNotFoundError", llm.Invalid: "BadRequestError", llm.TooLong: "ContextLengthError",
	llm.Unsupported: "UnsupportedError", llm.Limited: "RateLimitError", llm.Quota: "QuotaError",
	llm.Unavailable: "ModelUnavailableError", llm.Broken: "BrokenStreamError",
}

// faultOf is the end of a run whose model did not answer. An error that is not a
// provider's is no fault of the run.
func faultOf(err error) error {
	var fault *llm.Error
	if !errors.As(err, &fault) {
		return err
	}
	return &failure{kind: faults[fault.Fault], message: fault.Error(), cause: err}
}

// writer makes a message out of an answer while it comes, and tells the pieces.
type writer struct {
	run    *run
	id     string
	answer llm.Answer
	begun  bool
	blocks bool // the content is a list: something in it is not text
	index  int  // of the block that grows
	kind   string
}

// add takes a piece in.
func (w *writer) add(e llm.Event) error {
	w.answer.Add(e)
	var piece conversation.MessageChunk
	switch e := e.(type) {
	case llm.TextDelta:
		if e.Text == "" {
			return nil
		}
		piece.Content = w.text(e.Text)
	case llm.ReasoningDelta:
		piece.Content = w.thought(e)
	case llm.ImageOut:
		piece.Content = w.block("image", imageBlock(e.Image))
	case llm.ToolCallDelta:
		piece.ToolCallChunks = []conversation.ToolCallChunk{{Index: e.Index, ID: e.ID, Name: e.Name, Args: e.Arguments, Type: "tool_call_chunk"}}
	default:
		return nil
	}
	return w.tell(piece)
}

func (w *writer) tell(piece conversation.MessageChunk) error {
	w.begun = true
	piece.Type, piece.ID = conversation.AI, w.id
	return w.run.tell(conversation.Event{Chunk: &conversation.Chunk{
		Node: conversation.NodeAgent, Step: w.run.at.Step + 1, Message: piece, Model: w.run.Name, Provider: w.run.Provider,
	}})
}

func (w *writer) text(s string) json.RawMessage {
	if !w.blocks {
		w.kind = "text"
		return conversation.Text(s)
	}
	return w.block("text", map[string]any{"type": "text", "text": s})
}

func (w *writer) thought(e llm.ReasoningDelta) json.RawMessage {
	b := map[string]any{"type": "reasoning", "reasoning": e.Text}
	if e.Opaque != nil {
		b["extras"] = e.Opaque
	}
	return w.block(fmt.Sprintf("reasoning %d", e.Index), b)
}

// block is a piece of a content that is a list. Pieces of one block have its index.
func (w *writer) block(kind string, b map[string]any) json.RawMessage {
	if !w.blocks {
		w.blocks = true
		if w.kind != "" { // the text so far becomes the first block, when clients join the two
			w.index++
		}
	} else if kind != w.kind || kind == "image" {
		w.index++
	}
	w.kind = kind
	b["index"] = w.index
	raw, err := json.Marshal([]any{b})
	if err != nil {
		panic(err) // texts and what was JSON
	}
	return raw
}

func imageBlock(i llm.Image) map[string]any {
	where := i.URL
	if len(i.Data) > 0 {
		where = "data:" + i.MIME + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
	}
	return map[string]any{"type": "image_url", "image_url": map[string]any{"url": where}}
}

// message is the whole of what there is.
func (w *writer) message() conversation.Message {
	a := &w.answer
	m := conversation.Message{Type: conversation.AI, ID: w.id, ResponseMetadata: map[string]json.RawMessage{}}
	name := a.Model
	if name == "" {
		name = w.run.Name
	}
	m.ResponseMetadata["model_name"] = conversation.Text(name)
	m.ResponseMetadata["model_provider"] = conversation.Text(w.run.Provider)
	if a.Stop != "" {
		m.ResponseMetadata["finish_reason"] = conversation.Text(string(a.Stop))
	}
	var text strings.Builder
	var blocks []any
	plain := true
	for _, p := range a.Parts {
		switch p := p.(type) {
		case llm.Text:
			text.WriteString(p.Text)
			blocks = append(blocks, map[string]any{"type": "text", "text": p.Text, "index": len(blocks)})
		case llm.Reasoning:
			plain = false
			b := map[string]any{"type": "reasoning", "reasoning": p.Text, "index": len(blocks)}
			if p.Opaque != nil {
				b["extras"] = p.Opaque
			}
			blocks = append(blocks, b)
		case llm.Image:
			plain = false
			b := imageBlock(p)
			b["index"] = len(blocks)
			blocks = append(blocks, b)
		case llm.ToolCall:
			addCall(&m, p)
		}
	}
	m.Content = conversation.Text(text.String())
	if !plain {
		raw, err := json.Marshal(blocks)
		if err != nil {
			panic(err) // texts and what was JSON
		}
		m.Content = raw
	}
	if a.Stop == llm.StopRefused && text.Len() == 0 && plain {
		m.Content = conversation.Text("The model would not answer this.")
	}
	if u := a.Usage; u.Input+u.Output > 0 {
		m.Usage = &conversation.Usage{
			Input: u.Input, Output: u.Output, Total: u.Input + u.Output, Cost: u.Cost,
			InputDetails:  map[string]int{"cache_read": u.CacheRead, "cache_creation": u.CacheWrite},
			OutputDetails: map[string]int{"reasoning": u.Reasoning},
		}
	}
	return m
}

// addCall adds a call to a message: one whose arguments are no object cannot be made.
func addCall(m *conversation.Message, c llm.ToolCall) {
	args := c.Arguments
	if strings.TrimSpace(args) == "" {
		args = "{}"
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &object); err != nil || object == nil {
		m.InvalidToolCalls = append(m.InvalidToolCalls, conversation.InvalidToolCall{
			Name: c.Name, Args: c.Arguments, ID: c.ID, Error: "the arguments are not a JSON object", Type: "invalid_tool_call",
		})
		return
	}
	m.ToolCalls = append(m.ToolCalls, conversation.ToolCall{Name: c.Name, Args: json.RawMessage(args), ID: c.ID, Type: "tool_call", Extras: c.Opaque})
}

// finish tells the last piece, which has what only the end knows.
func (w *writer) finish(m conversation.Message) error {
	last := conversation.MessageChunk{Message: conversation.Message{Usage: m.Usage, ResponseMetadata: m.ResponseMetadata}, Last: true}
	last.Content = conversation.Text("")
	if w.blocks {
		last.Content = json.RawMessage("[]")
	}
	if len(w.answer.Parts) == 0 && conversation.TextOf(m.Content) != "" {
		last.Content = m.Content // cubby's own words
	}
	return w.tell(last)
}

func number(n int) json.RawMessage { return json.RawMessage(fmt.Sprint(n)) }
