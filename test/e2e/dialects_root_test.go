//go:build root

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestEveryDialect has one daemon ask models of all protocols, each of which calls a tool
// in a sandbox of its thread and reads the result.
func TestEveryDialect(t *testing.T) {
	t.Parallel()
	model := startModel(t)
	h := newReal(t, harness.Options{Env: []string{
		"OPENAI_API_KEY=" + key, "OPENAI_BASE_URL=" + model + "/v1", "ANTHROPIC_API_KEY=" + key, "ANTHROPIC_BASE_URL=" + model,
		"GEMINI_API_KEY=" + key, "GOOGLE_GEMINI_BASE_URL=" + model, "OLLAMA_HOST=" + model, "CUBBY_AGENT_MODEL=openai/gpt-4o",
	}})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"openai/gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash", "ollama/qwen3"} {
		body := fmt.Sprintf(`{"assistant_id":"agent","input":{"messages":[{"role":"user","content":"fibonacci"}]},
			"config":{"configurable":{"model":%q}},"on_completion":"keep"}`, name)
		res, err := http.Post(url+"/agent/runs/wait", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		var state struct {
			Messages []struct {
				Type, Status string
				Content      any
			}
		}
		if err := json.Unmarshal(text, &state); err != nil || len(state.Messages) != 4 {
			t.Errorf("%s: %d %s, %v", name, res.StatusCode, text, err)
			continue
		}
		tool, last := state.Messages[2], state.Messages[3]
		if tool.Status != "success" || !strings.Contains(fmt.Sprint(tool.Content), `2584\n4181`) || last.Content != "They are **0 to 4181**." {
			t.Errorf("%s: %+v", name, state.Messages)
		}
	}
}
