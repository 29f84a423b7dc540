package sandboxagent

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// Settings are the settings of the agent in sandbox-agent's words. The key is never
// shown: ChatModelAPIKey is empty.
type Settings struct {
	ChatModel           string `json:"chatModel"`
	ChatModelProvider   string `json:"chatModelProvider"`
	ChatModelAPIKey     string `json:"chatModelApiKey" doc:"Empty in answers. Empty in a request: the one that is set stays."`
	ChatModelAPIKeyHint string `json:"chatModelApiKeyHint" doc:"What may be shown of the key."`
	ChatModelBaseURL    string `json:"chatModelBaseUrl"`
	SupportsVision      *bool  `json:"supportsVision" doc:"null: it is tried."`
}

// SettingsChange is any of what can be set.
type SettingsChange struct {
	ChatModel         string `json:"chatModel,omitempty"`
	ChatModelProvider string `json:"chatModelProvider,omitempty"`
	ChatModelAPIKey   string `json:"chatModelApiKey,omitempty"`
	ChatModelBaseURL  string `json:"chatModelBaseUrl,omitempty"`
	SupportsVision    *bool  `json:"supportsVision,omitempty" nullable:"true"`
}

// change is a SettingsChange as it is read: what is left out, or null, stays, but
// for the vision, which null leaves to a trial.
type change struct {
	ChatModel         settings.Field[string] `json:"chatModel"`
	ChatModelProvider settings.Field[string] `json:"chatModelProvider"`
	ChatModelAPIKey   settings.Field[string] `json:"chatModelApiKey"`
	ChatModelBaseURL  settings.Field[string] `json:"chatModelBaseUrl"`
	SupportsVision    settings.Field[any]    `json:"supportsVision"`
}

// settingsRoutes are those of the settings; of is what they are about.
func (d *dialect) settingsRoutes(words *httpapi.Dialect, of *settings.Settings) {
	d.AddRoutes(words,
		httpapi.Route{
			ID: "sandbox-agent-settings", Pattern: "GET /settings", Summary: "Read the settings of the agent, without its key",
			Answers: map[int]httpapi.Content{http.StatusOK: d.JSON(Settings{})},
			Serve: func(w http.ResponseWriter, r *http.Request) error {
				v, err := of.Get(r.Context())
				if err != nil {
					return err
				}
				front.WriteJSON(w, http.StatusOK, settingsOf(v))
				return nil
			},
		},
		httpapi.Route{
			ID: "sandbox-agent-change-settings", Pattern: "PUT /settings", Summary: "Change some of the settings of the agent",
			Body: d.JSON(SettingsChange{}), Answers: map[int]httpapi.Content{http.StatusOK: d.JSON(Settings{})},
			Serve: func(w http.ResponseWriter, r *http.Request) error { return d.changeSettings(w, r, of) },
		},
	)
	d.Documented(http.MethodPut, "/settings").RequestBody.Required = true
}

func (d *dialect) changeSettings(w http.ResponseWriter, r *http.Request, of *settings.Settings) error {
	text, err := front.ReadAtMost(r.Body, d.BodyLimit)
	if err != nil {
		return err
	}
	var c change
	if err := front.DecodeLoose(text, &c); err != nil {
		return err
	}
	before, err := of.Get(r.Context())
	if err != nil {
		return err
	}
	patch, err := c.patch(settingsOf(before))
	if err != nil {
		return err
	}
	v, err := of.Set(r.Context(), patch)
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, settingsOf(v))
	return nil
}

// settingsOf are settings as they hold: of the provider of the model alone.
func settingsOf(v settings.View) Settings {
	provider, model := settings.SplitModel(v.Effective.Model)
	if provider == "" {
		provider = soleProvider(v)
	}
	endpoint := v.Effective.Providers[provider]
	s := Settings{
		ChatModel: model, ChatModelProvider: dialectProvider(provider),
		ChatModelAPIKeyHint: string(endpoint.Key), ChatModelBaseURL: endpoint.BaseURL,
	}
	if vision := v.Effective.Vision; vision != settings.VisionAuto {
		yes := vision == settings.VisionYes
		s.SupportsVision = &yes
	}
	return s
}

// soleProvider is the provider of settings without a model: the one that is set, or
// when there are several the one that sandbox-agent begins with.
func soleProvider(v settings.View) string {
	if len(v.Own.Providers) == 1 {
		for name := range v.Own.Providers {
			return name
		}
	}
	return "openai"
}

// dialectProvider is what sandbox-agent calls a provider.
func dialectProvider(name string) string {
	if name == "gemini" {
		return "google_genai"
	}
	return name
}

// patch is what a change is for settings that were shown as was.
func (c change) patch(was Settings) (p settings.Patch, err error) {
	given := func(f settings.Field[string]) bool { return f.Given && !f.Null }
	provider := settings.ProviderOf(cmp.Or(strings.TrimSpace(c.ChatModelProvider.Value), was.ChatModelProvider))
	if given(c.ChatModel) || given(c.ChatModelProvider) {
		model := was.ChatModel
		if given(c.ChatModel) {
			model = strings.TrimSpace(c.ChatModel.Value)
		}
		p.Model = settings.Field[string]{Given: true, Null: model == ""}
		if model != "" {
			p.Model.Value = provider + "/" + model
		}
	}
	if given(c.ChatModelAPIKey) || given(c.ChatModelBaseURL) {
		of := new(settings.ProviderPatch)
		if given(c.ChatModelAPIKey) {
			of.Key = c.ChatModelAPIKey
		}
		if given(c.ChatModelBaseURL) {
			of.BaseURL = c.ChatModelBaseURL
		}
		p.Providers = settings.Given(map[string]*settings.ProviderPatch{provider: of})
	}
	if c.SupportsVision.Given {
		text := ""
		if !c.SupportsVision.Null {
			text = fmt.Sprint(c.SupportsVision.Value)
		}
		vision, ok := settings.ParseVision(text)
		if !ok {
			return p, errs.E(errs.Invalid, "supportsVision: not true, false or null")
		}
		p.Vision = settings.Given(vision)
	}
	return p, nil
}
