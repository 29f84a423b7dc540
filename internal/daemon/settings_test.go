package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/settings"
	agentsettings "github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/errs"
)

// tokens are of the operator and of two tenants.
func tokens(c *config.Config) { c.Tokens = "op:t-operator,ann@acme:t-acme,bob@beta:t-beta" }

// ask makes a request, and returns the status and the body.
func ask(t *testing.T, token, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestSettingsOverHTTP(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: tokens, Environ: map[string]string{"ANTHROPIC_API_KEY": "hush-environment"}})
	of := func(token string) *settings.Client {
		c := client.New(d.URL, client.WithToken(token))
		t.Cleanup(c.Close)
		return settings.New(c)
	}
	ctx := t.Context()
	operator, acme, beta := of("t-operator"), of("t-acme"), of("t-beta")
	s, err := operator.Change(ctx, settings.Patch{
		"model": "anthropic/claude", "max_iterations": 30, "approval": settings.Patch{"exec": "deny"},
		"providers": settings.Patch{"openai": settings.Patch{"key": "hush-operator-key", "base_url": "http://10.0.0.1/v1/"}},
	})
	text := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	if err != nil || s.TenantID != "" || text(s.Model) != "anthropic/claude" || text(s.Providers["openai"].BaseURL) != "http://10.0.0.1/v1" ||
		text(s.Providers["openai"].KeyHint) != "hus••••••••••-key" || s.MaxIterations == nil || *s.MaxIterations != 30 ||
		text(s.Effective.Providers["anthropic"].KeySource) != "environment" || s.SupportsVision != nil || s.Effective.SupportsVision != "auto" {
		t.Errorf("the operator has %+v, %v", s, err)
	}
	s, err = acme.Change(ctx, settings.Patch{"providers": settings.Patch{"openai": settings.Patch{"base_url": "https://acme.example"}}, "approval": settings.Patch{"exec": "allow"}})
	if p := s.Effective.Providers["openai"]; err != nil || s.TenantID != "acme" || s.Model != nil || text(s.Effective.Model) != "anthropic/claude" ||
		text(s.Effective.ModelSource) != "operator" || text(p.BaseURL) != "https://acme.example" || p.KeyHint != nil || p.KeySource != nil ||
		s.Approval["exec"] != "allow" || s.Effective.Approval["exec"] != "deny" {
		t.Errorf("acme has %+v, %v", s, err)
	}
	s, err = beta.Get(ctx)
	if p := s.Effective.Providers["openai"]; err != nil || len(s.Providers) != 0 || p.BaseURL != nil || text(p.BaseURLSource) != "operator" ||
		text(p.KeyHint) != "••••••••" || text(p.KeySource) != "operator" {
		t.Errorf("beta has %+v, %v", s, err)
	}
	s, err = acme.Replace(ctx, settings.Patch{"model": "openai/x"})
	if err != nil || text(s.Model) != "openai/x" || len(s.Providers)+len(s.Approval) != 0 {
		t.Errorf("after Replace acme has %+v, %v", s, err)
	}
	if err := acme.Clear(ctx); err != nil {
		t.Error(err)
	}
	if s, err := acme.Get(ctx); err != nil || s.Model != nil {
		t.Errorf("after Clear acme has %+v, %v", s, err)
	}

	for _, tt := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"PATCH", "/v1/settings", `{"modell":"a/b"}`, 400, "unknown field"},
		{"PATCH", "/v1/settings", `{"providers":{"a":{"api_key":"hush-wrong"}}}`, 400, "unknown field"},
		{"PATCH", "/v1/settings", `{"providers":{"a":{"base_url":"http://u:hush-wrong@h"}}}`, 400, "a.base_url"},
		{"PATCH", "/v1/settings", `{"max_iterations":"7"}`, 400, "invalid json"},
		{"PATCH", "/v1/settings", `[]`, 400, "invalid json"},
		{"PATCH", "/v1/settings", ``, 400, "invalid json"},
		{"PUT", "/v1/settings", `{"model":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "too_large"},
		{"GET", "/v1/settings?tenant_id=acme", ``, 400, "unknown query parameter"},
		{"GET", "/v1/settings/models?providers=a", ``, 400, "unknown query parameter"},
		{"POST", "/v1/settings", `{}`, 405, "allowed: GET, HEAD, PUT, PATCH, DELETE"},
		{"POST", "/v1/settings/test", `{"model":1}`, 400, "invalid json"},
	} {
		status, body := ask(t, "t-operator", tt.method, d.URL+tt.path, tt.body)
		if status != tt.status || !strings.Contains(body, tt.says) || strings.Contains(body, "hush") {
			t.Errorf("%s %s %.60s = %d %.300s, want %d with %q", tt.method, tt.path, tt.body, status, body, tt.status, tt.says)
		}
	}
	for _, path := range []string{"/v1/settings", "/v1/settings/models", "/settings"} {
		if status, body := ask(t, "", "GET", d.URL+path, ""); status != 401 {
			t.Errorf("GET %s without a token = %d %s", path, status, body)
		}
	}
}

// TestSettingsOfSandboxAgent speaks its dialect.
func TestSettingsOfSandboxAgent(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: tokens, Environ: map[string]string{
		"CHAT_MODEL": "gpt-4o", "CHAT_MODEL_API_KEY": "sk-hush-environment", "CHAT_MODEL_SUPPORTS_VISION": "true",
	}})
	shape := func(model, provider, hint, url, vision string) string {
		return fmt.Sprintf(`{"chatModel":%q,"chatModelProvider":%q,"chatModelApiKey":"","chatModelApiKeyHint":%q,"chatModelBaseUrl":%q,"supportsVision":%s}`,
			model, provider, hint, url, vision)
	}
	const hidden = "••••••••"
	for i, tt := range []struct {
		token, body string // "": GET
		want        string
	}{
		{"t-operator", "", shape("gpt-4o", "openai", "sk-••••••••••••ment", "", "true")},
		{"t-acme", "", shape("gpt-4o", "openai", hidden, "", "true")},
		{"t-operator", `{"chatModelApiKey":"12345678","supportsVision":false}`, shape("gpt-4o", "openai", hidden, "", "false")},
		{"t-operator", `{"chatModelApiKey":"","chatModelBaseUrl":"http://127.0.0.1:1/v1","supportsVision":null}`, shape("gpt-4o", "openai", "sk-••••••••••••ment", "http://127.0.0.1:1/v1", "null")},
		{"t-acme", `{"chatModel":"gemini-2","chatModelProvider":"google_genai","chatModelApiKey":"hush-5be00d21","supportsVision":"1","unknown":{}}`, shape("gemini-2", "google_genai", "hus••••••0d21", "", "true")},
		{"t-acme", `{"chatModel":"gemini-3","chatModelApiKey":null}`, shape("gemini-3", "google_genai", "hus••••••0d21", "", "true")},
		{"t-acme", `{"chatModelApiKey":""}`, shape("gemini-3", "google_genai", "hus••••••0d21", "", "true")},
		{"t-acme", `{"chatModelProvider":"anthropic"}`, shape("gemini-3", "anthropic", "", "", "true")},
		{"t-acme", `{"chatModelProvider":"google_genai","chatModelBaseUrl":"https://g.example"}`, shape("gemini-3", "google_genai", "", "https://g.example", "true")},
		{"t-acme", `{"chatModelBaseUrl":""}`, shape("gemini-3", "google_genai", "", "", "true")},
		{"t-beta", "", shape("gpt-4o", "openai", hidden, "", "null")},
		{"t-operator", "", shape("gpt-4o", "openai", "sk-••••••••••••ment", "http://127.0.0.1:1/v1", "null")},
	} {
		method := http.MethodPut
		if tt.body == "" {
			method = http.MethodGet
		}
		status, body := ask(t, tt.token, method, d.URL+"/settings", tt.body)
		if status != 200 || strings.TrimSpace(body) != tt.want {
			t.Errorf("%d: %s %s of %s = %d\n%s\nwant\n%s", i, method, tt.body, tt.token, status, body, tt.want)
		}
	}
	for body, says := range map[string]string{
		`{"chatModelApiKey":"a b"}`: `{"detail":"providers.`, `{"supportsVision":"maybe"}`: `{"detail":"supportsVision`, `{"supportsVision":[]}`: `{"detail":"supportsVision`,
		`{"chatModel":7}`: `{"detail":"invalid json`, `no`: `{"detail":"invalid json`, `{"chatModelProvider":"../x"}`: `{"detail":"model`,
	} {
		if status, answer := ask(t, "t-acme", "PUT", d.URL+"/settings", body); status != 400 || !strings.HasPrefix(answer, says) {
			t.Errorf("PUT %s = %d %s", body, status, answer)
		}
	}
}

// TestKeysOfProvidersStayOut sets and tests keys through every door, and looks for
// them in everything that the daemon wrote and said.
func TestKeysOfProvidersStayOut(t *testing.T) {
	secrets := map[string]string{
		"operator's key": "hush-a1c44e0e", "tenant's key": "hush-5be00d21", "key over sandbox-agent": "hush-77f3a9c0",
		"key that is replaced": "hush-0e1dbeef", "key of the environment": "hush-c0ffee42", "key that is refused": "hush-dead0bad",
	}
	used := make(chan string, 10)
	d := daemontest.Start(t, daemontest.Options{
		Config: tokens, Environ: map[string]string{"ANTHROPIC_API_KEY": secrets["key of the environment"]},
		Asking: &agentsettings.Asking{
			Models: func(_ context.Context, e agentsettings.Endpoint) ([]agentsettings.Model, error) {
				if e.Provider == "bad" {
					return nil, errs.E(errs.Unavailable, "the key %s is wrong", string(e.Key)).Because(errors.New(string(e.Key)))
				}
				return []agentsettings.Model{{ID: "m", Name: "M", Context: 8}}, nil
			},
			Test: func(_ context.Context, e agentsettings.Endpoint, _ string) error {
				used <- string(e.Key)
				if e.Provider == "bad" {
					return errs.E(errs.Internal, "no").Because(errors.New("Bearer " + string(e.Key)))
				}
				return nil
			},
		},
	})
	var said strings.Builder
	do := func(want int, token, method, path, body string) string {
		t.Helper()
		status, answer := ask(t, token, method, d.URL+path, body)
		if status != want {
			t.Errorf("%s %s = %d %s", method, path, status, answer)
		}
		said.WriteString(answer)
		return answer
	}
	key := func(provider, key string) string { return `{"providers":{"` + provider + `":{"key":"` + key + `"}}}` }
	do(200, "t-operator", "PATCH", "/v1/settings", key("openai", secrets["key that is replaced"]))
	do(200, "t-operator", "PUT", "/v1/settings", key("openai", secrets["operator's key"]))
	do(200, "t-acme", "PATCH", "/v1/settings", key("bad", secrets["tenant's key"]))
	do(200, "t-beta", "PUT", "/settings", `{"chatModel":"m","chatModelApiKey":"`+secrets["key over sandbox-agent"]+`"}`)
	do(400, "t-acme", "PATCH", "/v1/settings", key("bad", secrets["key that is refused"]+` \u00e4`))
	do(400, "t-acme", "PATCH", "/v1/settings", `{"key":"`+secrets["key that is refused"]+`"}`)
	for _, token := range []string{"t-operator", "t-acme", "t-beta"} {
		do(200, token, "GET", "/v1/settings", "")
		do(200, token, "GET", "/settings", "")
	}
	for _, tt := range []struct{ token, model, key string }{
		{"t-operator", "openai/m", "operator's key"}, {"t-acme", "openai/m", "operator's key"}, {"t-acme", "anthropic/m", "key of the environment"},
	} {
		answer := do(200, tt.token, "POST", "/v1/settings/test", `{"model":"`+tt.model+`"}`)
		if got := <-used; got != secrets[tt.key] || strings.TrimSpace(answer) != `{"ok":true,"model":"`+tt.model+`"}` {
			t.Errorf("a test of %s by %s uses %q: %s", tt.model, tt.token, got, answer)
		}
	}
	do(200, "t-beta", "POST", "/v1/settings/test", `{}`)
	if got := <-used; got != secrets["key over sandbox-agent"] {
		t.Errorf("the test of beta uses %q", got)
	}
	do(500, "t-acme", "POST", "/v1/settings/test", `{"model":"bad/m"}`)
	if got := <-used; got != secrets["tenant's key"] {
		t.Errorf("the test of acme uses %q", got)
	}
	var list settings.Models
	if err := json.Unmarshal([]byte(do(200, "t-acme", "GET", "/v1/settings/models", "")), &list); err != nil {
		t.Error(err)
	}
	want := settings.Models{
		Models: []settings.Model{{ID: "anthropic/m", Provider: "anthropic", Name: "M", Context: 8}, {ID: "openai/m", Provider: "openai", Name: "M", Context: 8}},
		Errors: map[string]string{"bad": "the key hus••••••0d21 is wrong"},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	do(404, "t-beta", "GET", "/v1/settings/models?provider=bad", "")

	// The search of the daemon's files looks for a sandbox in the log.
	c := client.New(d.URL, client.WithToken("t-acme"))
	defer c.Close()
	box, err := c.Create(t.Context(), client.CreateOptions{ID: "box"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(t.Context(), box.ID, client.Shell("true")); err != nil {
		t.Error(err)
	}
	events, _, err := c.Events(t.Context(), box.ID, 0, 1000)
	if err != nil {
		t.Error(err)
	}
	for _, e := range events {
		said.WriteString(string(e.Payload) + string(e.Result))
	}
	searchForSecrets(t, d, secrets)
	do(204, "t-acme", "DELETE", "/v1/settings", "")
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	searchForSecrets(t, d, secrets)
	for what, value := range secrets {
		if strings.Contains(said.String(), value) {
			t.Errorf("the %s is in an answer", what)
		}
	}
	if log := d.Log(); !strings.Contains(log, "the agent's settings were changed") || !strings.Contains(log, "the agent's settings were cleared") {
		t.Error("the log does not say who changed settings")
	}
}
