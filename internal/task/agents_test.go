package task_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/task"
)

func TestNames(t *testing.T) {
	if got, want := task.Names(), []string{"claude", "codex", "gemini", "opencode"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !slices.Contains(task.Names(), task.DefaultAgent) {
		t.Error("the default is not known")
	}
}

// No value of a key is in a definition, which is stored and shown.
func TestDefinitionsHaveNoSecret(t *testing.T) {
	for _, name := range task.Names() {
		env := make(map[string]string)
		for _, key := range task.Keys(name) {
			env[key] = "very-secret"
			if strings.HasSuffix(key, "_URL") {
				env[key] = "https://models.example.com/v1"
			}
		}
		agent, err := task.Known(name, "a/model-1", env)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(agent)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "very-secret") || agent.Name != name || agent.Protocol != task.ACP || len(agent.Command) == 0 {
			t.Errorf("%s", text)
		}
		if len(env) < 2 {
			t.Errorf("%s has the keys %q", name, task.Keys(name))
		}
	}
}

func TestKnownRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, model string
		env         map[string]string
	}{
		{"nobody", "", nil},
		{"", "", nil},
		{"claude", "--dangerous", nil},
		{"gemini", "a b", nil},
		{"codex", "a\nb", nil},
		{"opencode", strings.Repeat("x", 300), nil},
		{"opencode", "no-provider", nil},
		{"opencode", "", map[string]string{"OPENAI_BASE_URL": "http://models.example.com/v1"}},
	} {
		if got, err := task.Known(tt.name, tt.model, tt.env); !errors.Is(err, errs.Invalid) {
			t.Errorf("%q, %.20q: %+v, %v", tt.name, tt.model, got, err)
		}
	}
}

func TestModels(t *testing.T) {
	openai := map[string]string{"OPENAI_BASE_URL": "http://models.example.com/v1"}
	for _, tt := range []struct {
		name, model string
		env         map[string]string
		want        string // in the definition
	}{
		{"opencode", "anthropic/claude-x", nil, `\"model\":\"anthropic/claude-x\"`},
		{"opencode", "llama", openai, `\"model\":\"openai-compatible/llama\"`},
		// OpenCode's own provider of that name speaks another protocol.
		{"opencode", "openai/gpt-x", openai, `\"model\":\"openai-compatible/gpt-x\"`},
		{"opencode", "mine/llama", openai, `\"mine\":{\"models\":{\"llama\":{\"name\":\"llama\"}},\"name\":\"mine\",\"npm\":\"@ai-sdk/openai-compatible\",\"options\":{\"apiKey\":\"{env:OPENAI_API_KEY}\",\"baseURL\":\"http://models.example.com/v1\"}}`},
		{"opencode", "anthropic/claude-x", map[string]string{"ANTHROPIC_BASE_URL": "http://models.example.com/"}, `\"baseURL\":\"http://models.example.com/v1\"`},
		{"claude", "claude-x", nil, `"ANTHROPIC_MODEL":"claude-x"`},
		{"codex", "gpt-x", openai, `\"base_url\":\"http://models.example.com/v1\"`},
		{"codex", "gpt-x", nil, `\"model\":\"gpt-x\"`},
		{"gemini", "gemini-x", nil, `"--model","gemini-x"`},
	} {
		agent, err := task.Known(tt.name, tt.model, tt.env)
		if err != nil {
			t.Errorf("%s %s: %v", tt.name, tt.model, err)
			continue
		}
		if text, _ := json.Marshal(agent); !strings.Contains(string(text), tt.want) {
			t.Errorf("%s %s: %s, want %s in it", tt.name, tt.model, text, tt.want)
		}
	}
}

func TestProviders(t *testing.T) {
	at := func(key, address string) map[string]string { return map[string]string{key: address} }
	for _, tt := range []struct {
		name, model    string
		known, trusted map[string]string
		want           []string
	}{
		{"claude", "", nil, nil, []string{"api.anthropic.com:443"}},
		{"claude", "", nil, at("ANTHROPIC_BASE_URL", "http://Proxy.example.com:8080/x"), []string{"proxy.example.com:8080"}},
		// An address that the operator did not set is not believed.
		{"claude", "", at("ANTHROPIC_BASE_URL", "http://evil.example.com"), nil, []string{"api.anthropic.com:443"}},
		{"claude", "", nil, at("ANTHROPIC_BASE_URL", "http://127.0.0.1:8080"), nil},
		{"claude", "", nil, at("ANTHROPIC_BASE_URL", "http://localhost"), nil},
		{"claude", "", nil, at("ANTHROPIC_BASE_URL", "http://[::1]:1"), nil},
		{"claude", "", nil, at("ANTHROPIC_BASE_URL", "nonsense"), nil},
		{"claude", "", nil, at("ANTHROPIC_BASE_URL", "ftp://example.com"), nil},
		{"codex", "", nil, nil, []string{"api.openai.com:443"}},
		{"codex", "", nil, at("OPENAI_BASE_URL", "https://models.example.com/v1"), []string{"models.example.com:443"}},
		{"codex", "", nil, at("OPENAI_BASE_URL", "http://[2001:db8::1]/v1"), []string{"[2001:db8::1]:80"}},
		{"gemini", "", nil, nil, []string{"generativelanguage.googleapis.com:443"}},
		{"opencode", "openrouter/x/y", nil, nil, []string{"openrouter.ai:443"}},
		{"opencode", "anthropic/x", nil, at("OPENAI_BASE_URL", "http://models.example.com"), []string{"api.anthropic.com:443"}},
		{"opencode", "openai/x", nil, nil, []string{"api.openai.com:443"}},
		{"opencode", "x", nil, at("OPENAI_BASE_URL", "http://models.example.com"), []string{"models.example.com:80"}},
		{"opencode", "mine/x", nil, at("OPENAI_BASE_URL", "http://models.example.com"), []string{"models.example.com:80"}},
		{"opencode", "other/x", nil, nil, nil},
		{"opencode", "", at("GEMINI_API_KEY", "k"), nil, []string{"generativelanguage.googleapis.com:443"}},
		{"opencode", "", map[string]string{"GEMINI_API_KEY": "k", "OPENAI_API_KEY": "k"}, nil, []string{"api.openai.com:443", "generativelanguage.googleapis.com:443"}},
		{"opencode", "", nil, nil, []string{"opencode.ai:443"}},
		{"nobody", "", nil, nil, nil},
	} {
		if got := task.Providers(tt.name, tt.model, tt.known, tt.trusted); !slices.Equal(got, tt.want) {
			t.Errorf("%s %q %v %v: %q, want %q", tt.name, tt.model, tt.known, tt.trusted, got, tt.want)
		}
	}
}
