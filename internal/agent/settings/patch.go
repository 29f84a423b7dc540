package settings

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Field is a field of a patch: left out, null, or a value.
type Field[T any] struct {
	Given, Null bool
	Value       T
}

// Given is a field with a value.
func Given[T any](v T) Field[T] { return Field[T]{Given: true, Value: v} }

// UnmarshalJSON is not called for a field that is left out. It refuses what is below
// the field and unknown.
func (f *Field[T]) UnmarshalJSON(text []byte) error {
	*f = Field[T]{Given: true, Null: string(text) == "null"}
	if f.Null {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(&f.Value)
}

// or is the value that a field makes of one: null is the zero value.
func (f Field[T]) or(was T) T {
	if !f.Given {
		return was
	}
	return f.Value
}

// Patch is a change of settings, as a JSON merge patch: what it leaves out stays, and
// null removes. An empty key stays too, so that a form can be sent without it, unless the
// base URL becomes another: then the key is gone, and has to be given again.
type Patch struct {
	Model         Field[string]                    `json:"model"`
	Providers     Field[map[string]*ProviderPatch] `json:"providers"` // a nil one is removed
	Vision        Field[Vision]                    `json:"supports_vision"`
	MaxIterations Field[int]                       `json:"max_iterations"`
	TokenBudget   Field[int64]                     `json:"token_budget"`
	Approval      Field[map[string]*Decision]      `json:"approval"` // a nil one is removed
}

// ProviderPatch is a change of a provider.
type ProviderPatch struct {
	BaseURL Field[string] `json:"base_url"`
	Key     Field[string] `json:"key"`
}

func (p Patch) apply(d Document) (Document, error) {
	if n := p.MaxIterations; n.Given && !n.Null && n.Value < 1 {
		return d, errs.E(errs.Invalid, "max_iterations: not from 1 to %d", maxIterations).Hint("null removes it")
	}
	if n := p.TokenBudget; n.Given && !n.Null && n.Value < 1 {
		return d, errs.E(errs.Invalid, "token_budget: not from 1 to %d", maxTokens).Hint("null removes it")
	}
	d.Model = strings.TrimSpace(p.Model.or(d.Model))
	d.Vision = p.Vision.or(d.Vision)
	d.MaxIterations = p.MaxIterations.or(d.MaxIterations)
	d.TokenBudget = p.TokenBudget.or(d.TokenBudget)
	d.Providers = p.providers(d.Providers)
	switch {
	case p.Approval.Null:
		d.Approval = nil
	case p.Approval.Given:
		set := maps.Clone(d.Approval)
		if set == nil {
			set = map[string]Decision{}
		}
		for tool, decision := range p.Approval.Value {
			if decision == nil {
				delete(set, tool)
			} else {
				set[tool] = *decision
			}
		}
		d.Approval = set
	}
	return d, nil
}

func (p Patch) providers(was map[string]Provider) map[string]Provider {
	if p.Providers.Null || !p.Providers.Given {
		if p.Providers.Null {
			return nil
		}
		return was
	}
	set := maps.Clone(was)
	if set == nil {
		set = map[string]Provider{}
	}
	for name, change := range p.Providers.Value {
		if change == nil {
			delete(set, name)
			continue
		}
		provider := set[name]
		base := provider.BaseURL
		provider.BaseURL = strings.TrimRight(strings.TrimSpace(change.BaseURL.or(base)), "/")
		if provider.BaseURL != base {
			// A key goes where it was given for: who may set it is not who may read it.
			provider.Key = ""
		}
		switch key := strings.TrimSpace(change.Key.Value); {
		case change.Key.Null:
			provider.Key = ""
		case key != "":
			provider.Key = key
		}
		if provider == (Provider{}) {
			delete(set, name) // it says nothing
		} else {
			set[name] = provider
		}
	}
	return set
}

// replace is apply to nothing but the keys of the providers that the patch names and
// whose base URL it leaves as it is.
func (p Patch) replace(d Document) (Document, error) {
	kept := Document{Providers: map[string]Provider{}}
	for name, change := range p.Providers.Value {
		was := d.Providers[name]
		if was.Key != "" && change != nil && strings.TrimRight(strings.TrimSpace(change.BaseURL.Value), "/") == was.BaseURL {
			kept.Providers[name] = was
		}
	}
	return p.apply(kept)
}
