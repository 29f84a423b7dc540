package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
)

// OpenAI speaks chat completions.
type OpenAI struct{}

type openaiRequest struct {
	Model    string
	Stream   bool
	Options  struct{ Include_usage bool } `json:"stream_options"`
	Messages []struct {
		Role       string
		Content    json.RawMessage
		ToolCallID string `json:"tool_call_id"`
		Thought    string `json:"reasoning_content"`
		ToolCalls  []struct {
			ID, Type string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	Tools []struct {
		Type     string
		Function struct {
			Name, Description string
			Parameters        map[string]any
		}
	}
}

// Read is as [Fake] says.
func (OpenAI) Read(r *http.Request, body []byte) (a Asked, err error) {
	var q openaiRequest
	if r.URL.Path != "/chat/completions" || r.Method != http.MethodPost {
		return a, fmt.Errorf("%s %s", r.Method, r.URL)
	}
	if r.Header.Get("Authorization") != "Bearer "+Secret {
		return a, errors.New("no key")
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return a, err
	}
	if !q.Stream || !q.Options.Include_usage {
		return a, errors.New("no stream, or none with usage")
	}
	a.Model = q.Model
	for _, t := range q.Tools {
		if t.Type != "function" || t.Function.Parameters["type"] != "object" {
			return a, fmt.Errorf("the tool %s", t.Function.Name)
		}
		a.Tools = append(a.Tools, t.Function.Name+": "+t.Function.Description)
		a.Schemas = append(a.Schemas, t.Function.Parameters)
	}
	waiting := map[string]bool{}
	for i, m := range q.Messages {
		if len(waiting) > 0 && m.Role != "tool" {
			return a, fmt.Errorf("message %d: a %s message where results of %v are due", i, m.Role, waiting)
		}
		parts, err := openaiContent(m.Content)
		if err != nil {
			return a, fmt.Errorf("message %d: %w", i, err)
		}
		role := m.Role
		switch m.Role {
		case "system":
			if i != 0 {
				return a, errors.New("a system message in the middle")
			}
			a.System = strings.TrimPrefix(parts[0], "text ")
			continue
		case "tool":
			if !waiting[m.ToolCallID] {
				return a, fmt.Errorf("message %d: a result of %q, due are %v", i, m.ToolCallID, waiting)
			}
			delete(waiting, m.ToolCallID)
			role = "user"
			text := strings.TrimPrefix(strings.Join(parts, ""), "text ")
			if failed, ok := strings.CutPrefix(text, "error: "); ok {
				parts = []string{"failed " + failed}
			} else {
				parts = []string{"result " + text}
			}
		case "assistant":
			if len(parts) == 0 && len(m.ToolCalls) == 0 {
				return a, fmt.Errorf("message %d: nothing said", i)
			}
			if m.Thought != "" {
				parts = append([]string{"thought  " + m.Thought}, parts...)
			}
			for _, c := range m.ToolCalls {
				if c.Type != "function" || c.ID == "" || !json.Valid([]byte(c.Function.Arguments)) {
					return a, fmt.Errorf("message %d: the call %+v", i, c)
				}
				waiting[c.ID] = true
				parts = append(parts, "call "+c.Function.Name+" "+c.Function.Arguments)
			}
		case "user":
		default:
			return a, fmt.Errorf("message %d: a role %q", i, m.Role)
		}
		a.say(role, parts...)
	}
	return a, nil
}

// say adds parts to what one side says at once.
func (a *Asked) say(role string, parts ...string) {
	if n := len(a.Turns); n > 0 && a.Turns[n-1].Role == role {
		a.Turns[n-1].Parts = append(a.Turns[n-1].Parts, parts...)
		return
	}
	a.Turns = append(a.Turns, Turn{role, parts})
}

func openaiContent(raw json.RawMessage) ([]string, error) {
	var text *string
	if json.Unmarshal(raw, &text) == nil {
		if text == nil {
			return nil, nil
		}
		return []string{"text " + *text}, nil
	}
	var list []struct {
		Type, Text string
		ImageURL   struct{ URL string } `json:"image_url"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	var parts []string
	for _, c := range list {
		switch c.Type {
		case "text":
			parts = append(parts, "text "+c.Text)
		case "image_url":
			mime, data, ok := strings.Cut(strings.TrimPrefix(c.ImageURL.URL, "data:"), ";base64,")
			if !ok {
				return nil, fmt.Errorf("the image %s", c.ImageURL.URL)
			}
			parts = append(parts, "image "+mime+" "+data)
		default:
			return nil, fmt.Errorf("a part of type %q", c.Type)
		}
	}
	return parts, nil
}

// Events is as [Fake] says.
func (OpenAI) Events(r Reply) []string {
	chunk := func(delta any, finish any) string {
		return event("", map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "one-model",
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}, "usage": nil,
		})
	}
	list := []string{chunk(map[string]any{"role": "assistant", "content": "", "refusal": nil}, nil)}
	calls := 0
	for _, p := range r.Parts {
		switch p := p.(type) {
		case llm.Text:
			for _, piece := range split(p.Text) {
				list = append(list, chunk(map[string]any{"content": piece}, nil))
			}
		case llm.Reasoning:
			for _, piece := range split(p.Text) {
				list = append(list, chunk(map[string]any{"reasoning_content": piece}, nil))
			}
		case llm.Image:
			list = append(list, chunk(map[string]any{"images": []any{map[string]any{"type": "image_url", "image_url": map[string]any{
				"url": "data:" + p.MIME + ";base64," + base64Of(p.Data)}}}}, nil))
		case llm.ToolCall:
			piece := func(more map[string]any) string {
				more["index"] = calls
				return chunk(map[string]any{"tool_calls": []any{more}}, nil)
			}
			list = append(list, piece(map[string]any{"id": p.ID, "type": "function", "function": map[string]any{"name": p.Name, "arguments": ""}}))
			for _, text := range split(p.Arguments) {
				list = append(list, piece(map[string]any{"function": map[string]any{"arguments": text}}))
			}
			calls++
		}
	}
	reason := map[llm.Stop]string{llm.StopEnd: "stop", llm.StopTools: "tool_calls", llm.StopLength: "length", llm.StopRefused: "content_filter"}[r.Stop]
	list = append(list, chunk(map[string]any{}, reason))
	u := r.Usage
	list = append(list, event("", map[string]any{"id": "chatcmpl-1", "model": "one-model", "choices": []any{}, "usage": map[string]any{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details": map[string]any{"cached_tokens": u.CacheRead}, "completion_tokens_details": map[string]any{"reasoning_tokens": u.Reasoning},
	}}))
	return append(list, "data: [DONE]\n\n")
}

// Failure is as [Fake] says.
func (OpenAI) Failure() string {
	return event("", map[string]any{"error": map[string]any{
		"message": "The server had an error while processing your request. Sorry about that!", "type": "server_error", "param": nil, "code": nil}})
}

// Trouble is as [Fake] says.
func (OpenAI) Trouble(k Kind) (int, string) {
	switch k {
	case BadKey:
		return 401, `{"error":{"message":"Incorrect API key provided: ` + quotedSecret() + `. You can find your API key at https://platform.openai.com/account/api-keys.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`
	case NoModel:
		return 404, `{"error":{"message":"The model ` + "`one-model`" + ` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`
	case TooLong:
		return 400, `{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130538 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`
	case RateLimit:
		return 429, `{"error":{"message":"Rate limit reached for gpt-4o in organization org-1 on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`
	case Quota:
		return 429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`
	case NoEyes:
		return 400, `{"error":{"message":"Invalid content type. image_url is only supported by certain models.","type":"invalid_request_error","param":"messages.[0].content.[1].type","code":null}}`
	case BadParam:
		return 400, `{"error":{"message":"Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.","type":"invalid_request_error","param":"temperature","code":"decimal_above_max_value"}}`
	}
	return 503, `{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error","param":null,"code":null}}`
}

// Models is as [Fake] says.
func (OpenAI) Models() (string, string, llm.Info) {
	return "/models", `{"object":"list","data":[{"id":"one-model","object":"model","created":1,"owned_by":"openai"}]}`, llm.Info{ID: "one-model"}
}

// event writes one of a stream.
func event(name string, data any) string {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	return name + "data: " + string(text) + "\n\n"
}

// split cuts a text into pieces of a few letters, and a long one into few.
func split(text string) []string {
	letters := []rune(text)
	size := max(3, len(letters)/4)
	var pieces []string
	for len(letters) > 0 {
		n := min(size, len(letters))
		pieces = append(pieces, string(letters[:n]))
		letters = letters[n:]
	}
	return pieces
}

// quotedSecret is the key as it is within a string of JSON.
func quotedSecret() string {
	text, err := json.Marshal(Secret)
	if err != nil {
		panic(err)
	}
	return string(text[1 : len(text)-1])
}
