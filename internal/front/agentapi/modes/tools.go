package modes

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/cubbyhq/cubby/internal/conversation"
)

func stepTag(step int) string { return "graph:step:" + strconv.Itoa(step) }

// toolEvent is one of the mode tools.
type toolEvent struct {
	Event  string `json:"event"`
	CallID string `json:"toolCallId"`
	Name   string `json:"name"`
	Input  string `json:"input,omitempty"`
	Data   any    `json:"data,omitempty"`
	Output any    `json:"output,omitempty"`
	Error  any    `json:"error,omitempty"`
}

// toolsStarted tells of the calls that a task makes. In a run that goes on from a
// state these are in the state, and not known before it is read; each of them begins
// with its first sign of life then.
func (r *Renderer) toolsStarted(calls []conversation.ToolCall) {
	r.work.calls = calls
	for _, c := range calls {
		r.emit(Tools, string(Tools), fixed(toolEvent{Event: "on_tool_start", CallID: c.ID, Name: c.Name, Input: string(c.Args)}))
		r.callback(r.tool(c.ID, c.Name), "on_tool_start", fixed(map[string]any{"input": map[string]any{"input": string(c.Args)}}))
	}
}

func (r *Renderer) tool(call, name string) callback {
	return callback{name, idOf("tool", r.work.ID, call), []string{}, r.metadata()}
}

// callOf finds a call; it is there when the run made it.
func (r *Renderer) callOf(id string) (conversation.ToolCall, bool) {
	for _, c := range r.work.calls {
		if c.ID == id {
			return c, true
		}
	}
	return conversation.ToolCall{}, false
}

// progress tells what a tool prints.
func (r *Renderer) progress(raw json.RawMessage) {
	if !r.set[Tools] {
		return // nothing comes after it that has a number
	}
	var n conversation.Notice
	if json.Unmarshal(raw, &n) != nil || n.Type != conversation.NoticeOutput {
		return
	}
	c, _ := r.callOf(n.ToolCallID)
	r.emit(Tools, string(Tools), fixed(toolEvent{Event: "on_tool_event", CallID: n.ToolCallID, Name: c.Name, Data: raw}))
}

// toolEnded tells the result of a call.
func (r *Renderer) toolEnded(m conversation.Message) {
	c, known := r.callOf(m.ToolCallID)
	e := toolEvent{Event: "on_tool_end", CallID: m.ToolCallID, Name: m.Name, Output: m}
	if m.Status == conversation.StatusError {
		e = toolEvent{Event: "on_tool_error", CallID: m.ToolCallID, Name: m.Name, Error: conversation.TextOf(m.Content)}
	}
	if !known {
		// The state has the call; clients that are told of an end want a beginning.
		checkpoint := r.work.Checkpoint
		r.emit(Tools, string(Tools), func(ctx context.Context, s States) (any, error) {
			list, err := messagesAt(ctx, s, checkpoint)
			return toolEvent{Event: "on_tool_start", CallID: m.ToolCallID, Name: m.Name, Input: argumentsOf(list, m.ToolCallID)}, err
		})
	} else {
		r.next++
	}
	r.emit(Tools, string(Tools), fixed(e))
	r.callback(r.tool(m.ToolCallID, m.Name), "on_tool_end", fixed(map[string]any{"output": m, "input": map[string]any{"input": string(c.Args)}}))
}

func argumentsOf(list []conversation.Message, call string) string {
	for _, m := range list {
		for _, c := range m.ToolCalls {
			if c.ID == call {
				return string(c.Args)
			}
		}
	}
	return ""
}
