package modes

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/cubbyhq/cubby/internal/conversation"
)

// metadata is an object for people and tools that look at a run.
type metadata map[string]any

// runMetadata is what is said of the run with each of its parts.
func (r *Renderer) runMetadata() metadata {
	m := metadata{
		"graph_id": r.run.GraphID, "assistant_id": r.run.AssistantID, "thread_id": r.run.ThreadID, "run_id": r.run.ID,
		"run_attempt": r.attempt, "langgraph_version": r.run.Version, "langgraph_plan": "self-hosted", "langgraph_host": "cubby",
	}
	for k, v := range r.run.Metadata {
		if _, has := m[k]; !has {
			m[k] = v
		}
	}
	return m
}

// metadata is what is said of the newest task.
func (r *Renderer) metadata() metadata {
	t := r.work.TaskStarted
	m := r.runMetadata()
	m["langgraph_step"], m["langgraph_node"], m["langgraph_triggers"], m["langgraph_path"] = t.Step, t.Node, t.Triggers, Path(t.Node)
	m["langgraph_checkpoint_ns"] = t.Node + ":" + t.ID
	m["checkpoint_ns"] = m["langgraph_checkpoint_ns"]
	return m
}

// chunkMetadata is the same for all pieces that a task makes. It is made when a client
// is shown it.
func (r *Renderer) chunkMetadata(c conversation.Chunk) metadata {
	if r.work.about != nil || !r.set[MessagesTuple] && !r.set[Messages] && !r.set[Events] {
		return r.work.about
	}
	m := r.metadata()
	if c.Model != "" {
		m["ls_provider"], m["ls_model_name"], m["ls_model_type"] = c.Provider, c.Model, "chat"
	}
	r.work.about = m
	return m
}

// tagged is the metadata of a piece that comes alone.
func (r *Renderer) tagged(c conversation.Chunk, meta metadata) metadata {
	m := maps.Clone(meta)
	m["tags"] = orNoNodes(r.run.Request.Tags)
	if c.Node == conversation.NodeTools {
		m["tags"], m["name"] = []string{stepTag(c.Step)}, c.Node
	}
	return m
}

// chunk shows a piece of a message.
func (r *Renderer) chunk(c conversation.Chunk) {
	piece := c.Message
	piece.Last = false // it is of journals
	meta := r.chunkMetadata(c)
	r.emit(MessagesTuple, "messages", func(context.Context, States) (any, error) { return []any{piece, r.tagged(c, meta)}, nil })
	if c.Message.Type != conversation.AI {
		r.toolEnded(c.Message.Message)
		return
	}
	g, begun := r.messages[piece.ID]
	if !begun {
		g = new(growing)
		r.messages[piece.ID] = g
		r.emit(Messages, "messages/metadata", fixed(map[string]any{piece.ID: map[string]any{"metadata": meta}}))
	} else {
		r.next++
	}
	g.add(c.Message)
	if whole := g.MessageChunk; r.set[Messages] {
		whole.ToolCallChunks = append([]conversation.ToolCallChunk(nil), whole.ToolCallChunks...)
		r.emit(Messages, "messages/partial", func(context.Context, States) (any, error) { return []any{callsOf(whole)}, nil })
	} else {
		r.next++
	}
	r.modelPiece(piece, meta)
}

// completed shows the messages that a state has and the one before had not. The
// first state that a run shows is new as a whole.
func (r *Renderer) completed(checkpoint string, known bool) {
	if known {
		done := []conversation.Message{}
		for _, m := range r.fresh {
			if m.Type != conversation.Remove {
				done = append(done, m)
			}
		}
		if len(done) == 0 {
			r.next++
			return
		}
		r.emit(Messages, "messages/complete", fixed(done))
		return
	}
	r.emit(Messages, "messages/complete", func(ctx context.Context, s States) (any, error) {
		m, err := messagesAt(ctx, s, checkpoint)
		if len(m) == 0 {
			return nil, err
		}
		return m, err
	})
}

// growing is a message as far as it has come.
type growing struct{ conversation.MessageChunk }

// add joins a piece to it.
func (g *growing) add(piece conversation.MessageChunk) {
	if g.Type == "" {
		g.MessageChunk = piece
		g.Last = false
		g.ToolCallChunks = append([]conversation.ToolCallChunk(nil), piece.ToolCallChunks...)
		return
	}
	g.Content = join(g.Content, piece.Content)
	for _, c := range piece.ToolCallChunks {
		g.call(c)
	}
	if piece.Usage != nil {
		g.Usage = piece.Usage
	}
	if len(piece.ResponseMetadata) > 0 {
		g.ResponseMetadata = piece.ResponseMetadata
	}
}

func (g *growing) call(c conversation.ToolCallChunk) {
	for i := range g.ToolCallChunks {
		if have := &g.ToolCallChunks[i]; have.Index == c.Index {
			have.Args += c.Args
			if c.ID != "" {
				have.ID = c.ID
			}
			have.Name += c.Name
			return
		}
	}
	g.ToolCallChunks = append(g.ToolCallChunks, c)
}

// callsOf adds the calls as far as they can be read.
func callsOf(m conversation.MessageChunk) conversation.MessageChunk {
	m.ToolCalls = nil
	for _, c := range m.ToolCallChunks {
		args := json.RawMessage(`{}`)
		if json.Valid([]byte(c.Args)) {
			args = json.RawMessage(c.Args)
		}
		m.ToolCalls = append(m.ToolCalls, conversation.ToolCall{Name: c.Name, Args: args, ID: c.ID, Type: "tool_call"})
	}
	return m
}

// join adds to content: text to text, and blocks of one index to each other.
func join(have, more json.RawMessage) json.RawMessage {
	if len(more) == 0 {
		return have
	}
	var a, b string
	if json.Unmarshal(have, &a) == nil && json.Unmarshal(more, &b) == nil {
		return conversation.Text(a + b)
	}
	blocks := append(blocksOf(have), blocksOf(more)...)
	var out []map[string]any
	for _, block := range blocks {
		if i := sameIndex(out, block); i >= 0 {
			for k, v := range block {
				was, isText := out[i][k].(string)
				if now, both := v.(string); isText && both && (k == "text" || k == "reasoning") {
					out[i][k] = was + now
					continue
				}
				out[i][k] = v
			}
			continue
		}
		out = append(out, block)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return have
	}
	return raw
}

func blocksOf(content json.RawMessage) []map[string]any {
	var text string
	if json.Unmarshal(content, &text) == nil {
		if text == "" {
			return nil
		}
		return []map[string]any{{"type": "text", "text": text}}
	}
	var blocks []map[string]any
	_ = json.Unmarshal(content, &blocks) // what is neither has none
	return blocks
}

func sameIndex(list []map[string]any, block map[string]any) int {
	index, ok := block["index"]
	if !ok {
		return -1
	}
	for i, have := range list {
		if have["index"] == index && have["type"] == block["type"] {
			return i
		}
	}
	return -1
}
