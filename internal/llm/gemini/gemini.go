// Package gemini is the dialect of Google's Gemini API. The signatures that it gives
// with calls and thoughts go back to it. Schemas of tools are cut to what it takes;
// a schema that refers to itself is refused.
package gemini

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

const (
	dialect  = "gemini"
	maxPages = 10 // of a list of models, a thousand on each
)

// Provider is a provider that speaks the dialect.
type Provider struct {
	config wire.Config
	client *wire.Client
}

var _ llm.Provider = (*Provider)(nil)

// New returns a provider, whose base URL has the version of the API. It connects to
// nothing.
func New(c wire.Config) *Provider { return &Provider{c, wire.New(c)} }

func (p *Provider) header() http.Header {
	h := http.Header{}
	if p.config.Key.Set() {
		h.Set("X-Goog-Api-Key", p.config.Key.Reveal())
	}
	return h
}

// Stream is as [llm.Model] says.
func (p *Provider) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		body, err := encode(r)
		if err != nil {
			yield(nil, p.client.Invalid(err))
			return
		}
		call := wire.Call{Path: "/" + modelPath(r.Model) + ":streamGenerateContent?alt=sse", Header: p.header(), Body: body}
		p.client.Stream(ctx, call, func() wire.Decoder { return &decoder{client: p.client} }, yield)
	}
}

// modelPath is where a model is; a tuned one names its collection.
func modelPath(model string) string {
	collection, name, ok := strings.Cut(model, "/")
	if !ok || collection != "models" && collection != "tunedModels" {
		collection, name = "models", model
	}
	return collection + "/" + url.PathEscape(name)
}

// Models is as [llm.Provider] says; it leaves out models that generate no content.
func (p *Provider) Models(ctx context.Context) ([]llm.Info, error) {
	var models []llm.Info
	token := ""
	for range maxPages {
		var page struct {
			Models []struct {
				Name    string   `json:"name"`
				Display string   `json:"displayName"`
				Context int      `json:"inputTokenLimit"`
				Methods []string `json:"supportedGenerationMethods"`
			} `json:"models"`
			Next string `json:"nextPageToken"`
		}
		path := "/models?pageSize=1000"
		if token != "" {
			path += "&pageToken=" + url.QueryEscape(token)
		}
		if err := p.client.Fetch(ctx, wire.Call{Path: path, Header: p.header()}, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Models {
			if len(m.Methods) > 0 && !slices.Contains(m.Methods, "generateContent") {
				continue
			}
			models = append(models, llm.Info{ID: strings.TrimPrefix(m.Name, "models/"), Name: m.Display, Context: m.Context})
		}
		if page.Next == "" || page.Next == token {
			break
		}
		token = page.Next
	}
	return models, nil
}
