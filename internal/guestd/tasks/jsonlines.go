package tasks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/task"
)

// maxArgument bounds the prompt as an argument; Linux takes 128 KiB at most.
const maxArgument = 100 << 10

// argument is the prompt as the last argument of a command: itself, or where it
// is to be read.
func (s *supervisor) argument() (string, error) {
	if len(s.order.Prompt) <= maxArgument {
		return s.order.Prompt, nil
	}
	at := filepath.Join(s.home, private, "prompts", filepath.Base(s.order.ID)+".md")
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(at, []byte(s.order.Prompt), 0o600); err != nil {
		return "", err
	}
	return "Do what the file " + at + " asks for. Read all of it first.", nil
}

// lineReader reads agents that print a JSON object per line.
type lineReader struct {
	tell    *narrator
	session string
	fault   string // the first error that the agent told
}

// readJSONLines reads an agent's output to its end and says how the agent did.
func readJSONLines(a *agent, tell *narrator) turn {
	r := &lineReader{tell: tell}
	go func() {
		<-a.ended
		// What the agent left running may hold its output open.
		_ = a.out.SetReadDeadline(time.Now().Add(drainFor))
	}()
	readLines(a.out, func(line []byte) bool {
		r.line(line)
		return true
	})
	tell.pause()
	t := turn{session: r.session}
	<-a.ended
	switch {
	case r.fault != "":
		t.err = errorText(r.fault)
	case a.err != nil:
		t.err = a.err
	}
	return t
}

// errorText is an error that an agent told.
type errorText string

func (e errorText) Error() string { return string(e) }

// line takes one line: an event of OpenCode or of Claude Code, another object, of
// which nothing is known, or plain text, which is a message.
func (r *lineReader) line(line []byte) {
	text := strings.TrimSpace(string(line))
	if text == "" {
		return
	}
	var event struct {
		Type      string          `json:"type"`
		Part      json.RawMessage `json:"part"`
		Error     json.RawMessage `json:"error"`
		Message   json.RawMessage `json:"message"`
		Session   string          `json:"session_id"`
		SessionID string          `json:"sessionID"`
	}
	if !strings.HasPrefix(text, "{") || json.Unmarshal(line, &event) != nil {
		if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
			r.tell.message(strings.ToValidUTF8(text, "\uFFFD"))
		}
		return
	}
	for _, id := range []string{event.Session, event.SessionID} {
		if id != "" {
			r.session = head(id, 256)
		}
	}
	switch event.Type {
	case "error":
		r.failed(event.Error, event.Message)
	case "assistant", "user":
		r.claude(event.Message)
	case "result":
		r.claudeResult(line)
	default:
		r.opencode(event.Type, event.Part)
	}
}

// failed takes an error event of OpenCode.
func (r *lineReader) failed(raws ...json.RawMessage) {
	var e struct {
		Name    string `json:"name"`
		Message string `json:"message"`
		Data    struct {
			Message string `json:"message"`
		} `json:"data"`
	}
	text := ""
	for _, raw := range raws {
		var plain string
		if json.Unmarshal(raw, &plain) == nil && plain != "" {
			text = plain
			break
		}
		if json.Unmarshal(raw, &e) == nil {
			break
		}
	}
	for _, candidate := range []string{e.Data.Message, e.Message, e.Name, "agent error (no message)"} {
		if text == "" {
			text = candidate
		}
	}
	if r.fault == "" {
		r.fault = text
	}
}

// opencode takes an event of "opencode run --format json".
func (r *lineReader) opencode(kind string, raw json.RawMessage) {
	var part struct {
		Type   string  `json:"type"`
		ID     string  `json:"id"`
		CallID string  `json:"callID"`
		Text   string  `json:"text"`
		Tool   string  `json:"tool"`
		Cost   float64 `json:"cost"`
		State  struct {
			Status string          `json:"status"`
			Input  json.RawMessage `json:"input"`
			Output string          `json:"output"`
			Error  string          `json:"error"`
		} `json:"state"`
		Tokens struct {
			Input     int64 `json:"input"`
			Output    int64 `json:"output"`
			Reasoning int64 `json:"reasoning"`
			Cache     struct {
				Read  int64 `json:"read"`
				Write int64 `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
	}
	if json.Unmarshal(raw, &part) != nil {
		return
	}
	switch {
	case kind == "text":
		r.tell.say(task.MessageType, part.ID, part.Text)
		r.tell.pause()
	case kind == "reasoning":
		r.tell.say(task.ThoughtType, part.ID, part.Text)
		r.tell.pause()
	case part.Type == "tool":
		id := part.ID
		if part.CallID != "" {
			id = part.CallID
		}
		r.tell.tool(task.Tool{ID: head(id, 256), Name: part.Tool, Status: part.State.Status, Path: subject(part.State.Input), Output: part.State.Output + part.State.Error})
	case part.Type == "step-finish":
		r.tell.use(func(t *task.Tokens) {
			t.Input += part.Tokens.Input
			t.Output += part.Tokens.Output
			t.Reasoning += part.Tokens.Reasoning
			t.CacheRead += part.Tokens.Cache.Read
			t.CacheWrite += part.Tokens.Cache.Write
			t.Total = t.Input + t.Output + t.Reasoning + t.CacheRead + t.CacheWrite
			t.Cost += part.Cost
		})
	}
}

// claude takes a message of "claude -p --output-format stream-json".
func (r *lineReader) claude(raw json.RawMessage) {
	var message struct {
		ID      string          `json:"id"`
		Content json.RawMessage `json:"content"`
	}
	var blocks []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
		UseID    string          `json:"tool_use_id"`
		Failed   bool            `json:"is_error"`
		Content  json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &message) != nil || json.Unmarshal(message.Content, &blocks) != nil {
		return
	}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			r.tell.message(b.Text)
		case "thinking":
			r.tell.say(task.ThoughtType, "", b.Thinking)
			r.tell.pause()
		case "tool_use":
			r.tell.tool(task.Tool{ID: head(b.ID, 256), Name: b.Name, Status: "running", Path: subject(b.Input)})
		case "tool_result":
			status := "completed"
			if b.Failed {
				status = "error"
			}
			r.tell.tool(task.Tool{ID: head(b.UseID, 256), Status: status, Output: blockText(b.Content)})
		}
	}
}

// blockText is the text of a tool's result: a string, or blocks.
func blockText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var blocks []content
	if json.Unmarshal(raw, &blocks) != nil {
		return ""
	}
	var texts []string
	for _, b := range blocks {
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// claudeResult takes the last event.
func (r *lineReader) claudeResult(line []byte) {
	var result struct {
		Subtype string  `json:"subtype"`
		IsError bool    `json:"is_error"`
		Result  string  `json:"result"`
		Cost    float64 `json:"total_cost_usd"`
		Usage   struct {
			Input      int64 `json:"input_tokens"`
			Output     int64 `json:"output_tokens"`
			CacheRead  int64 `json:"cache_read_input_tokens"`
			CacheWrite int64 `json:"cache_creation_input_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(line, &result) != nil {
		return
	}
	r.tell.use(func(t *task.Tokens) {
		u := result.Usage
		*t = task.Tokens{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
			Total: u.Input + u.Output + u.CacheRead + u.CacheWrite, Cost: result.Cost}
	})
	if (result.IsError || result.Subtype != "" && result.Subtype != "success") && r.fault == "" {
		if r.fault = result.Result; r.fault == "" {
			r.fault = "agent error: " + result.Subtype
		}
	}
}
