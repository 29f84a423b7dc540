package settings

import (
	"github.com/cubbyhq/cubby/internal/agent/settings"
)

// Settings are what the caller has set, and what holds for it.
type Settings struct {
	Tenant        string                      `json:"tenant_id" doc:"Empty: the operator's."`
	Model         *string                     `json:"model" doc:"As provider/model. null, here and below: not set." example:"openai/gpt-4o"`
	Providers     map[string]SettingsProvider `json:"providers" nullable:"false"`
	Vision        *string                     `json:"supports_vision" doc:"Whether the model sees images: true, false, or auto, which tries."`
	MaxIterations *int                        `json:"max_iterations" doc:"How often one run may ask its model."`
	TokenBudget   *int64                      `json:"token_budget" doc:"Tokens that one run may use."`
	Approval      map[string]string           `json:"approval" nullable:"false" doc:"allow, ask or deny by tool; * is all others."`
	Effective     SettingsInEffect            `json:"effective"`
}

// SettingsProvider is a provider without its key.
type SettingsProvider struct {
	BaseURL *string `json:"base_url"`
	KeyHint *string `json:"key_hint" doc:"The first 3 and the last 4 characters of the key, the others hidden; of a short one nothing."`
}

// SettingsInEffect is what holds: what the tenant has set, below that what the operator has, and then
// the daemon's environment.
type SettingsInEffect struct {
	Model         *string                     `json:"model"`
	ModelSource   *string                     `json:"model_source" doc:"tenant, operator or environment."`
	Providers     map[string]SettingsEndpoint `json:"providers" nullable:"false"`
	Vision        string                      `json:"supports_vision" enum:"auto,true,false"`
	MaxIterations *int                        `json:"max_iterations"`
	TokenBudget   *int64                      `json:"token_budget"`
	Approval      map[string]string           `json:"approval" nullable:"false"`
}

// SettingsEndpoint is a provider as it is asked. Tenants are not shown what others than they have set.
type SettingsEndpoint struct {
	BaseURL       *string `json:"base_url"`
	BaseURLSource *string `json:"base_url_source" doc:"tenant, operator or environment; null: it is the provider's own."`
	KeyHint       *string `json:"key_hint"`
	KeySource     *string `json:"key_source" doc:"tenant, operator or environment; null: there is none. Only a tenant's own key goes to a base URL that the tenant has set."`
}

// SettingsPatch is a change of settings.
type SettingsPatch struct {
	Model         *string                           `json:"model,omitempty" nullable:"true" doc:"As provider/model."`
	Providers     map[string]*SettingsProviderPatch `json:"providers,omitempty" nullable:"true" doc:"null removes one, or all."`
	Vision        *string                           `json:"supports_vision,omitempty" nullable:"true" doc:"auto, true or false."`
	MaxIterations *int                              `json:"max_iterations,omitempty" nullable:"true" minimum:"1" maximum:"1000"`
	TokenBudget   *int64                            `json:"token_budget,omitempty" nullable:"true" minimum:"1" maximum:"1000000000"`
	Approval      map[string]*string                `json:"approval,omitempty" nullable:"true" doc:"allow, ask or deny by tool; null removes one, or all."`
}

// SettingsProviderPatch is a change of a provider.
type SettingsProviderPatch struct {
	BaseURL *string `json:"base_url,omitempty" nullable:"true" doc:"http or https, without user, query and fragment."`
	Key     *string `json:"key,omitempty" nullable:"true" doc:"Empty: the one that is set stays. No answer has it."`
}

// ModelList is the models of providers.
type ModelList struct {
	Models []ModelInfo       `json:"models" nullable:"false"`
	Errors map[string]string `json:"errors" nullable:"false" doc:"Why a provider has none, by its name."`
}

// ModelInfo is a model.
type ModelInfo struct {
	ID       string `json:"id" doc:"As provider/model." example:"openai/gpt-4o"`
	Provider string `json:"provider"`
	Name     string `json:"name,omitempty" doc:"For people."`
	Context  int    `json:"context,omitempty" doc:"In tokens, when the provider says it."`
}

// ModelTest names a model that is to be tried.
type ModelTest struct {
	Model string `json:"model,omitempty" doc:"As provider/model. Default: the one that is set."`
}

// ModelTested says that a model has answered.
type ModelTested struct {
	OK    bool   `json:"ok"`
	Model string `json:"model"`
}

// orNull is nil for a zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func settingsOf(v settings.View) Settings {
	s := Settings{
		Tenant: v.Tenant, Model: orNull(v.Own.Model), Vision: orNull(string(v.Own.Vision)),
		MaxIterations: orNull(v.Own.MaxIterations), TokenBudget: orNull(v.Own.TokenBudget),
		Providers: map[string]SettingsProvider{}, Approval: approvalOf(v.Own.Approval),
		Effective: SettingsInEffect{
			Model: orNull(v.Effective.Model), ModelSource: orNull(string(v.Effective.ModelFrom)), Vision: string(v.Effective.Vision),
			MaxIterations: orNull(v.Effective.MaxIterations), TokenBudget: orNull(v.Effective.TokenBudget),
			Providers: map[string]SettingsEndpoint{}, Approval: approvalOf(v.Effective.Approval),
		},
	}
	for name, p := range v.Own.Providers {
		s.Providers[name] = SettingsProvider{orNull(p.BaseURL), orNull(p.Key)}
	}
	for name, p := range v.Effective.Providers {
		s.Effective.Providers[name] = SettingsEndpoint{
			BaseURL: orNull(p.BaseURL), BaseURLSource: orNull(string(p.BaseURLFrom)),
			KeyHint: orNull(string(p.Key)), KeySource: orNull(string(p.KeyFrom)),
		}
	}
	return s
}

func approvalOf(policy map[string]settings.Decision) map[string]string {
	out := make(map[string]string, len(policy))
	for tool, d := range policy {
		out[tool] = string(d)
	}
	return out
}
