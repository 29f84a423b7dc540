package loop

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// maxOutput bounds what watchers are told of what one call prints.
const maxOutput = 256 << 10

// act is the node that runs the tools which the newest answer calls, one after the
// other, in their order: later ones may build on what earlier ones left.
func (r *run) act(ctx context.Context) error {
	t, err := r.started(conversation.NodeTools)
	if err != nil {
		return err
	}
	answer, at := newestAnswer(r.state)
	if at < 0 {
		return &failure{kind: "ValueError", message: "the thread has no answer whose tools could run"}
	}
	todo := unanswered(r.state, at)
	decided, err := r.decide(ctx, t, &answer, todo)
	if err != nil {
		return err
	}
	var results []conversation.Message
	if decided.edited {
		results = append(results, answer) // takes the place of the one that is there
	}
	for _, c := range answer.InvalidToolCalls {
		if todo[c.ID] {
			results = append(results, toolMessage(c.ID, c.Name, fmt.Sprintf("%s. Call the tool again, with valid JSON.", c.Error), true))
		}
	}
	for _, c := range answer.ToolCalls {
		if !todo[c.ID] {
			continue
		}
		m, said := decided.said[c.ID]
		switch {
		case said:
		case ctx.Err() != nil:
			m = toolMessage(c.ID, c.Name, notRun, true)
		default:
			m = r.call(ctx, c)
		}
		if errors.Is(context.Cause(ctx), ErrStopping) {
			return ErrStopping // the next daemon says that nobody knows how it ended
		}
		if err := r.told(m); err != nil {
			return err
		}
		results = append(results, m)
	}
	if err := r.ended(t, conversation.TaskEnded{Messages: results}); err != nil {
		return err
	}
	state, err := conversation.Add(r.state, results)
	if err != nil {
		return err
	}
	if err := r.commit(ctx, conversation.SourceLoop, []string{conversation.NodeAgent}, state); err != nil {
		return err
	}
	return ctx.Err()
}

func (r *run) told(m conversation.Message) error {
	return r.tell(conversation.Event{Chunk: &conversation.Chunk{
		Node: conversation.NodeTools, Step: r.at.Step + 1, Message: conversation.MessageChunk{Message: m, Last: true},
	}})
}

// call runs one tool.
func (r *run) call(ctx context.Context, c conversation.ToolCall) conversation.Message {
	if r.start.Again && r.asked == 0 {
		// The daemon that began this call is gone, and with it what it knew.
		return toolMessage(c.ID, c.Name, "The server was restarted while this ran, and its result is lost: it may have been done, in part or not at all. "+
			"Look how things are before you do it again.", true)
	}
	var left atomic.Int64 // tools tell from goroutines of their own
	left.Store(maxOutput)
	res := r.Tools.Call(ctx, Call{ID: c.ID, Name: c.Name, Arguments: c.Args, Output: func(session, stream, text string) {
		if left.Add(-int64(len(text))) < 0 {
			return // the result has what counts
		}
		// What cannot be told here is told by the result, or ends the run there.
		_ = r.notice(conversation.Notice{Type: conversation.NoticeOutput, ToolCallID: c.ID, SessionID: session, Stream: stream, Text: text})
	}})
	if len(res.Images) > 0 {
		r.images[c.ID] = res.Images
	}
	m := toolMessage(c.ID, c.Name, res.Content, res.Failed)
	m.Artifact = res.Artifact
	return m
}

func toolMessage(call, name, content string, failed bool) conversation.Message {
	m := conversation.Message{
		Type: conversation.Tool, ID: uuid.NewString(), ToolCallID: call, Name: name, Content: conversation.Text(content), Status: conversation.StatusSuccess,
	}
	if failed {
		m.Status = conversation.StatusError
	}
	return m
}

// obey does what a command says before the run goes on.
func (r *run) obey(ctx context.Context, c *conversation.Command) error {
	move, err := c.Move()
	state, next := r.state, r.at.Next
	if err == nil {
		state, err = conversation.Add(state, move.Messages)
	}
	if err != nil {
		return &failure{kind: "ValueError", message: errs.Public(err).Message, cause: err}
	}
	switch move.Node {
	case "":
		if !move.Updates {
			return nil
		}
	case conversation.NodeEnd:
		next = nil
	default:
		next = []string{move.Node}
	}
	return r.commit(ctx, conversation.SourceUpdate, next, state)
}
