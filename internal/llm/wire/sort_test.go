package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/llm"
)

// TestFaults has what providers and servers answered, word by word.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		from   string
		status int
		body   string
		want   llm.Fault
	}{
		{"OpenAI", 400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, llm.TooLong},
		{"OpenAI", 429, `{"error":{"message":"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 43000.","type":"tokens","code":"rate_limit_exceeded"}}`, llm.TooLong},
		{"OpenAI", 400, `{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","code":"context_length_exceeded"}}`, llm.TooLong},
		{"OpenAI", 429, `{"error":{"message":"Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.","type":"tokens","code":"rate_limit_exceeded"}}`, llm.Limited},
		{"OpenAI", 429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}`, llm.Quota},
		{"OpenAI", 400, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`, llm.Invalid},
		{"OpenAI", 400, `{"error":{"message":"Unsupported value: 'reasoning_effort' does not support 'none' with this model. Function tools need it.","type":"invalid_request_error","code":"unsupported_value"}}`, llm.Invalid},
		{"OpenAI", 401, `{"error":{"message":"Incorrect API key provided: sk-***.","type":"invalid_request_error","code":"invalid_api_key"}}`, llm.Denied},
		{"OpenAI", 403, `{"error":{"message":"Country, region, or territory not supported","type":"request_forbidden","code":"unsupported_country_region_territory"}}`, llm.Denied},
		{"OpenAI", 400, `{"error":{"message":"Invalid schema for function 'f': None is not of type 'object'.","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}`, llm.Invalid},
		{"OpenAI", 500, `{"error":{"message":"The server had an error while processing your request.","type":"server_error"}}`, llm.Unavailable},
		{"Anthropic", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"input length and ` + "`max_tokens`" + ` exceed context limit: 188240 + 21333 > 200000, decrease input length or ` + "`max_tokens`" + ` and try again"}}`, llm.TooLong},
		{"Anthropic", 413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, llm.TooLong},
		{"Anthropic", 403, `{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource"}}`, llm.Denied},
		{"Anthropic", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-01-01 at 00:00 UTC."}}`, llm.Quota},
		{"Anthropic", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, llm.Unavailable},
		{"Anthropic", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0.type: Expected thinking or redacted_thinking, but found tool_use."}}`, llm.Invalid},
		{"Gemini", 403, `{"error":{"code":403,"message":"Method doesn't allow unregistered callers.","status":"PERMISSION_DENIED"}}`, llm.Denied},
		{"Gemini", 400, `{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}`, llm.Denied},
		{"Gemini", 400, `{"error":{"code":400,"message":"Function calling is not enabled for models/x","status":"INVALID_ARGUMENT"}}`, llm.Unsupported},
		{"Gemini", 500, `{"error":{"code":500,"message":"An internal error has occurred.","status":"INTERNAL"}}`, llm.Unavailable},
		{"Ollama", 404, `{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error"}}`, llm.NoModel},
		{"Ollama", 400, `{"error":{"message":"registry.ollama.ai/library/x:latest does not support tools","type":"api_error"}}`, llm.Unsupported},
		{"Ollama", 400, `{"error":{"message":"\"x\" does not support thinking","type":"api_error"}}`, llm.Invalid},
		{"Ollama", 500, `{"error":{"message":"this model is missing data required for image input","type":"api_error"}}`, llm.Unsupported},
		{"Ollama", 404, `404 page not found`, llm.Invalid},
		{"Ollama", 503, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, llm.Unavailable},
		{"vLLM", 400, `{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}`, llm.TooLong},
		{"vLLM", 404, `{"object":"error","message":"The model ` + "`x`" + ` does not exist.","type":"NotFoundError","param":null,"code":404}`, llm.NoModel},
		{"vLLM", 400, `{"object":"error","message":"x is not a multimodal model","type":"BadRequestError","code":400}`, llm.Unsupported},
		{"vLLM", 401, `{"error":"Unauthorized"}`, llm.Denied},
		{"llama.cpp", 500, `{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}`, llm.Unsupported},
		{"llama.cpp", 400, `{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error"}}`, llm.TooLong},
		{"llama.cpp", 503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, llm.Unavailable},
		{"LM Studio", 400, `{"error":"Model does not support images. Please use a model that does."}`, llm.Unsupported},
		{"OpenRouter", 402, `{"error":{"message":"Insufficient credits. Add more using https://openrouter.ai/settings/credits","code":402}}`, llm.Quota},
		{"OpenRouter", 404, `{"error":{"message":"No endpoints found that support image input","code":404}}`, llm.Unsupported},
		{"OpenRouter", 404, `{"error":{"message":"No endpoints found for nobody/x.","code":404}}`, llm.NoModel},
		{"OpenRouter", 400, `{"error":{"message":"nobody/x is not a valid model ID","code":400}}`, llm.NoModel},
		{"OpenRouter", 400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long: 300000 tokens > 200000 maximum\"}}","provider_name":"Anthropic"}}}`, llm.TooLong},
		{"OpenRouter", 429, `{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"x is temporarily rate-limited upstream. Please retry shortly."}}}`, llm.Limited},
		{"OpenRouter", 200, `{"error":{"message":"Provider returned error","code":502}}`, llm.Unavailable},
		{"Groq", 404, `{"error":{"message":"The model ` + "`x`" + ` does not exist or you do not have access to it.","type":"invalid_request_error","code":"model_not_found"}}`, llm.NoModel},
		{"Groq", 400, `{"error":{"message":"The model ` + "`x`" + ` has been decommissioned and is no longer supported.","type":"invalid_request_error","code":"model_decommissioned"}}`, llm.NoModel},
		{"Groq", 400, `{"error":{"message":"messages[0].content must be a string","type":"invalid_request_error"}}`, llm.Unsupported},
		{"Groq", 413, `{"error":{"message":"Request too large for model x on tokens per minute (TPM): Limit 6000, Requested 9000","type":"tokens","code":"rate_limit_exceeded"}}`, llm.TooLong},
		{"Mistral", 401, `{"detail":"Unauthorized"}`, llm.Denied},
		{"Mistral", 400, `{"object":"error","message":"Invalid model: x","type":"invalid_model","param":null,"code":"1500"}`, llm.NoModel},
		{"Mistral", 422, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{}}]}`, llm.Invalid},
		{"Mistral", 400, `{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_prompt","code":"3051"}`, llm.TooLong},
		{"DeepSeek", 402, `{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}`, llm.Quota},
		{"DeepSeek", 400, `{"error":{"message":"Model Not Exist","type":"invalid_request_error","code":"invalid_request_error"}}`, llm.NoModel},
		{"DeepSeek", 400, "{\"error\":{\"message\":\"Failed to deserialize the JSON body into the target type: messages[0]: unknown variant `image_url`, expected `text`\"}}", llm.Unsupported},
		{"DeepSeek", 401, `{"error":{"message":"Authentication Fails (no such user)","type":"authentication_error"}}`, llm.Denied},
		{"a proxy", 502, `<html><head><title>502 Bad Gateway</title></head></html>`, llm.Unavailable},
		{"a proxy", 403, `Forbidden`, llm.Denied},
		{"a proxy", 405, ``, llm.Invalid},
		{"a proxy", 413, `<html>413 Request Entity Too Large</html>`, llm.TooLong},
		{"a proxy", 504, ``, llm.Unavailable},
	} {
		c := New(Config{Name: "x"})
		e := c.Fault(tt.status, ReadTrouble([]byte(tt.body)))
		if e.Fault != tt.want || e.Message == "" {
			t.Errorf("%s, %d %s: %s %q, want %s", tt.from, tt.status, tt.body, e.Fault, e.Message, tt.want)
		}
	}
}

func TestMessages(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"a\nb\u0000c"}}`:                          "a b c",
		`{"error":"words"}`:                                            "words",
		`{"error":{"code":"no_words"}}`:                                "no_words",
		`{"error":null,"message":"outer"}`:                             "outer",
		`{"message":"plain"}`:                                          "plain",
		`{"detail":"short"}`:                                           "short",
		`{"detail":[{"loc":["body","model"],"msg":"field required"}]}`: "model: field required",
		`[{"error":{"message":"in a list"}}]`:                          "in a list",
		`{"something":"else"}`:                                         `{"something":"else"}`,
		`[]`:                                                           `[]`,
		`no JSON`:                                                      "no JSON",
		"\xff\xfe":                                                     "\ufffd",
		``:                                                             "HTTP status 400",
		`{"error":{"message":"Provider returned error","metadata":{"raw":"the real one"}}}`: "Provider returned error: the real one",
		`{"error":{"message":"` + strings.Repeat("ü", 600) + `"}}`:                          strings.Repeat("ü", 500) + "…",
		`{"error":{"message":"` + strings.Repeat("x", 496) + `my-key my-key"}}`:             strings.Repeat("x", 496) + "[key…",
	} {
		e := New(Config{Name: "x", Key: NewKey("my-key")}).Fault(400, ReadTrouble([]byte(body)))
		if e.Message != want {
			t.Errorf("%s: %q, want %q", body, e.Message, want)
		}
	}
}

// FuzzReadTrouble proves that the key is in no message, and that messages are short.
func FuzzReadTrouble(f *testing.F) {
	for _, s := range []string{`{"error":{"message":"a","details":[{"retryDelay":"3s","violations":[{"quotaId":"PerDay"}]}]}}`, `[{"error":"s3cret/key"}]`, `{"detail":[{"loc":[1],"msg":"x"}]}`} {
		f.Add(s, 400)
	}
	f.Fuzz(func(t *testing.T, body string, status int) {
		e := New(Config{Name: "x", Key: NewKey("s3cret/key")}).Fault(status, ReadTrouble([]byte(body)))
		if strings.Contains(e.Message, "s3cret/key") || len([]rune(e.Message)) > maxText+1 || strings.ContainsAny(e.Message, "\n\x00") {
			t.Fatalf("%q", e.Message)
		}
		if e.Fault == "" || e.RetryAfter < 0 {
			t.Fatalf("%+v", e)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "0.5": 500 * time.Millisecond, "-3": 0, "soon": 0, "1e300": 0, "NaN": 0,
		"Sun, 01 Mar 2026 12:00:30 GMT": 30 * time.Second, "Sun, 01 Mar 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("Retry-After: %s: %s, want %s", text, got, want)
		}
	}
	both := http.Header{"Retry-After": {"5"}, "Retry-After-Ms": {"250"}}
	if got := retryAfter(both, now); got != 250*time.Millisecond {
		t.Errorf("in milliseconds: %s", got)
	}
}

func TestPauses(t *testing.T) {
	c := New(Config{Tries: 10})
	for try, most := range map[int]time.Duration{1: 500 * time.Millisecond, 2: time.Second, 3: 2 * time.Second, 9: longestPause} {
		for range 100 {
			pause, again := c.again(&llm.Error{Fault: llm.Limited}, try)
			if !again || pause < most/2 || pause > most {
				t.Fatalf("try %d: %s, %v, want %s to %s", try, pause, again, most/2, most)
			}
		}
	}
	for name, e := range map[string]*llm.Error{
		"denied": {Fault: llm.Denied}, "quota": {Fault: llm.Quota}, "broken": {Fault: llm.Broken}, "invalid": {Fault: llm.Invalid},
		"too late": {Fault: llm.Limited, RetryAfter: 61 * time.Second}, "final": {Fault: llm.Unavailable, Cause: errors.Join(io.EOF, errFinal)},
	} {
		if _, again := c.again(e, 1); again {
			t.Errorf("%s is tried again", name)
		}
	}
	if pause, again := c.again(&llm.Error{Fault: llm.Limited, RetryAfter: time.Minute}, 1); !again || pause != time.Minute {
		t.Errorf("a minute: %s, %v", pause, again)
	}
	if _, again := c.again(&llm.Error{Fault: llm.Limited}, 10); again {
		t.Error("an eleventh try")
	}
}

func TestKey(t *testing.T) {
	type holder struct {
		Key    Key
		hidden Key
	}
	k := NewKey("s3cret")
	text, err := json.Marshal(holder{Key: k})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", k, "holder", holder{k, k})
	h := holder{k, k}
	for _, s := range []string{string(text), log.String(), fmt.Sprintf("%v %+v %#v %s %q %d %x", k, k, k, k, k, k, k), fmt.Sprintf("%v %+v %#v", h, h, h), fmt.Sprintf("%v %+v %#v", &h, &h, &h)} {
		if strings.Contains(s, "s3cret") || strings.Contains(s, fmt.Sprintf("%x", "s3cret")) {
			t.Errorf("the key is in %s", s)
		}
	}
	if k.Reveal() != "s3cret" || !k.Set() || NewKey("").Set() || (Key{}).Reveal() != "" || h.hidden.String() != "[set]" {
		t.Error("the key is lost")
	}
}
