package providers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/llm"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Ref{
		"openai/gpt-4.1":                         {"openai", "gpt-4.1"},
		"OpenAI/gpt-4.1":                         {"openai", "gpt-4.1"},
		"google/gemini-2.5-pro":                  {"gemini", "gemini-2.5-pro"},
		"google_genai/gemini-2.5-pro":            {"gemini", "gemini-2.5-pro"},
		"openrouter/anthropic/claude-x":          {"openrouter", "anthropic/claude-x"},
		"ollama/llama3.2:3b":                     {"ollama", "llama3.2:3b"},
		"my-vllm/meta-llama/Llama-3.1-8B":        {"my-vllm", "meta-llama/Llama-3.1-8B"},
		"ollama/hf.co/org/model:Q4_K_M":          {"ollama", "hf.co/org/model:Q4_K_M"},
		"gpt-4.1":                                {},
		"":                                       {},
		"/gpt":                                   {},
		"openai/":                                {},
		"open ai/gpt":                            {},
		"openai/gpt 4":                           {},
		"openai/gpt\n4":                          {},
		"openäi/gpt":                             {},
		strings.Repeat("a", 64) + "/gpt":         {},
		"openai/" + strings.Repeat("a", 257):     {},
		"https://api.openai.com/v1/gpt-4.1-nano": {},
	} {
		got, err := Parse(text)
		if want == (Ref{}) {
			if !errors.Is(err, errs.Invalid) {
				t.Errorf("Parse(%q) = %v, %v, want invalid", text, got, err)
			}
			continue
		}
		if got != want || err != nil {
			t.Errorf("Parse(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	if got := (Ref{"openrouter", "a/b"}).String(); got != "openrouter/a/b" {
		t.Errorf("String = %q", got)
	}
}

// TestBase has what each vendor's own SDK makes of a base URL.
func TestBase(t *testing.T) {
	for _, tt := range []struct{ provider, url, want string }{
		{"openai", "", "https://api.openai.com/v1"},
		{"openai", "https://api.openai.com", "https://api.openai.com/v1"},
		{"openai", "http://localhost:8000", "http://localhost:8000/v1"},
		{"openai", "http://localhost:8000/", "http://localhost:8000/v1"},
		{"openai", "http://localhost:8000/v1/", "http://localhost:8000/v1"},
		{"openai", "https://gateway.corp/openai/v1", "https://gateway.corp/openai/v1"},
		{"openai", "https://gateway.corp/v1beta/openai//", "https://gateway.corp/v1beta/openai"},
		{"openai", "https://gateway.corp/v1/chat/completions", "https://gateway.corp/v1"},
		{"mine", "http://10.0.0.5:8000", "http://10.0.0.5:8000/v1"},
		{"mine", "http://[fd00::5]:8000/api", "http://[fd00::5]:8000/api"},
		{"anthropic", "", "https://api.anthropic.com"},
		{"anthropic", "https://api.anthropic.com/", "https://api.anthropic.com"},
		{"anthropic", "https://api.anthropic.com/v1", "https://api.anthropic.com"},
		{"anthropic", "https://gateway.corp/anthropic/v1/", "https://gateway.corp/anthropic"},
		{"anthropic", "https://gateway.corp/v1/messages", "https://gateway.corp"},
		{"gemini", "", "https://generativelanguage.googleapis.com/v1beta"},
		{"gemini", "https://generativelanguage.googleapis.com", "https://generativelanguage.googleapis.com/v1beta"},
		{"gemini", "http://127.0.0.1:4010/", "http://127.0.0.1:4010/v1beta"},
		{"google", "http://127.0.0.1:4010/v1beta", "http://127.0.0.1:4010/v1beta"},
		{"gemini", "http://127.0.0.1:4010/v1", "http://127.0.0.1:4010/v1"},
		{"ollama", "", "http://127.0.0.1:11434/v1"},
		{"ollama", "box", "http://box:11434/v1"},
		{"ollama", "box:1234", "http://box:1234/v1"},
		{"ollama", ":1234", "http://127.0.0.1:1234/v1"},
		{"ollama", "0.0.0.0", "http://127.0.0.1:11434/v1"},
		{"ollama", "0.0.0.0:1234", "http://127.0.0.1:1234/v1"},
		{"ollama", "[::]:1234", "http://[::1]:1234/v1"},
		{"ollama", "::1", "http://[::1]:11434/v1"},
		{"ollama", "http://box", "http://box:80/v1"},
		{"ollama", "https://ollama.corp", "https://ollama.corp:443/v1"},
		{"ollama", "https://ollama.corp/path/", "https://ollama.corp:443/path/v1"},
		{"ollama", "http://box:11434/v1", "http://box:11434/v1"},
		{"ollama", ` "box:1234" `, "http://box:1234/v1"},
		{"openrouter", "https://openrouter.ai/", "https://openrouter.ai/api/v1"},
		{"openrouter", "", "https://openrouter.ai/api/v1"},
		{"groq", "https://api.groq.com", "https://api.groq.com/openai/v1"},
		{"deepseek", "https://api.deepseek.com", "https://api.deepseek.com/v1"},
		{"mistral", "https://api.mistral.ai/v1/", "https://api.mistral.ai/v1"},
	} {
		name, err := Name(tt.provider)
		if err != nil {
			t.Fatal(err)
		}
		got, own, err := vendorOf(name).base(Source{Provider: tt.provider, BaseURL: tt.url, Trusted: true})
		if got != tt.want || err != nil || own != (tt.url != "") {
			t.Errorf("%s, %q: %q (its own: %v), %v, want %q", tt.provider, tt.url, got, own, err, tt.want)
		}
	}
}

func TestBadBases(t *testing.T) {
	set := New(Config{})
	defer set.Close()
	for _, tt := range []struct{ provider, url string }{
		{"openai", "api.openai.com"}, {"openai", "ftp://api.openai.com"}, {"openai", "https://"}, {"openai", "https:///v1"}, {"openai", "://x"},
		{"openai", "https://user:pass@api.openai.com/v1"}, {"openai", "https://key@api.openai.com"},
		{"openai", "https://api.openai.com/v1?key=x"}, {"openai", "https://api.openai.com/v1?"}, {"openai", "https://api.openai.com/v1#x"},
		{"openai", "https://api.openai.com:port"}, {"openai", "file:///etc/passwd"}, {"openai", "https:api.openai.com"}, {"openai", "https://a b/"},
		{"mine", ""}, {"", "https://x.example"},
	} {
		_, err := set.Open(Source{Provider: tt.provider, BaseURL: tt.url, Key: NewKey("k"), Trusted: true})
		if !errors.Is(err, errs.Invalid) {
			t.Errorf("Open(%s, %q): %v, want invalid", tt.provider, tt.url, err)
		}
	}
}

func TestEnviron(t *testing.T) {
	env := map[string]string{"OPENAI_API_KEY": " sk-1\n", "ANTHROPIC_BASE_URL": "http://gateway:8080/", "GEMINI_API_KEY": "g-1", "OLLAMA_HOST": "box", "MISTRAL_API_KEY": ""}
	sources, err := Environ(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, s := range sources {
		got += fmt.Sprintf("%s %q %q %v\n", s.Provider, s.BaseURL, s.Key.Reveal(), s.Trusted)
	}
	want := `openai "" "sk-1" true
anthropic "http://gateway:8080/" "" true
gemini "" "g-1" true
ollama "box" "" true
`
	if got != want {
		t.Errorf("the sources:\n%swant:\n%s", got, want)
	}
	if text := fmt.Sprintf("%v %+v %#v", sources, sources, sources); strings.Contains(text, "sk-1") {
		t.Errorf("printing tells the key: %s", text)
	}
	if _, err := Environ(func(name string) string { return map[string]string{"OPENAI_BASE_URL": "nowhere"}[name] }); !errors.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "OPENAI_BASE_URL") {
		t.Errorf("a bad base URL: %v", err)
	}
}

func TestKeys(t *testing.T) {
	set := New(Config{})
	defer set.Close()
	for _, v := range vendors {
		name := v.name
		_, err := set.Open(Source{Provider: name, Trusted: true})
		if !v.needsKey {
			if err != nil {
				t.Errorf("%s without a key: %v", name, err)
			}
			continue
		}
		if e := wantFault(t, err, llm.Denied); !strings.Contains(e.Message, v.keyEnv) {
			t.Errorf("%s without a key: %v", name, e)
		}
		// A server of one's own may need none.
		if _, err := set.Open(Source{Provider: name, BaseURL: "http://10.0.0.1", Trusted: true}); err != nil {
			t.Errorf("%s with a base URL and no key: %v", name, err)
		}
	}
	for _, key := range []string{"sk\n-1", "sk 1", "sk-ü", "sk\x00"} {
		_, err := set.Open(Source{Provider: "openai", Key: NewKey(key), Trusted: true})
		if !errors.Is(err, errs.Invalid) || strings.Contains(err.Error(), key) {
			t.Errorf("the key %q: %v, want invalid", key, err)
		}
	}
}
