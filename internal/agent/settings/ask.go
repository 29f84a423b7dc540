package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Asking is how providers are asked. A nil function cannot be.
type Asking struct {
	// Models lists the models of a provider.
	Models func(context.Context, Endpoint) ([]Model, error)
	// Test has a model answer something short.
	Test func(ctx context.Context, e Endpoint, model string) error
}

// Model is one as its provider lists it.
type Model struct {
	ID      string // as requests name it, without the provider
	Name    string // for people; "": as its ID
	Context int    // in tokens; 0: unknown
}

// Listed are the models of a provider, or why there are none.
type Listed struct {
	Provider string
	Models   []Model
	Err      error
}

const (
	listLimit = 20 * time.Second
	testLimit = time.Minute
	// maxListed bounds the models of one provider.
	maxListed = 2000
)

// Models asks the providers that the caller has which models there are: one of them,
// or with "" all, each for itself. NotFound when the caller does not have the one.
func (s *Settings) Models(ctx context.Context, provider string) ([]Listed, error) {
	if s.cfg.Ask.Models == nil {
		return nil, cannotAsk()
	}
	e, err := s.Effective(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(e.Providers))
	if provider != "" {
		if _, ok := e.Providers[provider]; !ok {
			return nil, errs.E(errs.NotFound, "no provider %.60q is set", provider).Hint("set its key first")
		}
		names = []string{provider}
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	list := make([]Listed, len(names))
	var asked sync.WaitGroup
	for i, name := range names {
		asked.Go(func() {
			models, err := s.cfg.Ask.Models(ctx, e.Providers[name])
			slices.SortFunc(models, func(a, b Model) int { return cmp.Compare(a.ID, b.ID) })
			list[i] = Listed{name, models[:min(len(models), maxListed)], withoutKey(err, e.Providers[name])}
		})
	}
	asked.Wait()
	return list, nil
}

// Test asks a model, provider/model, or with "" the one that the caller has set, to
// answer, and returns which one it was. Invalid when none is set; else the error is
// that of asking.
func (s *Settings) Test(ctx context.Context, model string) (asked string, err error) {
	e, err := s.Effective(ctx)
	if err != nil {
		return "", err
	}
	if model = cmp.Or(strings.TrimSpace(model), e.Model); model == "" {
		return "", errs.E(errs.Invalid, "no model is named, and none is set").Hint("set one, as openai/gpt-4o")
	}
	if err := ValidateModel(model); err != nil {
		return "", err
	}
	if s.cfg.Ask.Test == nil {
		return "", cannotAsk()
	}
	provider, name := SplitModel(model)
	p, ok := e.Providers[provider]
	if !ok {
		p = Endpoint{Provider: provider} // which may need no key
	}
	ctx, cancel := context.WithTimeout(ctx, testLimit)
	defer cancel()
	return model, withoutKey(s.cfg.Ask.Test(ctx, p, name), p)
}

func cannotAsk() error {
	return errs.E(errs.Unsupported, "this daemon cannot ask providers")
}

// withoutKey is an error of a provider that does not repeat the key that it was
// asked with: some do in their messages, which go to clients and the log.
func withoutKey(err error, p Endpoint) error {
	key := string(p.Key)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return errs.E(errs.Unavailable, "the provider does not answer")
	case errors.Is(err, context.Canceled):
		return err
	case key == "":
		return err
	}
	info := errs.Public(err)
	if text := info.Message + info.Hint + fmt.Sprintf("%v", err) + fmt.Sprintf("%+v", err); !strings.Contains(text, key) {
		return err
	}
	hide := func(text string) string { return strings.ReplaceAll(text, key, Mask(key)) }
	clean := errs.E(info.Kind, "%s", hide(info.Message))
	if info.Hint != "" {
		clean = clean.Hint("%s", hide(info.Hint))
	}
	return clean
}
