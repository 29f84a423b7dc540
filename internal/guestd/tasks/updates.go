package tasks

import (
	"encoding/json"
	"strings"

	"github.com/cubbyhq/cubby/internal/task"
)

// greeting is what is read of an agent's answer to initialize.
type greeting struct {
	Agent struct {
		Name string `json:"name"`
	} `json:"agentInfo"`
	Capabilities struct {
		LoadSession bool `json:"loadSession"`
		Session     struct {
			Resume *struct{} `json:"resume"`
		} `json:"sessionCapabilities"`
	} `json:"agentCapabilities"`
}

// session is what is read of a session that was made or taken up.
type session struct {
	SessionID string `json:"sessionId"`
	Options   []struct {
		ID       string `json:"id"`
		Category string `json:"category"`
	} `json:"configOptions"`
	Modes struct {
		Available []struct {
			ID string `json:"id"`
		} `json:"availableModes"`
	} `json:"modes"`
}

// hasMode reports whether a session can be in a mode.
func (s session) hasMode(mode string) bool {
	for _, m := range s.Modes.Available {
		if m.ID == mode {
			return true
		}
	}
	return false
}

// modelOption is the option by which the model is chosen, "" where it has a method.
func (s session) modelOption() string {
	for _, o := range s.Options {
		if o.Category == "model" || o.ID == "model" {
			return o.ID
		}
	}
	return ""
}

// permissionQuestion is what is read of session/request_permission.
type permissionQuestion struct {
	ToolCall toolCall `json:"toolCall"`
	Options  []struct {
		OptionID string `json:"optionId"`
		Name     string `json:"name"`
		Kind     string `json:"kind"`
	} `json:"options"`
}

// promptAnswer is what is read of the answer to session/prompt.
type promptAnswer struct {
	StopReason string `json:"stopReason"`
	Usage      *struct {
		Input      int64 `json:"inputTokens"`
		Output     int64 `json:"outputTokens"`
		Thought    int64 `json:"thoughtTokens"`
		CacheRead  int64 `json:"cachedReadTokens"`
		CacheWrite int64 `json:"cachedWriteTokens"`
		Total      int64 `json:"totalTokens"`
	} `json:"usage"`
	Meta struct {
		// Gemini's, and that of the adapter of Codex.
		Quota struct {
			Tokens *struct {
				Input  int64 `json:"input_tokens"`
				Output int64 `json:"output_tokens"`
			} `json:"token_count"`
		} `json:"quota"`
	} `json:"_meta"`
}

func (a promptAnswer) usage(tell *narrator) {
	tell.use(func(t *task.Tokens) {
		switch u, q := a.Usage, a.Meta.Quota.Tokens; {
		case u != nil:
			*t = task.Tokens{Input: u.Input, Output: u.Output, Reasoning: u.Thought, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Total: u.Total, Cost: t.Cost}
		case q != nil:
			t.Input, t.Output, t.Total = q.Input, q.Output, q.Input+q.Output
		}
	})
}

// content is a block of content.
type content struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Resource struct {
		Text string `json:"text"`
	} `json:"resource"`
}

func (c content) text() string {
	if c.Type == "resource" {
		return c.Resource.Text
	}
	return c.Text
}

// toolCall is what is read of tool_call, and of tool_call_update.
type toolCall struct {
	ID        string          `json:"toolCallId"`
	Name      string          `json:"name"` // the tool's, of few agents
	Title     string          `json:"title"`
	Kind      string          `json:"kind"`
	Status    string          `json:"status"`
	RawInput  json.RawMessage `json:"rawInput"`
	RawOutput json.RawMessage `json:"rawOutput"`
	Locations []struct {
		Path string `json:"path"`
	} `json:"locations"`
	Content []struct {
		Type    string  `json:"type"`
		Content content `json:"content"`
	} `json:"content"`
	Meta struct {
		Claude struct {
			ToolName string          `json:"toolName"`
			Response json.RawMessage `json:"toolResponse"`
		} `json:"claudeCode"`
		// What a command printed, of agents that would use a terminal.
		Terminal struct {
			Data string `json:"data"`
		} `json:"terminal_output_delta"`
	} `json:"_meta"`
}

// tool is the call as a record has it.
func (t toolCall) tool() task.Tool {
	out := task.Tool{ID: head(t.ID, 256), Kind: t.Kind, Name: t.name(), Path: subject(t.RawInput)}
	switch {
	case out.Path != "":
	case len(t.Locations) > 0:
		out.Path = t.Locations[0].Path
	case t.Kind == "execute" && out.Name != t.Title:
		out.Path = t.Title // Gemini's, of a command
	}
	switch t.Status {
	case "in_progress":
		out.Status = "running"
	case "failed":
		out.Status = "error"
	case "pending", "completed":
		out.Status = t.Status
	}
	out.Output = t.output()
	return out
}

// name is the tool's. The title is for people, and has the arguments in it at
// times.
func (t toolCall) name() string {
	for _, name := range []string{t.Name, t.Meta.Claude.ToolName} {
		if name != "" {
			return name
		}
	}
	// Gemini's ids begin with the tool.
	if name, _, ok := strings.Cut(t.ID, "__"); ok && name != "" {
		return name
	}
	return t.Title
}

// subject is what a call is about, from the arguments of its tool.
func subject(input json.RawMessage) string {
	var args map[string]json.RawMessage
	if json.Unmarshal(input, &args) != nil {
		return ""
	}
	for _, key := range []string{"filePath", "file_path", "absolute_path", "path", "file", "pattern", "command"} {
		var text string
		if json.Unmarshal(args[key], &text) == nil && text != "" {
			return text
		}
		var argv []string
		if json.Unmarshal(args[key], &argv) == nil && len(argv) > 0 {
			return strings.Join(argv, " ")
		}
	}
	return ""
}

// output is what the call gave: the text of its content, or what the agent has of
// it elsewhere.
func (t toolCall) output() string {
	var texts []string
	for _, c := range t.Content {
		if s := c.Content.text(); c.Type == "content" && s != "" {
			texts = append(texts, unfenced(s))
		}
	}
	if len(texts) > 0 {
		return strings.Join(texts, "\n")
	}
	for _, raw := range []json.RawMessage{t.RawOutput, t.Meta.Claude.Response} {
		if s := plainText(raw); s != "" {
			return s
		}
	}
	return ""
}

// unfenced is text without the fence of Markdown around all of it.
func unfenced(s string) string {
	first, rest, ok := strings.Cut(s, "\n")
	if !ok || !strings.HasPrefix(first, "```") {
		return s
	}
	if body, ok := strings.CutSuffix(strings.TrimRight(rest, "\n"), "```"); ok && !strings.Contains(body, "\n```") {
		return strings.TrimSuffix(body, "\n")
	}
	return s
}

// plainText is the text of a tool's output in whatever form.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return ""
	}
	var texts []string
	for _, key := range []string{"output", "formatted_output", "aggregated_output", "stdout", "stderr", "error"} {
		if json.Unmarshal(fields[key], &s) == nil && s != "" {
			texts = append(texts, s)
			if key != "stdout" {
				break
			}
		}
	}
	return strings.Join(texts, "\n")
}

// update takes an update of the session. Those that are not known are passed over.
func (c *client) update(raw json.RawMessage) {
	var u struct {
		Kind      string           `json:"sessionUpdate"`
		MessageID string           `json:"messageId"`
		Content   json.RawMessage  `json:"content"`
		Entries   []task.PlanEntry `json:"entries"`
		Meta      struct {
			Codex struct {
				Thread struct {
					Type string `json:"type"`
				} `json:"threadStatus"`
			} `json:"codex"`
		} `json:"_meta"`
		Cost *struct {
			Amount   float64 `json:"amount"`
			Currency string  `json:"currency"`
		} `json:"cost"`
	}
	if json.Unmarshal(raw, &u) != nil {
		return
	}
	switch u.Kind {
	case "agent_message_chunk", "agent_thought_chunk":
		var block content
		if json.Unmarshal(u.Content, &block) != nil {
			return
		}
		of := task.MessageType
		if u.Kind == "agent_thought_chunk" {
			of = task.ThoughtType
		}
		if c.codex.Load() && u.MessageID == "" && of == task.MessageType {
			c.notice(block.text())
			return
		}
		c.tell.say(of, u.MessageID, block.text())
	case "tool_call", "tool_call_update":
		var call toolCall
		if json.Unmarshal(raw, &call) != nil || call.ID == "" {
			return
		}
		if d := call.Meta.Terminal.Data; d != "" {
			c.tell.toolOutput(call.ID, d)
		}
		if u.Kind == "tool_call" || call.Status != "" {
			c.tell.tool(call.tool())
		} else {
			c.tell.learn(call.tool())
		}
	case "session_info_update":
		if t := u.Meta.Codex.Thread.Type; t != "" {
			c.broken.Store(t == "systemError")
		}
	case "plan":
		c.tell.plan(task.Plan{Entries: u.Entries})
	case "usage_update":
		if u.Cost != nil && u.Cost.Currency == "USD" {
			c.tell.use(func(t *task.Tokens) { t.Cost = u.Cost.Amount })
		}
	}
}

// notice takes what the adapter of Codex says as if the model had: warnings, and
// what ended a turn that it answers as done.
func (c *client) notice(text string) {
	if c.broken.Load() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fault = head(c.fault+text, maxError)
		return
	}
	c.tell.notice(text)
}

// errorMessage is the message in an error that a provider answered as JSON.
func errorMessage(text string) string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	at := strings.Index(text, "{")
	if at >= 0 && json.Unmarshal([]byte(strings.TrimSpace(text[at:])), &answer) == nil && answer.Error.Message != "" {
		return text[:at] + answer.Error.Message
	}
	return strings.TrimSpace(text)
}
