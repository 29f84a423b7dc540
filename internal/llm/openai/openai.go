// Package openai is the dialect of OpenAI's chat completions, which most providers
// and local servers speak too: Ollama, vLLM, LM Studio, OpenRouter, Groq, Mistral,
// DeepSeek. It takes what they leave out and what they add, and sends them nothing
// that only one of them knows, unless its [Config] says which one it is.
package openai

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

// Config is how a provider differs from the others of the dialect.
type Config struct {
	wire.Config // BaseURL with /v1, or what stands for it
	// CompletionTokens: the bound of an answer is max_completion_tokens, which
	// OpenAI's newer models ask for, and not max_tokens.
	CompletionTokens bool
	// NoStreamOptions: it sends usage without being asked, and refuses the question.
	NoStreamOptions bool
	// OpenRouter: it takes effort as an object, and tells costs when asked.
	OpenRouter bool
}

// Provider is a provider that speaks the dialect.
type Provider struct {
	config Config
	client *wire.Client
}

var _ llm.Provider = (*Provider)(nil)

// New returns a provider. It connects to nothing.
func New(c Config) *Provider { return &Provider{c, wire.New(c.Config)} }

// Stream is as [llm.Model] says.
func (p *Provider) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		body, err := p.encode(r)
		if err != nil {
			yield(nil, p.client.Invalid(err))
			return
		}
		call := wire.Call{Path: "/chat/completions", Header: wire.Bearer(p.config.Key), Body: body}
		p.client.Stream(ctx, call, func() wire.Decoder { return &decoder{client: p.client} }, yield)
	}
}

// Models is as [llm.Provider] says.
func (p *Provider) Models(ctx context.Context) ([]llm.Info, error) {
	var list struct {
		Data []model `json:"data"`
	}
	if err := p.client.Fetch(ctx, wire.Call{Path: "/models", Header: wire.Bearer(p.config.Key)}, &list); err != nil {
		return nil, err
	}
	models := make([]llm.Info, 0, len(list.Data))
	for _, m := range list.Data {
		if !m.chats() {
			continue
		}
		models = append(models, llm.Info{ID: m.ID, Name: m.Name, Context: max(m.Context, m.Window, m.Max, m.Length)})
	}
	slices.SortFunc(models, func(a, b llm.Info) int { return strings.Compare(a.ID, b.ID) })
	return models, nil
}
