package providers

import (
	"context"
	"errors"
	"iter"
	"math"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/llm"
)

// spender answers with a usage.
type spender struct{ usage llm.Usage }

func (s spender) Stream(context.Context, llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		_ = yield(s.usage, nil) && yield(llm.Done{Stop: llm.StopEnd}, nil)
	}
}

func (spender) Models(context.Context) ([]llm.Info, error) { return nil, nil }

func TestCosts(t *testing.T) {
	told, zero := 0.25, 0.0
	own := Prices{"openai/gpt-4o": {Input: 1, Output: 1}, "mine/m": {Input: 0, Output: 0}}
	for name, tt := range map[string]struct {
		provider, model string
		usage           llm.Usage
		want            *float64
	}{
		"listed":            {"openai", "gpt-4.1", llm.Usage{Input: 1e6, Output: 1e6}, new(10.0)},
		"from the cache":    {"openai", "gpt-4.1", llm.Usage{Input: 1e6, CacheRead: 5e5}, new(1.25)},
		"to the cache":      {"anthropic", "claude-opus-4-5-20251101", llm.Usage{Input: 1e6, CacheRead: 4e5, CacheWrite: 4e5, Output: 1000}, new(1 + 0.2 + 2.5 + 0.025)},
		"a dated version":   {"openai", "gpt-4.1-2025-04-14", llm.Usage{Output: 1e6}, new(8.0)},
		"the latest":        {"anthropic", "claude-3-5-haiku-latest", llm.Usage{Output: 1e6}, new(4.0)},
		"another version":   {"openai", "gpt-4.1-turbo", llm.Usage{Output: 1e6}, nil},
		"unknown":           {"openai", "gpt-99", llm.Usage{Output: 1e6}, nil},
		"another provider":  {"mine", "gpt-4.1", llm.Usage{Output: 1e6}, nil},
		"a long request":    {"gemini", "gemini-2.5-pro", llm.Usage{Input: 300000, Output: 1e6}, new(0.75 + 15)},
		"a short request":   {"gemini", "gemini-2.5-pro", llm.Usage{Input: 200000, Output: 1e6}, new(0.25 + 10)},
		"the provider says": {"openai", "gpt-4.1", llm.Usage{Output: 1e6, Cost: &told}, &told},
		"the operator says": {"openai", "gpt-4o", llm.Usage{Input: 1e6, Output: 1e6}, new(2.0)},
		"for nothing":       {"mine", "m", llm.Usage{Input: 1e6}, &zero},
	} {
		p := &priced{provider: spender{tt.usage}, name: tt.provider, prices: listed().with(own)}
		var a llm.Answer
		for e, err := range p.Stream(t.Context(), llm.Request{Model: tt.model}) {
			if err != nil {
				t.Fatal(err)
			}
			a.Add(e)
		}
		got := a.Usage.Cost
		if (got == nil) != (tt.want == nil) || got != nil && math.Abs(*got-*tt.want) > 1e-9 || a.Stop != llm.StopEnd {
			t.Errorf("%s: %v, want %v", name, value(got), value(tt.want))
		}
	}
}

func value(f *float64) any {
	if f == nil {
		return nil
	}
	return *f
}

func TestPriceList(t *testing.T) {
	if len(listed()) == 0 {
		t.Error("the list is empty")
	}
	for name, p := range listed() {
		if p.Input <= 0 || p.Output <= p.Input || p.CacheRead == nil || *p.CacheRead >= p.Input || p.CacheWrite != nil && *p.CacheWrite < p.Input {
			t.Errorf("%s: %+v", name, p)
		}
	}
	for _, text := range []string{"", "[]", `{"gpt": {"input": 1}}`, `{"openai/x": {"input": -1}}`, `{"openai/x": {"inputs": 1}}`} {
		if _, err := ParsePrices([]byte(text)); !errors.Is(err, errs.Invalid) {
			t.Errorf("ParsePrices(%s): %v, want invalid", text, err)
		}
	}
}
