package modes

import (
	"context"
	"strings"

	"github.com/cubbyhq/cubby/internal/conversation"
)

// callback is a part of a run that LangChain's callbacks are about.
type callback struct {
	name, id string
	tags     []string
	meta     metadata
}

type callbackEvent struct {
	Event     string   `json:"event"`
	Data      any      `json:"data"`
	Name      string   `json:"name"`
	Tags      []string `json:"tags"`
	RunID     string   `json:"run_id"`
	Metadata  metadata `json:"metadata"`
	ParentIDs []string `json:"parent_ids"`
}

// graph is the run as a whole.
func (r *Renderer) graph() callback {
	return callback{"LangGraph", r.run.ID, orNoNodes(r.run.Request.Tags), r.runMetadata()}
}

// node is a task.
func (r *Renderer) node(t conversation.TaskStarted) callback {
	return callback{t.Node, idOf("node", t.ID), []string{stepTag(t.Step)}, r.metadata()}
}

// callback adds an event of the mode events.
func (r *Renderer) callback(about callback, name string, data payload) {
	if !r.set[Events] {
		r.next++
		return
	}
	parents := []string{}
	if about.id != r.run.ID {
		parents = append(parents, r.run.ID)
	}
	r.emit(Events, string(Events), func(ctx context.Context, s States) (any, error) {
		v, err := data(ctx, s)
		return callbackEvent{name, v, about.name, about.tags, about.id, about.meta, parents}, err
	})
}

// asks is the input of the model, whose shape is a list of conversations.
func asks(checkpoint string) payload {
	return func(ctx context.Context, s States) (any, error) {
		m, err := messagesAt(ctx, s, checkpoint)
		return map[string]any{"messages": [][]conversation.Message{values(m).Messages}}, err
	}
}

// modelPiece is a piece of an answer; the first one says that the model was asked.
func (r *Renderer) modelPiece(piece conversation.MessageChunk, meta metadata) {
	if r.work.asked {
		r.next++
	} else {
		r.work.asked = true
		// An answer has the name of the call that gave it.
		id, named := strings.CutPrefix(piece.ID, "run--")
		if !named {
			id = idOf("model", r.work.ID)
		}
		r.work.model = callback{"ChatModel", id, orNoNodes(r.run.Request.Tags), meta}
		input := asks(r.work.Checkpoint)
		r.callback(r.work.model, "on_chat_model_start", func(ctx context.Context, s States) (any, error) {
			v, err := input(ctx, s)
			return map[string]any{"input": v}, err
		})
	}
	r.callback(r.work.model, "on_chat_model_stream", fixed(map[string]any{"chunk": piece}))
}

// nodeEnded is what callbacks say of a task's end. Of one that failed they say
// nothing.
func (r *Renderer) nodeEnded(t conversation.TaskEnded) {
	if t.Messages == nil {
		r.next += 3
		return
	}
	checkpoint := r.work.Checkpoint
	if r.work.asked && len(t.Messages) > 0 {
		input := asks(checkpoint)
		r.callback(r.work.model, "on_chat_model_end", func(ctx context.Context, s States) (any, error) {
			v, err := input(ctx, s)
			return map[string]any{"output": t.Messages[len(t.Messages)-1], "input": v}, err
		})
	} else {
		r.next++
	}
	added := map[string]any{"messages": t.Messages}
	r.callback(r.node(r.work.TaskStarted), "on_chain_stream", fixed(map[string]any{"chunk": added}))
	r.callback(r.node(r.work.TaskStarted), "on_chain_end", func(ctx context.Context, s States) (any, error) {
		m, err := messagesAt(ctx, s, checkpoint)
		return map[string]any{"output": added, "input": values(m)}, err
	})
}
