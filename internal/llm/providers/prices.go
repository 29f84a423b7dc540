package providers

import (
	"bytes"
	"context"
	_ "embed" // the price list
	"encoding/json"
	"iter"
	"maps"
	"regexp"
	"sync"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/llm"
)

// Price is what a model costs, in US dollars for a million tokens.
type Price struct {
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
	// Of what is read from a provider's cache, and written to it; nil: as Input.
	CacheRead  *float64 `json:"cache_read,omitempty"`
	CacheWrite *float64 `json:"cache_write,omitempty"`
	// Long is the price of requests with more input than its Over.
	Long *LongPrice `json:"long,omitempty"`
}

// LongPrice is the price of a long request.
type LongPrice struct {
	Over int `json:"over"`
	Price
}

// Prices are those of models, by provider/model. A model's dated versions and its
// latest one cost what it costs, unless they have a price of their own.
type Prices map[string]Price

// ParsePrices reads prices as the list has them.
func ParsePrices(text []byte) (Prices, error) {
	var p Prices
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return nil, errs.E(errs.Invalid, "prices are a JSON object of provider/model to input and output, in US dollars for a million tokens").Because(err)
	}
	for name, price := range p {
		if _, err := Parse(name); err != nil {
			return nil, err
		}
		if price.Input < 0 || price.Output < 0 {
			return nil, errs.E(errs.Invalid, "the price of %s is below zero", name)
		}
	}
	return p, nil
}

// prices.json has list prices of well-known models, as their providers published
// them: openai.com/api/pricing, anthropic.com/pricing and ai.google.dev/pricing. What
// changed after 2026-11 is the operator's to set.
//
//go:embed prices.json
var priceList []byte

var listed = sync.OnceValue(func() Prices {
	p, err := ParsePrices(priceList)
	if err != nil {
		panic(err) // a test reads it
	}
	return p
})

func (p Prices) with(more Prices) Prices {
	all := maps.Clone(p)
	maps.Copy(all, more)
	return all
}

var version = regexp.MustCompile(`(-\d{4}-\d{2}-\d{2}|-\d{8}|-latest)$`)

func (p Prices) of(provider, model string) (Price, bool) {
	if price, ok := p[provider+"/"+model]; ok {
		return price, true
	}
	price, ok := p[provider+"/"+version.ReplaceAllString(model, "")]
	return price, ok
}

// cost returns what a request took.
func (p Price) cost(u llm.Usage) float64 {
	if p.Long != nil && u.Input > p.Long.Over {
		p = p.Long.Price
	}
	of := func(price *float64) float64 {
		if price == nil {
			return p.Input
		}
		return *price
	}
	plain := float64(max(0, u.Input-u.CacheRead-u.CacheWrite))
	return (plain*p.Input + float64(u.CacheRead)*of(p.CacheRead) + float64(u.CacheWrite)*of(p.CacheWrite) + float64(u.Output)*p.Output) / 1e6
}

// priced fills in what a provider does not tell of costs.
type priced struct {
	provider llm.Provider
	name     string
	prices   Prices
}

func (p *priced) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	price, known := p.prices.of(p.name, r.Model)
	if !known {
		return p.provider.Stream(ctx, r)
	}
	return func(yield func(llm.Event, error) bool) {
		for e, err := range p.provider.Stream(ctx, r) {
			if u, ok := e.(llm.Usage); ok && u.Cost == nil {
				cost := price.cost(u)
				u.Cost = &cost
				e = u
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (p *priced) Models(ctx context.Context) ([]llm.Info, error) { return p.provider.Models(ctx) }
