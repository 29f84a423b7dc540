package openai

import (
	"regexp"
	"slices"
)

// model is one of a list. Its fields but the id are those of single providers.
type model struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Type    string `json:"type"`               // Together
	Context int    `json:"context_length"`     // OpenRouter
	Window  int    `json:"context_window"`     // Groq
	Max     int    `json:"max_context_length"` // Mistral
	Length  int    `json:"max_model_len"`      // vLLM

	Capabilities struct {
		Chat *bool `json:"completion_chat"` // Mistral
	} `json:"capabilities"`
	Architecture struct {
		Output []string `json:"output_modalities"` // OpenRouter
	} `json:"architecture"`
}

// other are the names of models for something else: embeddings, speech, pictures, the
// ordering of search results. OpenAI and Ollama list them beside the others and say no
// more about them.
var other = regexp.MustCompile(`(?i)embed|whisper|(^|[-/])tts(-|$)|dall-e|moderation|rerank|transcribe|gpt-image|(^|/)(bge|gte|e5|sora)-|all-minilm|(davinci|babbage)-002|realtime`)

// chats reports whether a model answers in words, as far as its provider says.
func (m model) chats() bool {
	switch {
	case m.Capabilities.Chat != nil:
		return *m.Capabilities.Chat
	case len(m.Architecture.Output) > 0:
		return slices.Contains(m.Architecture.Output, "text")
	case m.Type == "chat" || m.Type == "language":
		return true
	}
	return !other.MatchString(m.ID)
}
