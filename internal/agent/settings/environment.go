package settings

import (
	"cmp"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/llm/providers"
)

// ProviderOf is the name of a provider that a client of another system names.
func ProviderOf(name string) string {
	if known, err := providers.Name(name); err == nil {
		return known
	}
	return name
}

// Environment reads the variables of providers, as ANTHROPIC_API_KEY, and those of
// sandbox-agent: CHAT_MODEL, CHAT_MODEL_PROVIDER, CHAT_MODEL_API_KEY,
// CHAT_MODEL_BASE_URL and CHAT_MODEL_SUPPORTS_VISION, which win. Invalid when one
// cannot be what it says; the error names the variable and not its value.
func Environment(getenv func(string) string) (Document, error) {
	sources, err := providers.Environ(getenv)
	if err != nil {
		return Document{}, err
	}
	d := Document{Providers: map[string]Provider{}}
	for _, s := range sources {
		if s.BaseURL == "" && !s.Key.Set() {
			continue // it needs nothing, and may not be there
		}
		d.Providers[s.Provider] = Provider{BaseURL: s.BaseURL, Key: s.Key.Reveal()}
	}
	provider := ProviderOf(cmp.Or(strings.TrimSpace(getenv("CHAT_MODEL_PROVIDER")), "openai"))
	if !providerName.MatchString(provider) {
		return Document{}, errs.E(errs.Invalid, "CHAT_MODEL_PROVIDER: not the name of a provider")
	}
	p := d.Providers[provider]
	for _, v := range []struct {
		name string
		to   *string
	}{{"CHAT_MODEL_API_KEY", &p.Key}, {"CHAT_MODEL_BASE_URL", &p.BaseURL}} {
		value := strings.TrimSpace(getenv(v.name))
		if value == "" {
			continue
		}
		*v.to = strings.TrimRight(value, "/")
		if err := (Provider{BaseURL: p.BaseURL, Key: p.Key}).validate(); err != nil {
			return Document{}, errs.E(errs.Invalid, "%s: %s", v.name, errs.Public(err).Message)
		}
		d.Providers[provider] = p
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
