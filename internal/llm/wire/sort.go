package wire

import (
	"net/http"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
)

// The words by which providers are understood where their status does not tell
// enough, in lower case. They are in the message, or in the code of an error.
var (
	wordsTooLong = []string{
		"context_length_exceeded", "exceed_context_size", "request_too_large", "context window",
		"maximum context length", "max context length", "context length exceeded", "exceeds the context length", "exceeds the maximum context", "maximum model length", "available context size", "exceed context limit", // OpenAI, vLLM, llama.cpp, Anthropic
		"prompt is too long", "prompt too long", "input is too long", "request too large for", "reduce the length of the messages",
		"exceeds the maximum number of tokens", // Gemini
		"maximum prompt length", "too large for model with",
	}
	wordsQuota = []string{
		"insufficient_quota", "billing", "credit balance", "insufficient credits", "insufficient balance", "insufficient funds",
		"credits are depleted", "usage limits", "requires more credits", "spend limit", "spending limit",
	}
	wordsDenied = []string{
		"api_key_invalid", "api key not valid", "api key expired", "invalid api key", "invalid_api_key", "incorrect api key", "user location is not supported",
		"authentication_error", "permission_error", "unauthenticated", "permission_denied",
	}
	wordsNoModel = []string{
		"model_not_found", "model not exist", "not a valid model", "invalid model", "model not found", "no such model", "unknown model", "invalid_model",
		"no endpoints found for", "decommissioned",
	}
	wordsCannot    = []string{"not support", "unsupported", "not enabled for", "only supported by", "not a multimodal", "missing data required for", "unknown variant `image_url`", "content must be a string", "no endpoints found that support"}
	wordsAbilities = []string{"image", "vision", "tool", "function", "multimodal", "modality", "audio", "video", "pdf", "file", "document", "media type", "mime type", "content must be a string"}
	// Of a setting that the request could leave out, and not of what is in its messages.
	wordsSetting  = []string{"unsupported_parameter", "unsupported_value"}
	wordsLimited  = []string{"rate_limit", "rate limit", "too many requests", "resource_exhausted", "tokens per min", "requests per min"}
	wordsOverload = []string{"overloaded", "at capacity", "temporarily unavailable", "api_error", "server_error", "service unavailable", "unavailable"}
)

// sort says what kind of trouble it is.
func sort(status int, t Trouble) llm.Fault {
	text := strings.ToLower(t.Message + " " + t.Code)
	has := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	noModel := has(wordsNoModel) || status == http.StatusNotFound && strings.Contains(text, "model")
	switch {
	case status == http.StatusPaymentRequired, has(wordsQuota) && (status != http.StatusTooManyRequests || t.RetryAfter == 0 || t.PerDay), t.PerDay:
		return llm.Quota
	case status == http.StatusUnauthorized, status == http.StatusForbidden, has(wordsDenied):
		return llm.Denied
	case has(wordsTooLong):
		return llm.TooLong
	case noModel:
		return llm.NoModel
	case has(wordsCannot) && has(wordsAbilities) && !has(wordsSetting):
		return llm.Unsupported
	case status == http.StatusTooManyRequests, has(wordsLimited):
		return llm.Limited
	case status == http.StatusRequestEntityTooLarge:
		return llm.TooLong
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status >= 500:
		return llm.Unavailable
	case status == 0 || status < 400:
		// In the middle of an answer the status is not known.
		if has(wordsOverload) {
			return llm.Unavailable
		}
		return llm.Broken
	}
	return llm.Invalid
}
