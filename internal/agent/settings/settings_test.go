package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// as is a context of a caller of a tenant.
func as(t testing.TB, tenant string) context.Context {
	return auth.WithPrincipal(t.Context(), auth.Principal{Name: "ann", Tenant: tenant})
}

// opened is a store at path with a key.
func opened(t testing.TB, path string, key *seal.Key) *store.Store {
	t.Helper()
	storetest.Migrate(t, path)
	st, err := store.Open(t.Context(), store.Config{Path: path, Seal: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// fresh are settings in a store of their own.
func fresh(t testing.TB, c Config) *Settings {
	t.Helper()
	c.Store = opened(t, filepath.Join(t.TempDir(), "cubby.db"), nil)
	return New(c)
}

func patch(t testing.TB, text string) (p Patch) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// set changes settings.
func set(t testing.TB, s *Settings, tenant, text string) View {
	t.Helper()
	v, err := s.Set(as(t, tenant), patch(t, text))
	if err != nil {
		t.Fatalf("Set %s: %v", text, err)
	}
	return v
}

func wantKind(t testing.TB, what string, err, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}

func TestPatches(t *testing.T) {
	s := fresh(t, Config{})
	for _, step := range []struct {
		replace     bool
		patch, want string // what is kept, with masked keys
	}{
		{false, `{}`, `{}`},
		{false, `{"model":" openai/gpt-4o ","max_iterations":7}`, `{"model":"openai/gpt-4o","max_iterations":7}`},
		{false, `{"providers":{"openai":{"key":" sk-0123456789 \n","base_url":"https://a.example/v1/"}}}`, `{"model":"openai/gpt-4o",
			"providers":{"openai":{"base_url":"https://a.example/v1","key":"sk-••••••6789"}},"max_iterations":7}`},
		// An empty key and what is left out stay, but no key goes to another place.
		{false, `{"providers":{"openai":{"key":"","base_url":"https://a.example/v1/"}}}`, `{"model":"openai/gpt-4o",
			"providers":{"openai":{"base_url":"https://a.example/v1","key":"sk-••••••6789"}},"max_iterations":7}`},
		{false, `{"providers":{"openai":{"key":"","base_url":"http://b"},"ollama":{"base_url":"http://[::1]:11434"}},"max_iterations":null}`, `{"model":"openai/gpt-4o",
			"providers":{"openai":{"base_url":"http://b"},"ollama":{"base_url":"http://[::1]:11434"}}}`},
		{false, `{"approval":{"exec":"ask","*":"deny"},"supports_vision":"false","token_budget":5}`, `{"model":"openai/gpt-4o",
			"providers":{"openai":{"base_url":"http://b"},"ollama":{"base_url":"http://[::1]:11434"}},
			"supports_vision":"false","token_budget":5,"approval":{"*":"deny","exec":"ask"}}`},
		{false, `{"approval":{"exec":null,"x":"allow"},"providers":{"ollama":null,"openai":{"key":null}}}`, `{"model":"openai/gpt-4o",
			"providers":{"openai":{"base_url":"http://b"}},"supports_vision":"false","token_budget":5,"approval":{"*":"deny","x":"allow"}}`},
		{false, `{"providers":{"openai":{"key":"k"},"b":{"key":"123456789"}}}`, `{"model":"openai/gpt-4o",
			"providers":{"openai":{"base_url":"http://b","key":"•"},"b":{"key":"123••6789"}},"supports_vision":"false","token_budget":5,"approval":{"*":"deny","x":"allow"}}`},
		{true, `{"providers":{"openai":{}},"approval":{"y":"ask"}}`, `{"approval":{"y":"ask"}}`},
		{false, `{"providers":null,"approval":null}`, `{}`},
		{true, `{"model":"a/b/c"}`, `{"model":"a/b/c"}`},
		{false, `{"model":null}`, `{}`},
	} {
		change := s.Set
		if step.replace {
			change = s.Replace
		}
		v, err := change(as(t, "acme"), patch(t, step.patch))
		var want Document
		if err := json.Unmarshal([]byte(step.want), &want); err != nil {
			t.Fatal(err)
		}
		normal := func(d Document) Document {
			if len(d.Providers) == 0 {
				d.Providers = nil
			}
			if len(d.Approval) == 0 {
				d.Approval = nil
			}
			return d
		}
		if diff := cmp.Diff(want, normal(v.Own)); err != nil || diff != "" || v.Tenant != "acme" {
			t.Errorf("after %s: %v\n%s", step.patch, err, diff)
		}
		if again, err := s.Get(as(t, "acme")); err != nil || cmp.Diff(v, again) != "" {
			t.Errorf("Get after %s: %v\n%s", step.patch, err, cmp.Diff(v, again))
		}
	}
	if text, err := s.cfg.Store.AgentSettings(t.Context(), "acme"); err != nil || text != nil {
		t.Errorf("nothing is set, and kept is %q, %v", text, err)
	}
}

func TestInvalidSettings(t *testing.T) {
	s := fresh(t, Config{})
	set(t, s, "", `{"model":"openai/gpt-4o","providers":{"openai":{"key":"hush-5be00d21"}}}`)
	many := func(n int, entry string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(entry, i))
		}
		return strings.Join(all, ",")
	}
	for _, text := range []string{
		`{"model":"gpt-4o"}`, `{"model":"openai/"}`, `{"model":"/x"}`, `{"model":"Open AI/x"}`, `{"model":"openai/a b"}`, `{"model":"openai/` + strings.Repeat("x", 201) + `"}`,
		`{"providers":{"":{"key":"k"}}}`, `{"providers":{"A":{"key":"k"}}}`, `{"providers":{"a/b":{"key":"k"}}}`, `{"providers":{"../x":{"key":"k"}}}`,
		`{"providers":{` + many(33, `"p%d":{"key":"k"}`) + `}}`,
		`{"providers":{"a":{"key":"hush 1"}}}`, `{"providers":{"a":{"key":"hush\n1"}}}`, `{"providers":{"a":{"key":"hush•1"}}}`, `{"providers":{"a":{"key":"` + strings.Repeat("x", 4097) + `"}}}`,
		`{"providers":{"a":{"base_url":"a.example"}}}`, `{"providers":{"a":{"base_url":"ftp://a.example"}}}`, `{"providers":{"a":{"base_url":"file:///etc/passwd"}}}`,
		`{"providers":{"a":{"base_url":"http://"}}}`, `{"providers":{"a":{"base_url":"http://:80"}}}`, `{"providers":{"a":{"base_url":"http://u:hush@a.example"}}}`,
		`{"providers":{"a":{"base_url":"http://u@a.example"}}}`, `{"providers":{"a":{"base_url":"http://a.example?x=1"}}}`, `{"providers":{"a":{"base_url":"http://a.example/?"}}}`,
		`{"providers":{"a":{"base_url":"http://a.example#f"}}}`, `{"providers":{"a":{"base_url":"http://a.example/#"}}}`, `{"providers":{"a":{"base_url":"http://a.example/\u0000"}}}`,
		`{"providers":{"a":{"base_url":"http://a.example:port"}}}`, `{"providers":{"a":{"base_url":"http://` + strings.Repeat("x", 2048) + `"}}}`,
		`{"supports_vision":"yes"}`, `{"max_iterations":0}`, `{"max_iterations":-1}`, `{"max_iterations":1001}`, `{"token_budget":0}`, `{"token_budget":1000000001}`,
		`{"approval":{"exec":"maybe"}}`, `{"approval":{"exec":""}}`, `{"approval":{"a b":"ask"}}`, `{"approval":{"":"ask"}}`, `{"approval":{` + many(257, `"t%d":"ask"`) + `}}`,
	} {
		for name, change := range map[string]func(context.Context, Patch) (View, error){"Set": s.Set, "Replace": s.Replace} {
			_, err := change(as(t, ""), patch(t, text))
			wantKind(t, name+" "+text[:min(len(text), 80)], err, errs.Invalid)
			if err != nil && strings.Contains(fmt.Sprintf("%+v %+v", err, errs.Public(err)), "hush") {
				t.Errorf("%s: the error has the value: %v", text, err)
			}
		}
	}
	for _, text := range []string{
		`{"model":1}`, `{"providers":[]}`, `{"providers":{"a":{"api_key":"x"}}}`, `{"providers":{"a":"x"}}`, `{"max_iterations":"7"}`, `{"max_iterations":1.5}`, `{"approval":{"a":1}}`,
	} {
		if err := json.Unmarshal([]byte(text), new(Patch)); err == nil {
			t.Errorf("%s is read as a patch", text)
		}
	}
	if v, err := s.Get(as(t, "")); err != nil || v.Own.Model != "openai/gpt-4o" || len(v.Own.Providers) != 1 {
		t.Errorf("afterwards the settings are %+v, %v", v.Own, err)
	}
}

// TestWhoseSettings: a tenant has its own, everybody else the operator's.
func TestWhoseSettings(t *testing.T) {
	s := fresh(t, Config{})
	set(t, s, "", `{"model":"openai/operator"}`)
	set(t, s, "acme", `{"model":"openai/acme"}`)
	for tenant, want := range map[string][3]string{
		"": {"openai/operator", "openai/operator", "operator"}, "acme": {"openai/acme", "openai/acme", "tenant"}, "beta": {"", "openai/operator", "operator"},
	} {
		v, err := s.Get(as(t, tenant))
		if got := [3]string{v.Own.Model, v.Effective.Model, string(v.Effective.ModelFrom)}; err != nil || got != want || v.Tenant != tenant {
			t.Errorf("%q has %v, %v, want %v", tenant, got, err, want)
		}
	}
	if err := s.Clear(as(t, "acme")); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "Clear again", s.Clear(as(t, "acme")), nil)
	if v, err := s.Get(as(t, "acme")); err != nil || v.Own.Model != "" || v.Effective.Model != "openai/operator" {
		t.Errorf("after Clear acme has %+v, %v", v, err)
	}
	if v, err := s.Get(as(t, "")); err != nil || v.Own.Model != "openai/operator" {
		t.Errorf("after Clear of acme the operator has %+v, %v", v, err)
	}
}

// TestAKeyGoesWhereItsOwnerSaid puts base URLs and keys of all sources together.
func TestAKeyGoesWhereItsOwnerSaid(t *testing.T) {
	for _, tt := range []struct {
		tenant, operator, environment Provider
		want                          Endpoint
	}{
		{want: Endpoint{}},
		{environment: Provider{"http://e", "ke"}, want: Endpoint{BaseURL: "http://e", BaseURLFrom: FromEnvironment, Key: "ke", KeyFrom: FromEnvironment}},
		{operator: Provider{"http://o", ""}, environment: Provider{"http://e", "ke"}, want: Endpoint{BaseURL: "http://o", BaseURLFrom: Operator, Key: "ke", KeyFrom: FromEnvironment}},
		{operator: Provider{"http://o", "ko"}, want: Endpoint{BaseURL: "http://o", BaseURLFrom: Operator, Key: "ko", KeyFrom: Operator}},
		{tenant: Provider{"", "kt"}, operator: Provider{"http://o", "ko"}, want: Endpoint{BaseURL: "http://o", BaseURLFrom: Operator, Key: "kt", KeyFrom: Tenant}},
		{tenant: Provider{"http://t", "kt"}, operator: Provider{"http://o", "ko"}, want: Endpoint{BaseURL: "http://t", BaseURLFrom: Tenant, Key: "kt", KeyFrom: Tenant}},
		// The tenant's URL is sent no key of anybody else.
		{tenant: Provider{"http://t", ""}, operator: Provider{"http://o", "ko"}, want: Endpoint{BaseURL: "http://t", BaseURLFrom: Tenant}},
		{tenant: Provider{"http://t", ""}, environment: Provider{"", "ke"}, want: Endpoint{BaseURL: "http://t", BaseURLFrom: Tenant}},
		{tenant: Provider{"", "kt"}, want: Endpoint{Key: "kt", KeyFrom: Tenant}},
		{operator: Provider{"", "ko"}, want: Endpoint{Key: "ko", KeyFrom: Operator}},
	} {
		document := func(p Provider) Document {
			if p == (Provider{}) {
				return Document{}
			}
			return Document{Providers: map[string]Provider{"x": p, "other": {BaseURL: "http://other", Key: "other"}}}
		}
		e := layers{{Tenant, document(tt.tenant)}, {Operator, document(tt.operator)}, {FromEnvironment, document(tt.environment)}}.effective()
		if tt.want != (Endpoint{}) {
			tt.want.Provider = "x"
		}
		if got := e.Providers["x"]; got != tt.want {
			t.Errorf("of %+v: %+v with the key %q, want %+v", tt, got, string(got.Key), tt.want)
		}
	}
}

// TestPolicies: what holds for a tool is what is said of it on top, but nobody takes
// back what the operator denies.
func TestPolicies(t *testing.T) {
	type policy = map[string]Decision
	for name, tt := range map[string]struct{ tenant, operator, environment, want policy }{
		"none":                    {want: policy{}},
		"the operator's":          {nil, policy{"a": Ask}, policy{"a": Allow, "b": Deny}, policy{"a": Ask, "b": Deny}},
		"the operator's for all":  {nil, policy{"*": Allow}, policy{"b": Deny}, policy{"*": Allow, "b": Allow}},
		"a tenant's":              {policy{"a": Allow}, policy{"a": Ask, "*": Ask}, nil, policy{"a": Allow, "*": Ask}},
		"a tenant's for all":      {policy{"*": Ask}, policy{"a": Allow, "b": Deny}, nil, policy{"*": Ask, "a": Ask, "b": Deny}},
		"a denied tool":           {policy{"a": Allow}, policy{"a": Deny}, nil, policy{"a": Deny}},
		"all others denied":       {policy{"a": Allow, "b": Ask}, policy{"*": Deny, "b": Allow}, nil, policy{"*": Deny, "a": Deny, "b": Ask}},
		"all others denied again": {policy{"*": Allow}, policy{"*": Deny}, nil, policy{"*": Deny}},
	} {
		e := layers{{Tenant, Document{Approval: tt.tenant}}, {Operator, Document{Approval: tt.operator}}, {FromEnvironment, Document{Approval: tt.environment}}}.effective()
		if diff := cmp.Diff(tt.want, e.Approval); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestEffective(t *testing.T) {
	s := fresh(t, Config{Environment: Document{
		Model: "openai/env", MaxIterations: 25, TokenBudget: 9, Providers: map[string]Provider{"openai": {Key: "key-of-environment"}},
	}})
	set(t, s, "", `{"max_iterations":50,"supports_vision":"true","providers":{"openai":{"base_url":"http://operator.internal"}}}`)
	set(t, s, "acme", `{"token_budget":3,"providers":{"mine":{"key":"key-of-tenant"}}}`)
	e, err := s.Effective(as(t, "acme"))
	want := Effective{
		Model: "openai/env", ModelFrom: FromEnvironment, Vision: VisionYes, MaxIterations: 50, TokenBudget: 3, Approval: map[string]Decision{},
		Providers: map[string]Endpoint{
			"openai": {"openai", "http://operator.internal", Operator, "key-of-environment", FromEnvironment},
			"mine":   {"mine", "", "", "key-of-tenant", Tenant},
		},
	}
	if diff := cmp.Diff(want, e); err != nil || diff != "" {
		t.Errorf("Effective: %v\n%s", err, diff)
	}
	if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(text, "key-of") {
		t.Errorf("it prints keys: %s", text)
	}
	if text, err := json.Marshal(e); err != nil || strings.Contains(string(text), "key-of") {
		t.Errorf("it marshals keys: %s, %v", text, err)
	}
	// The tenant is not shown what is the operator's, who is shown all.
	v, err := s.Get(as(t, "acme"))
	if p := v.Effective.Providers["openai"]; err != nil || p.BaseURL != "" || p.BaseURLFrom != Operator || string(p.Key) != "••••••••" || p.KeyFrom != FromEnvironment {
		t.Errorf("the tenant sees %+v with %q, %v", p, string(p.Key), err)
	}
	if p := v.Effective.Providers["mine"]; string(p.Key) != Mask("key-of-tenant") {
		t.Errorf("the tenant sees of its key %q", string(p.Key))
	}
	v, err = s.Get(as(t, ""))
	if p := v.Effective.Providers["openai"]; err != nil || p.BaseURL != "http://operator.internal" || string(p.Key) != Mask("key-of-environment") {
		t.Errorf("the operator sees %+v with %q, %v", p, string(p.Key), err)
	}
}

func TestMask(t *testing.T) {
	for key, want := range map[string]string{
		"": "", "x": "•", "12345678": "••••••••", "123456789": "123••6789", "sk-abcdefghijklmnop": "sk-••••••••••••mnop", "üüüüüüüü": "••••••••",
	} {
		if got := Mask(key); got != want {
			t.Errorf("Mask(%q) = %q, want %q", key, got, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	for name, tt := range map[string]struct {
		environ map[string]string
		want    Document
	}{
		"nothing": {nil, Document{}},
		"keys": {
			map[string]string{"OPENAI_API_KEY": " k1\n", "ANTHROPIC_API_KEY": "k2", "ANTHROPIC_BASE_URL": "http://a/", "GEMINI_API_KEY": "k3", "OLLAMA_HOST": "http://o:1/v1"},
			Document{Providers: map[string]Provider{"openai": {Key: "k1"}, "anthropic": {"http://a/", "k2"}, "gemini": {Key: "k3"}, "ollama": {BaseURL: "http://o:1/v1"}}},
		},
		"sandbox-agent": {
			map[string]string{"CHAT_MODEL": "gpt-4o", "CHAT_MODEL_API_KEY": "k1", "OPENAI_API_KEY": "k2", "OPENAI_BASE_URL": "http://a", "CHAT_MODEL_SUPPORTS_VISION": "TRUE"},
			Document{Model: "openai/gpt-4o", Vision: VisionYes, Providers: map[string]Provider{"openai": {"http://a", "k1"}}},
		},
		"google_genai": {
			map[string]string{"CHAT_MODEL_PROVIDER": "google_genai", "CHAT_MODEL": "gemini-2", "CHAT_MODEL_API_KEY": "k1", "CHAT_MODEL_SUPPORTS_VISION": ""},
			Document{Model: "gemini/gemini-2", Providers: map[string]Provider{"gemini": {Key: "k1"}}},
		},
	} {
		got, err := Environment(func(name string) string { return tt.environ[name] })
		if len(got.Providers) == 0 {
			got.Providers = nil
		}
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	for name, value := range map[string]string{
		"OPENAI_BASE_URL": "hush", "CHAT_MODEL": "a hush", "CHAT_MODEL_PROVIDER": "A hush", "CHAT_MODEL_BASE_URL": "http://u:hush@h", "CHAT_MODEL_SUPPORTS_VISION": "hush",
	} {
		_, err := Environment(func(n string) string {
			if n == name {
				return value
			}
			return ""
		})
		wantKind(t, name, err, errs.Invalid)
		if err != nil && (!strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// TestSettingsOfAnotherKey: what cannot be opened is an error and not empty, for the
// agent too, and can be cleared.
func TestSettingsOfAnotherKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cubby.db")
	first, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	st := opened(t, path, first)
	set(t, New(Config{Store: st}), "", `{"model":"openai/a"}`)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Store: opened(t, path, nil)})
	for _, tenant := range []string{"", "acme"} { // which stands on the operator's
		_, err := s.Get(as(t, tenant))
		wantKind(t, "Get of "+tenant, err, errs.Internal)
		_, err = s.Effective(as(t, tenant))
		if wantKind(t, "Effective of "+tenant, err, errs.Internal); errs.Public(err).Hint == "" {
			t.Error("nothing says what to do")
		}
	}
	_, err = s.Set(as(t, ""), patch(t, `{"model":"openai/b"}`))
	wantKind(t, "Set", err, errs.Internal)
	wantKind(t, "Clear", s.Clear(as(t, "")), nil)
	set(t, s, "", `{"model":"openai/b"}`)
}

func TestAsking(t *testing.T) {
	var log strings.Builder
	asked := make(chan string, 10)
	s := fresh(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Ask: Asking{
		Models: func(_ context.Context, e Endpoint) ([]Model, error) {
			if e.Provider == "bad" {
				return nil, errs.E(errs.Unavailable, "401: the key %s is wrong", string(e.Key)).Hint("%s", string(e.Key)).Because(errors.New(string(e.Key)))
			}
			return []Model{{ID: "b/1"}, {ID: "a"}}, nil
		},
		Test: func(_ context.Context, e Endpoint, model string) error {
			asked <- e.Provider + " " + model + " " + string(e.Key) + " " + string(e.KeyFrom)
			if e.Provider == "bad" {
				return fmt.Errorf("ask: %w", errors.New("Authorization: Bearer "+string(e.Key)))
			}
			return nil
		},
	}})
	_, err := s.Test(as(t, "acme"), "")
	wantKind(t, "Test of none", err, errs.Invalid)
	_, err = s.Test(as(t, "acme"), "gpt")
	wantKind(t, "Test of half a name", err, errs.Invalid)
	set(t, s, "", `{"model":"openai/gpt-4o","providers":{"openai":{"key":"hush-operator"}}}`)
	set(t, s, "acme", `{"providers":{"bad":{"key":"hush-tenant"}}}`)

	for model, want := range map[string]string{"": "openai gpt-4o hush-operator operator", "ollama/x/y": "ollama x/y  "} {
		got, err := s.Test(as(t, "acme"), model)
		if call := <-asked; err != nil || call != want || model != "" && got != model {
			t.Errorf("Test of %q asked %q for %q, %v", model, call, got, err)
		}
	}
	_, err = s.Test(as(t, "acme"), "bad/x")
	<-asked
	if text := fmt.Sprintf("%v %+v", err, errs.Public(err)); err == nil || strings.Contains(text, "hush") {
		t.Errorf("Test = %s", text)
	}
	list, err := s.Models(as(t, "acme"), "")
	if err != nil || len(list) != 2 || list[0].Provider != "bad" || list[0].Err == nil || list[1].Err != nil || len(list[1].Models) != 2 || list[1].Models[0].ID != "a" {
		t.Fatalf("Models = %+v, %v", list, err)
	}
	if text := fmt.Sprintf("%v %+v", list[0].Err, errs.Public(list[0].Err)); strings.Contains(text, "hush-tenant") || !errors.Is(list[0].Err, errs.Unavailable) {
		t.Errorf("the error of a provider is %s", text)
	}
	if list, err := s.Models(as(t, "acme"), "openai"); err != nil || len(list) != 1 || list[0].Provider != "openai" {
		t.Errorf("Models of openai = %+v, %v", list, err)
	}
	_, err = s.Models(as(t, "beta"), "bad")
	wantKind(t, "Models of another tenant's provider", err, errs.NotFound)
	if !strings.Contains(log.String(), "settings were changed") || strings.Contains(log.String(), "hush") {
		t.Errorf("the log is %s", log.String())
	}
	none := New(Config{Store: s.cfg.Store})
	_, err = none.Models(as(t, ""), "")
	wantKind(t, "Models without a way to ask", err, errs.Unsupported)
	_, err = none.Test(as(t, ""), "openai/x")
	wantKind(t, "Test without a way to ask", err, errs.Unsupported)
}

// FuzzBaseURL: what is taken is a URL to whose path a request can be added.
func FuzzBaseURL(f *testing.F) {
	for _, seed := range []string{"http://a", "https://a.example:8/v1", "http://[::1]", "http://a@b", "http://a?b", "http://a\x00", "http:a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" || validateBaseURL(text) != nil {
			return
		}
		if strings.ContainsAny(text, "?# \t\r\n\x00") || !strings.HasPrefix(strings.ToLower(text), "http") {
			t.Errorf("%q is taken", text)
		}
	})
}

// TestTenantsMayHaveLess: limits of the operator hold for tenants, who may have less.
func TestTenantsMayHaveLess(t *testing.T) {
	for _, tt := range []struct{ environment, operator, tenant, want int }{
		{25, 0, 0, 25}, {25, 40, 0, 40}, {25, 40, 30, 30}, {25, 40, 100, 40}, {25, 0, 100, 25}, {0, 0, 100, 100}, {0, 40, 30, 30},
	} {
		got := layers{
			{Tenant, Document{MaxIterations: tt.tenant, TokenBudget: int64(tt.tenant)}},
			{Operator, Document{MaxIterations: tt.operator, TokenBudget: int64(tt.operator)}},
			{FromEnvironment, Document{MaxIterations: tt.environment, TokenBudget: int64(tt.environment)}},
		}.effective()
		if got.MaxIterations != tt.want || got.TokenBudget != int64(tt.want) {
			t.Errorf("%+v: %d turns and %d tokens", tt, got.MaxIterations, got.TokenBudget)
		}
	}
}
