package agent

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/agent/settings"
)

// TestSourceOf keeps keys and base URLs together: what a request or a tenant names goes
// nowhere with another one's key, and is trusted with nothing.
func TestSourceOf(t *testing.T) {
	const their = "https://their.example/v1"
	operators := settings.Endpoint{Provider: "openai", BaseURL: "http://10.0.0.1/v1", BaseURLFrom: settings.Operator, Key: "operator's", KeyFrom: settings.Operator}
	for name, tt := range map[string]struct {
		choice   Choice
		set      settings.Endpoint
		operator bool
		url, key string
		trusted  bool
	}{
		"the operator's":                     {Choice{}, operators, false, operators.BaseURL, "operator's", true},
		"a request's base URL":               {Choice{BaseURL: their}, operators, false, their, "", false},
		"the same of the operator":           {Choice{BaseURL: their}, operators, true, their, "", false},
		"a request's base URL and key":       {Choice{BaseURL: their, Key: "mine"}, operators, false, their, "mine", false},
		"a request's key":                    {Choice{Key: "mine"}, operators, false, operators.BaseURL, "mine", true},
		"a tenant's base URL":                {Choice{}, settings.Endpoint{Provider: "openai", BaseURL: their, BaseURLFrom: settings.Tenant}, false, their, "", false},
		"nothing set, for a tenant":          {Choice{}, settings.Endpoint{Provider: "openai"}, false, "", "", false},
		"nothing set, for the operator":      {Choice{}, settings.Endpoint{Provider: "openai"}, true, "", "", true},
		"the environment's, for everybody":   {Choice{}, settings.Endpoint{Provider: "openai", BaseURL: their, BaseURLFrom: settings.FromEnvironment}, false, their, "", true},
		"a key that a tenant set, elsewhere": {Choice{}, settings.Endpoint{Provider: "openai", Key: "mine", KeyFrom: settings.Tenant}, false, "", "mine", false},
	} {
		got := sourceOf(tt.choice, "openai", settings.Effective{Providers: map[string]settings.Endpoint{"openai": tt.set}}, tt.operator)
		if got.BaseURL != tt.url || got.Key.Reveal() != tt.key || got.Trusted != tt.trusted {
			t.Errorf("%s: %q with %q, trusted: %v", name, got.BaseURL, got.Key.Reveal(), got.Trusted)
		}
	}
}
