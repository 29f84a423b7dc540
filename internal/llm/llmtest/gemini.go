package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
)

// Gemini speaks Google's API.
type Gemini struct{}

type geminiPart struct {
	Text       *string
	Thought    bool
	Signature  string                           `json:"thoughtSignature"`
	InlineData *struct{ MimeType, Data string } `json:"inlineData"`
	Call       *struct {
		ID, Name string
		Args     map[string]any
	} `json:"functionCall"`
	Response *struct {
		ID, Name string
		Response map[string]string
	} `json:"functionResponse"`
}

type geminiRequest struct {
	System   struct{ Parts []geminiPart } `json:"systemInstruction"`
	Contents []struct {
		Role  string
		Parts []geminiPart
	}
	Tools []struct {
		Declarations []struct {
			Name, Description string
			Parameters        map[string]any
		} `json:"functionDeclarations"`
	}
}

var geminiPath = regexp.MustCompile(`^/models/([^/:]+):streamGenerateContent$`)

// Read is as [Fake] says.
func (Gemini) Read(r *http.Request, body []byte) (a Asked, err error) {
	var q geminiRequest
	model := geminiPath.FindStringSubmatch(r.URL.Path)
	if model == nil || r.Method != http.MethodPost || r.URL.RawQuery != "alt=sse" {
		return a, fmt.Errorf("%s %s", r.Method, r.URL)
	}
	if r.Header.Get("X-Goog-Api-Key") != Secret {
		return a, errors.New("no key")
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return a, err
	}
	a.Model = model[1]
	if len(q.System.Parts) > 0 {
		a.System = *q.System.Parts[0].Text
	}
	for _, t := range q.Tools {
		for _, d := range t.Declarations {
			if p, there := d.Parameters["properties"].(map[string]any); d.Parameters != nil && (!there || len(p) == 0) {
				return a, fmt.Errorf("the tool %s: an object without properties", d.Name)
			}
			a.Tools = append(a.Tools, d.Name+": "+d.Description)
			a.Schemas = append(a.Schemas, d.Parameters)
		}
	}
	var calls []string // names and ids
	for i, c := range q.Contents {
		role := map[string]string{"user": "user", "model": "assistant"}[c.Role]
		if role == "" || len(c.Parts) == 0 || i == 0 && role != "user" {
			return a, fmt.Errorf("content %d: the role %q, %d parts", i, c.Role, len(c.Parts))
		}
		parts, made, answered, err := geminiParts(c.Parts)
		if err != nil {
			return a, fmt.Errorf("content %d: %w", i, err)
		}
		if strings.Join(answered, " ") != strings.Join(calls, " ") {
			return a, fmt.Errorf("content %d: results of %q, due are %q", i, answered, calls)
		}
		calls = made
		a.say(role, parts...)
	}
	return a, nil
}

func geminiParts(list []geminiPart) (parts, calls, answered []string, err error) {
	for _, p := range list {
		switch {
		case p.Call != nil:
			arguments, err := json.Marshal(p.Call.Args)
			if err != nil {
				return nil, nil, nil, err
			}
			calls = append(calls, p.Call.Name+"/"+p.Call.ID)
			if p.Signature != "" {
				parts = append(parts, "thought "+p.Signature)
			}
			parts = append(parts, "call "+p.Call.Name+" "+string(arguments))
		case p.Response != nil:
			answered = append(answered, p.Response.Name+"/"+p.Response.ID)
			if text, failed := p.Response.Response["error"]; failed {
				parts = append(parts, "failed "+text)
			} else {
				parts = append(parts, "result "+p.Response.Response["output"])
			}
		case p.InlineData != nil:
			parts = append(parts, "image "+p.InlineData.MimeType+" "+p.InlineData.Data)
		case p.Text == nil:
			return nil, nil, nil, errors.New("an empty part")
		case p.Thought:
			parts = append(parts, "thought "+p.Signature+" "+*p.Text)
		default:
			parts = append(parts, "text "+*p.Text)
		}
	}
	return parts, calls, answered, nil
}

// Events is as [Fake] says. A signature is with the call that follows the thought,
// as the models of the generation 3 give it. Arguments that are no JSON cannot be
// in this dialect.
func (Gemini) Events(r Reply) []string {
	u := r.Usage
	chunk := func(finish string, parts ...any) string {
		candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
		if finish != "" {
			candidate["finishReason"] = finish
		}
		return event("", map[string]any{"candidates": []any{candidate}, "modelVersion": "one-model", "responseId": "r1", "usageMetadata": map[string]any{
			"promptTokenCount": u.Input, "candidatesTokenCount": u.Output - u.Reasoning, "thoughtsTokenCount": u.Reasoning, "cachedContentTokenCount": u.CacheRead, "totalTokenCount": u.Input + u.Output}})
	}
	var list []string
	signed := ""
	for _, p := range r.Parts {
		switch p := p.(type) {
		case llm.Text:
			for _, piece := range split(p.Text) {
				list = append(list, chunk("", map[string]any{"text": piece}))
			}
		case llm.Reasoning:
			for _, piece := range split(p.Text) {
				list = append(list, chunk("", map[string]any{"text": piece, "thought": true}))
			}
			signed = signature(p)
		case llm.Image:
			list = append(list, chunk("", map[string]any{"inlineData": map[string]any{"mimeType": p.MIME, "data": base64Of(p.Data)}}))
		case llm.ToolCall:
			arguments := p.Arguments
			if arguments == "" {
				arguments = "{}"
			}
			part := map[string]any{"functionCall": map[string]any{"name": p.Name, "args": json.RawMessage(arguments)}}
			if signed != "" {
				part["thoughtSignature"] = signed
				signed = ""
			}
			list = append(list, chunk("", part))
		}
	}
	reason := map[llm.Stop]string{llm.StopLength: "MAX_TOKENS", llm.StopRefused: "SAFETY"}[r.Stop]
	if reason == "" {
		reason = "STOP"
	}
	return append(list, chunk(reason, map[string]any{"text": ""}))
}

// Failure is as [Fake] says.
func (Gemini) Failure() string {
	return event("", map[string]any{"error": map[string]any{"code": 503, "message": "The model is overloaded. Please try again later.", "status": "UNAVAILABLE"}})
}

// Trouble is as [Fake] says.
func (Gemini) Trouble(k Kind) (int, string) {
	switch k {
	case BadKey:
		return 400, `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key. It was ` + quotedSecret() + `","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}`
	case NoModel:
		return 404, `{"error":{"code":404,"message":"models/one-model is not found for API version v1beta, or is not supported for generateContent. Call ListModels to see the list of available models and their supported methods.","status":"NOT_FOUND"}}`
	case TooLong:
		return 400, `{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`
	case RateLimit:
		return 429, `[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[` +
			`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"m","quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},` +
			`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.01s"}]}}]`
	case Quota:
		return 429, `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[` +
			`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"m","quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},` +
			`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3s"}]}}`
	case NoEyes:
		return 400, `{"error":{"code":400,"message":"Image input modality is not enabled for models/one-model","status":"INVALID_ARGUMENT"}}`
	case BadParam:
		return 400, `{"error":{"code":400,"message":"Invalid value at 'generation_config.temperature' (TYPE_FLOAT), \"hot\"","status":"INVALID_ARGUMENT"}}`
	}
	return 503, `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`
}

// Models is as [Fake] says.
func (Gemini) Models() (string, string, llm.Info) {
	return "/models", `{"models":[{"name":"models/one-model","displayName":"One Model","inputTokenLimit":1048576,"supportedGenerationMethods":["generateContent","countTokens"]},` +
			`{"name":"models/embedding-001","displayName":"Embedding","supportedGenerationMethods":["embedContent"]}]}`,
		llm.Info{ID: "one-model", Name: "One Model", Context: 1048576}
}
