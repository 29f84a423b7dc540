// Package anthropic is the dialect of Anthropic's Messages API. What the model
// thought goes back to it with its signature. The system prompt, the tools and the
// messages so far are marked for the provider's cache.
package anthropic

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

const (
	dialect = "anthropic"
	version = "2023-06-01"
	// maxPages bounds a list of models, a thousand on each.
	maxPages = 10
)

// Provider is a provider that speaks the dialect.
type Provider struct {
	config wire.Config
	client *wire.Client
}

var _ llm.Provider = (*Provider)(nil)

// New returns a provider, whose base URL is without /v1. It connects to nothing.
func New(c wire.Config) *Provider { return &Provider{c, wire.New(c)} }

func (p *Provider) header() http.Header {
	h := http.Header{"Anthropic-Version": {version}}
	if p.config.Key.Set() {
		h.Set("X-Api-Key", p.config.Key.Reveal())
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
		p.client.Stream(ctx, wire.Call{Path: "/v1/messages", Header: p.header(), Body: body}, func() wire.Decoder { return &decoder{client: p.client} }, yield)
	}
}

// Models is as [llm.Provider] says.
func (p *Provider) Models(ctx context.Context) ([]llm.Info, error) {
	var models []llm.Info
	after := ""
	for range maxPages {
		var page struct {
			Data []struct {
				ID      string `json:"id"`
				Name    string `json:"display_name"`
				Context int    `json:"max_input_tokens"`
			} `json:"data"`
			More bool   `json:"has_more"`
			Last string `json:"last_id"`
		}
		path := "/v1/models?limit=1000"
		if after != "" {
			path += "&after_id=" + url.QueryEscape(after)
		}
		if err := p.client.Fetch(ctx, wire.Call{Path: path, Header: p.header()}, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Data {
			models = append(models, llm.Info{ID: m.ID, Name: m.Name, Context: m.Context})
		}
		if !page.More || page.Last == "" || page.Last == after {
			break
		}
		after = page.Last
	}
	return models, nil
}
