package settings

import (
	"cmp"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// The variables of providers, by their names.
var variables = []struct{ provider, key, baseURL string }{
	{"openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"},
	{"anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"},
	{"gemini", "GEMINI_API_KEY", "GEMINI_BASE_URL"},
	{"gemini", "GOOGLE_API_KEY", ""},
	{"ollama", "", "OLLAMA_BASE_URL"},
	{"openrouter", "OPENROUTER_API_KEY", ""},
	{"mistral", "MISTRAL_API_KEY", ""},
	{"groq", "GROQ_API_KEY", ""},
	{"deepseek", "DEEPSEEK_API_KEY", ""},
	{"xai", "XAI_API_KEY", ""},
}

// Names by which other programs know a provider.
var aliases = map[string]string{"google_genai": "gemini", "google": "gemini"}

// ProviderOf is the name of a provider that a client of another system names.
func ProviderOf(name string) string { return cmp.Or(aliases[name], name) }

// Environment reads the variables of providers, as ANTHROPIC_API_KEY, and those of
// sandbox-agent: CHAT_MODEL, CHAT_MODEL_PROVIDER, CHAT_MODEL_API_KEY,
// CHAT_MODEL_BASE_URL and CHAT_MODEL_SUPPORTS_VISION, which win. Invalid when one
// cannot be what it says; the error names the variable and not its value.
func Environment(getenv func(string) string) (Document, error) {
	d := Document{Providers: map[string]Provider{}}
	set := func(provider, key, baseURL string) error {
		p := d.Providers[provider]
		for _, v := range []struct {
			name string
			to   *string
		}{{key, &p.Key}, {baseURL, &p.BaseURL}} {
			value := strings.TrimSpace(getenv(v.name))
			if v.name == "" || value == "" {
				continue
			}
			*v.to = value
			if err := (Provider{Key: p.Key, BaseURL: strings.TrimRight(p.BaseURL, "/")}).validate(); err != nil {
				return errs.E(errs.Invalid, "%s: %s", v.name, errs.Public(err).Message)
			}
		}
		p.BaseURL = strings.TrimRight(p.BaseURL, "/")
		if p != (Provider{}) {
			d.Providers[provider] = p
		}
		return nil
	}
	// Of two variables of a provider the first one wins.
	for i := len(variables) - 1; i >= 0; i-- {
		v := variables[i]
		if err := set(v.provider, v.key, v.baseURL); err != nil {
			return Document{}, err
		}
	}
	provider := ProviderOf(cmp.Or(strings.TrimSpace(getenv("CHAT_MODEL_PROVIDER")), "openai"))
	if !providerName.MatchString(provider) {
		return Document{}, errs.E(errs.Invalid, "CHAT_MODEL_PROVIDER: not the name of a provider")
	}
	if err := set(provider, "CHAT_MODEL_API_KEY", "CHAT_MODEL_BASE_URL"); err != nil {
		return Document{}, err
	}
	if model := strings.TrimSpace(getenv("CHAT_MODEL")); model != "" {
		d.Model = provider + "/" + model
		if err := ValidateModel(d.Model); err != nil {
			return Document{}, errs.E(errs.Invalid, "CHAT_MODEL: not the name of a model")
		}
	}
	vision, ok := ParseVision(getenv("CHAT_MODEL_SUPPORTS_VISION"))
	if !ok {
		return Document{}, errs.E(errs.Invalid, "CHAT_MODEL_SUPPORTS_VISION: not true, false or empty")
	}
	if vision != VisionAuto {
		d.Vision = vision
	}
	return d, nil
}

// ParseVision reads a vision as clients of other systems write it; "" is auto.
func ParseVision(text string) (v Vision, ok bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "auto":
		return VisionAuto, true
	case "true", "1", "yes", "on":
		return VisionYes, true
	case "false", "0", "no", "off":
		return VisionNo, true
	}
	return "", false
}
