package settings

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Document is what one tenant, the operator or the environment sets. A zero field is
// one that is not set. Its JSON has the keys: it is what is sealed.
type Document struct {
	Model         string              `json:"model,omitempty"` // provider/model
	Providers     map[string]Provider `json:"providers,omitempty"`
	Vision        Vision              `json:"supports_vision,omitempty"`
	MaxIterations int                 `json:"max_iterations,omitempty"` // how often a run may ask its model
	TokenBudget   int64               `json:"token_budget,omitempty"`   // of a run
	Approval      map[string]Decision `json:"approval,omitempty"`       // by tool; see [AllOthers]
}

// Provider is a way to models.
type Provider struct {
	BaseURL string `json:"base_url,omitempty"`
	Key     string `json:"key,omitempty"`
}

// Vision says whether the model sees images.
type Vision string

const (
	VisionAuto Vision = "auto" // it is tried
	VisionYes  Vision = "true"
	VisionNo   Vision = "false"
)

// Decision is whether a tool may be used.
type Decision string

const (
	Allow Decision = "allow"
	Ask   Decision = "ask" // a person decides
	Deny  Decision = "deny"
)

// AllOthers stands for the tools that an approval policy does not name.
const AllOthers = "*"

// The bounds of a document.
const (
	MaxProviders  = 32
	maxTools      = 256
	maxModel      = 200
	maxBaseURL    = 2048
	maxKey        = 4096
	maxIterations = 1000
	maxTokens     = 1_000_000_000
)

var (
	providerName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)
	toolName     = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
)

func (d Document) empty() bool {
	return d.Model == "" && len(d.Providers) == 0 && d.Vision == "" && d.MaxIterations == 0 && d.TokenBudget == 0 && len(d.Approval) == 0
}

// validate is Invalid when a value is not possible. It shows no key and no base URL,
// which may be one that was mistaken for the other.
func (d Document) validate() error {
	if d.Model != "" {
		if err := ValidateModel(d.Model); err != nil {
			return err
		}
	}
	if len(d.Providers) > MaxProviders {
		return errs.E(errs.Invalid, "providers: more than %d", MaxProviders)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Providers)) {
		if !providerName.MatchString(name) {
			return errs.E(errs.Invalid, "providers: %.60q is not a name", name).Hint("1 to 40 of a-z 0-9 _ -, as openai")
		}
		if err := d.Providers[name].validate(); err != nil {
			return errs.E(errs.Invalid, "providers.%s.%s", name, errs.Public(err).Message)
		}
	}
	if d.Vision != "" && d.Vision != VisionAuto && d.Vision != VisionYes && d.Vision != VisionNo {
		return errs.E(errs.Invalid, "supports_vision: not one of auto, true and false")
	}
	if d.MaxIterations < 0 || d.MaxIterations > maxIterations {
		return errs.E(errs.Invalid, "max_iterations: not from 1 to %d", maxIterations)
	}
	if d.TokenBudget < 0 || d.TokenBudget > maxTokens {
		return errs.E(errs.Invalid, "token_budget: not from 1 to %d", maxTokens)
	}
	if len(d.Approval) > maxTools {
		return errs.E(errs.Invalid, "approval: more than %d tools", maxTools)
	}
	for tool, decision := range d.Approval {
		if tool != AllOthers && !toolName.MatchString(tool) {
			return errs.E(errs.Invalid, "approval: %.60q is not the name of a tool", tool)
		}
		if decision != Allow && decision != Ask && decision != Deny {
			return errs.E(errs.Invalid, "approval.%s: not one of allow, ask and deny", tool)
		}
	}
	return nil
}

// SplitModel takes provider/model apart; the model may have slashes of its own.
func SplitModel(name string) (provider, model string) {
	provider, model, _ = strings.Cut(name, "/")
	return provider, model
}

// ValidateModel is Invalid for what is not provider/model.
func ValidateModel(name string) error {
	provider, model := SplitModel(name)
	if !providerName.MatchString(provider) || model == "" || len(model) > maxModel || strings.ContainsFunc(model, notGraphic) {
		return errs.E(errs.Invalid, "model: %.80q is not provider/model", name).Hint("as openai/gpt-4o")
	}
	return nil
}

// notGraphic is what belongs in no name and no header: spaces, control characters,
// and what is not ASCII.
func notGraphic(r rune) bool { return r <= ' ' || r > '~' }

func (p Provider) validate() error {
	if len(p.Key) > maxKey || strings.ContainsFunc(p.Key, notGraphic) {
		return errs.E(errs.Invalid, "key: not 1 to %d characters of ASCII without spaces", maxKey)
	}
	return validateBaseURL(p.BaseURL)
}

// validateBaseURL refuses what is not the beginning of an API's URLs. "" is none.
func validateBaseURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, len(text) > maxBaseURL, strings.ContainsFunc(text, notGraphic), u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return errs.E(errs.Invalid, "base_url: not an http or https URL of at most %d characters", maxBaseURL)
	case u.User != nil:
		return errs.E(errs.Invalid, "base_url: it has a user or a password")
	case strings.ContainsAny(text, "?#"):
		return errs.E(errs.Invalid, "base_url: it has a query or a fragment")
	}
	return nil
}
