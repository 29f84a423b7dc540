package openai

import (
	"encoding/json"
	"testing"
)

// TestModelsThatDoNotChatAreNotListed: people choose from the list.
func TestModelsThatDoNotChatAreNotListed(t *testing.T) {
	for text, want := range map[string]bool{
		`{"id":"gpt-5"}`:                                                    true,
		`{"id":"gpt-4o-mini"}`:                                              true,
		`{"id":"llama3.2:latest"}`:                                          true,
		`{"id":"qwen2.5-coder:7b"}`:                                         true,
		`{"id":"deepseek-chat"}`:                                            true,
		`{"id":"text-embedding-3-small"}`:                                   false,
		`{"id":"nomic-embed-text:latest"}`:                                  false,
		`{"id":"mxbai-embed-large"}`:                                        false,
		`{"id":"bge-m3"}`:                                                   false,
		`{"id":"BAAI/bge-large-en-v1.5"}`:                                   false,
		`{"id":"all-minilm:latest"}`:                                        false,
		`{"id":"whisper-1"}`:                                                false,
		`{"id":"tts-1-hd"}`:                                                 false,
		`{"id":"gpt-4o-mini-tts"}`:                                          false,
		`{"id":"dall-e-3"}`:                                                 false,
		`{"id":"omni-moderation-latest"}`:                                   false,
		`{"id":"x","capabilities":{"completion_chat":false}}`:               false,
		`{"id":"mistral-large","capabilities":{"completion_chat":true}}`:    true,
		`{"id":"x/embedder","architecture":{"output_modalities":["text"]}}`: true,
		`{"id":"x/painter","architecture":{"output_modalities":["image"]}}`: false,
		`{"id":"together/embed-chat","type":"chat"}`:                        true,
	} {
		var m model
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		if m.chats() != want {
			t.Errorf("%s: %v, want %v", text, m.chats(), want)
		}
	}
}
