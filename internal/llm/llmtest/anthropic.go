package llmtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
)

// Anthropic speaks the Messages API.
type Anthropic struct{}

type anthropicBlock struct {
	Type, Text, Thinking, Signature, Data, ID, Name string
	Source                                          struct {
		Type, Data string
		MediaType  string `json:"media_type"`
	}
	Input     map[string]any
	ToolUseID string `json:"tool_use_id"`
	Content   []anthropicBlock
	IsError   bool            `json:"is_error"`
	Cache     json.RawMessage `json:"cache_control"`
}

type anthropicRequest struct {
	Model     string
	MaxTokens int `json:"max_tokens"`
	Stream    bool
	System    []anthropicBlock
	Thinking  *struct {
		Type   string
		Budget int `json:"budget_tokens"`
	}
	Messages []struct {
		Role    string
		Content []anthropicBlock
	}
	Tools []struct {
		Name, Description string
		Schema            map[string]any  `json:"input_schema"`
		Cache             json.RawMessage `json:"cache_control"`
	}
}

var anthropicID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// Read is as [Fake] says.
func (Anthropic) Read(r *http.Request, body []byte) (a Asked, err error) {
	var q anthropicRequest
	if r.URL.Path != "/v1/messages" || r.Method != http.MethodPost {
		return a, fmt.Errorf("%s %s", r.Method, r.URL)
	}
	if r.Header.Get("X-Api-Key") != Secret || r.Header.Get("Anthropic-Version") != "2023-06-01" {
		return a, errors.New("no key, or no version")
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return a, err
	}
	thinks := q.Thinking != nil && q.Thinking.Type == "enabled"
	switch {
	case !q.Stream || q.MaxTokens <= 0:
		return a, errors.New("no stream, or no bound")
	case thinks && (q.Thinking.Budget < 1024 || q.Thinking.Budget >= q.MaxTokens):
		return a, fmt.Errorf("a budget of %d of %d", q.Thinking.Budget, q.MaxTokens)
	case len(q.Messages) == 0 || q.Messages[0].Role != "user":
		return a, errors.New("the first message is not the user's")
	}
	a.Model = q.Model
	if len(q.System) > 0 {
		a.System = q.System[0].Text
		if len(q.System) != 1 || q.System[0].Cache == nil {
			return a, errors.New("the system prompt has no mark for the cache")
		}
	}
	for i, t := range q.Tools {
		if t.Schema["type"] != "object" || (t.Cache != nil) != (i == len(q.Tools)-1) {
			return a, fmt.Errorf("the tool %s", t.Name)
		}
		a.Tools = append(a.Tools, t.Name+": "+t.Description)
		a.Schemas = append(a.Schemas, t.Schema)
	}
	waiting := map[string]bool{}
	for i, m := range q.Messages {
		if len(m.Content) == 0 || i > 0 && q.Messages[i-1].Role == m.Role {
			return a, fmt.Errorf("message %d is empty, or of the same role as the one before", i)
		}
		last := m.Content[len(m.Content)-1]
		if (last.Cache != nil) != (m.Role == "user" && i == len(q.Messages)-1) {
			return a, fmt.Errorf("message %d: the mark for the cache: %s", i, last.Cache)
		}
		parts, err := anthropicParts(m.Content, waiting)
		if err != nil {
			return a, fmt.Errorf("message %d: %w", i, err)
		}
		if m.Role == "assistant" && i == len(q.Messages)-2 && thinks && len(waiting) > 0 && !strings.HasPrefix(m.Content[0].Type, "thinking") {
			return a, fmt.Errorf("message %d: a %s where a thinking block is expected", i, m.Content[0].Type)
		}
		a.say(m.Role, parts...)
	}
	return a, nil
}

func anthropicParts(blocks []anthropicBlock, waiting map[string]bool) ([]string, error) {
	var parts []string
	for i, b := range blocks {
		if len(waiting) > 0 && b.Type != "tool_result" && b.Type != "tool_use" {
			return nil, fmt.Errorf("a %s where results of %v are due", b.Type, waiting)
		}
		switch b.Type {
		case "text":
			if strings.TrimSpace(b.Text) == "" {
				return nil, errors.New("an empty text")
			}
			parts = append(parts, "text "+b.Text)
		case "image":
			parts = append(parts, "image "+b.Source.MediaType+" "+b.Source.Data)
		case "thinking":
			if b.Signature == "" {
				return nil, errors.New("a thought without a signature")
			}
			parts = append(parts, "thought "+b.Signature+" "+b.Thinking)
		case "tool_use":
			if !anthropicID.MatchString(b.ID) || b.Input == nil {
				return nil, fmt.Errorf("the call %+v", b)
			}
			waiting[b.ID] = true
			arguments, err := json.Marshal(b.Input)
			if err != nil {
				return nil, err
			}
			parts = append(parts, "call "+b.Name+" "+string(arguments))
		case "tool_result":
			if !waiting[b.ToolUseID] {
				return nil, fmt.Errorf("block %d: a result of %q, due are %v", i, b.ToolUseID, waiting)
			}
			delete(waiting, b.ToolUseID)
			word, text := "result ", ""
			if b.IsError {
				word = "failed "
			}
			var images []string
			for _, c := range b.Content {
				switch c.Type {
				case "text":
					text += c.Text
				case "image":
					images = append(images, "image "+c.Source.MediaType+" "+c.Source.Data)
				default:
					return nil, fmt.Errorf("a %s in a result", c.Type)
				}
			}
			parts = append(append(parts, word+text), images...)
		default:
			return nil, fmt.Errorf("a block of type %q", b.Type)
		}
	}
	return parts, nil
}

// Events is as [Fake] says.
func (Anthropic) Events(r Reply) []string {
	u := r.Usage
	list := []string{
		event("message_start", map[string]any{"type": "message_start", "message": map[string]any{
			"id": "msg_1", "type": "message", "role": "assistant", "model": "one-model", "content": []any{}, "stop_reason": nil,
			"usage": map[string]any{"input_tokens": u.Input - u.CacheRead, "cache_creation_input_tokens": 0, "cache_read_input_tokens": u.CacheRead, "output_tokens": 1},
		}}),
		event("ping", map[string]any{"type": "ping"}),
	}
	for i, p := range r.Parts {
		var begin map[string]any
		var deltas []map[string]any
		switch p := p.(type) {
		case llm.Text:
			begin = map[string]any{"type": "text", "text": ""}
			for _, piece := range split(p.Text) {
				deltas = append(deltas, map[string]any{"type": "text_delta", "text": piece})
			}
		case llm.Reasoning:
			begin = map[string]any{"type": "thinking", "thinking": "", "signature": ""}
			for _, piece := range split(p.Text) {
				deltas = append(deltas, map[string]any{"type": "thinking_delta", "thinking": piece})
			}
			deltas = append(deltas, map[string]any{"type": "signature_delta", "signature": signature(p)})
		case llm.ToolCall:
			begin = map[string]any{"type": "tool_use", "id": p.ID, "name": p.Name, "input": map[string]any{}}
			for _, piece := range append([]string{""}, split(p.Arguments)...) {
				deltas = append(deltas, map[string]any{"type": "input_json_delta", "partial_json": piece})
			}
		default:
			panic(fmt.Sprintf("no %T in this dialect", p))
		}
		list = append(list, event("content_block_start", map[string]any{"type": "content_block_start", "index": i, "content_block": begin}))
		for _, d := range deltas {
			list = append(list, event("content_block_delta", map[string]any{"type": "content_block_delta", "index": i, "delta": d}))
		}
		list = append(list, event("content_block_stop", map[string]any{"type": "content_block_stop", "index": i}))
	}
	reason := map[llm.Stop]string{llm.StopEnd: "end_turn", llm.StopTools: "tool_use", llm.StopLength: "max_tokens", llm.StopRefused: "refusal"}[r.Stop]
	return append(list,
		event("message_delta", map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": u.Output}}),
		event("message_stop", map[string]any{"type": "message_stop"}))
}

// signature is that of a thought.
func signature(r llm.Reasoning) string {
	var text string
	if err := json.Unmarshal(r.Opaque, &text); err != nil {
		panic(err)
	}
	return text
}

// Failure is as [Fake] says.
func (Anthropic) Failure() string {
	return event("error", map[string]any{"type": "error", "error": map[string]any{"type": "overloaded_error", "message": "Overloaded"}})
}

// Trouble is as [Fake] says.
func (Anthropic) Trouble(k Kind) (int, string) {
	body := func(kind, message string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"},"request_id":"req_1"}`
	}
	switch k {
	case BadKey:
		return 401, body("authentication_error", "invalid x-api-key: "+quotedSecret())
	case NoModel:
		return 404, body("not_found_error", "model: one-model")
	case TooLong:
		return 400, body("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum")
	case RateLimit:
		return 429, body("rate_limit_error", "This request would exceed your organization's rate limit of 50,000 input tokens per minute.")
	case Quota:
		return 400, body("invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.")
	case NoEyes:
		return 400, body("invalid_request_error", "This model does not support image input.")
	case BadParam:
		return 400, body("invalid_request_error", "temperature: Input should be less than or equal to 1")
	}
	return 529, body("overloaded_error", "Overloaded")
}

// Models is as [Fake] says.
func (Anthropic) Models() (string, string, llm.Info) {
	return "/v1/models", `{"data":[{"type":"model","id":"one-model","display_name":"One Model","created_at":"2025-02-19T00:00:00Z","max_input_tokens":200000}],"has_more":false,"first_id":"one-model","last_id":"one-model"}`,
		llm.Info{ID: "one-model", Name: "One Model", Context: 200000}
}

func base64Of(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
