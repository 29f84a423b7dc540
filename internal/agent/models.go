package agent

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/providers"
)

// Catalogue is the models that settings and requests name. It implements [Models].
type Catalogue struct {
	settings *settings.Settings
	open     *providers.Set
	turns    int // where no settings say it
	tokens   int

	mu     sync.Mutex
	sights map[string]*loop.Sight // by tenant, URL and provider/model; guarded by mu
}

// NewCatalogue returns the models of settings. turns and tokens bound a run where no
// settings do.
func NewCatalogue(s *settings.Settings, open *providers.Set, turns, tokens int) *Catalogue {
	return &Catalogue{settings: s, open: open, turns: turns, tokens: tokens, sights: map[string]*loop.Sight{}}
}

// Choose implements [Models]. It is Unready when there is no model or no key, and
// Invalid when the request is wrong.
func (c *Catalogue) Choose(ctx context.Context, q Choice) (Chosen, error) {
	e, err := c.settings.Effective(ctx)
	if err != nil {
		return Chosen{}, err
	}
	ref, err := refOf(q, e.Model)
	if err != nil {
		return Chosen{}, err
	}
	provider, err := c.open.Open(sourceOf(q, ref.Provider, e, isOperator(ctx)))
	if err != nil {
		return Chosen{}, unready(err, ref.Provider)
	}
	out := Chosen{
		Model: provider, Provider: ref.Provider, Name: ref.Model, Sight: c.sight(auth.From(ctx).Tenant, q.BaseURL, ref, cmp.Or(q.Vision, string(e.Vision))),
		MaxTurns: cmp.Or(e.MaxIterations, c.turns), MaxTokens: least(int(e.TokenBudget), c.tokens, isOperator(ctx)),
		Policy: conversation.Policy{Tools: map[string]conversation.Rule{}},
	}
	for tool, decision := range e.Approval {
		if tool == settings.AllOthers {
			out.Policy.Others = conversation.Decision(decision)
			continue
		}
		out.Policy.Tools[tool] = conversation.Rule{Decision: conversation.Decision(decision)}
	}
	return out, nil
}

// least is a budget of settings beside the daemon's, which a tenant cannot exceed; 0 is
// none.
func least(set, daemons int, operator bool) int {
	if set == 0 || daemons == 0 || operator {
		return cmp.Or(set, daemons)
	}
	return min(set, daemons)
}

// refOf is the model that a request is for: its own, or that of settings.
func refOf(q Choice, set string) (providers.Ref, error) {
	name := q.Model
	switch {
	case name == "" && q.Provider == "":
		name = set
	case name == "":
		if ref, err := providers.Parse(set); err == nil {
			name = q.Provider + "/" + ref.Model
		}
	case q.Provider != "":
		name = q.Provider + "/" + strings.TrimPrefix(name, q.Provider+"/")
	case !strings.Contains(name, "/"):
		// A model alone is one of the provider that is set.
		if ref, err := providers.Parse(set); err == nil {
			name = ref.Provider + "/" + name
		}
	}
	if name == "" {
		return providers.Ref{}, errs.E(errs.Unready, "the agent has no model").
			Hint("set a key as ANTHROPIC_API_KEY and CUBBY_AGENT_MODEL=provider/model for the daemon, or use cubby settings")
	}
	return providers.Parse(name)
}

// sourceOf is where a provider is and with which key it is asked. A base URL of a
// request goes with its own key or none, and is a stranger's.
func sourceOf(q Choice, provider string, e settings.Effective, operator bool) providers.Source {
	if q.BaseURL != "" {
		return providers.Source{Provider: provider, BaseURL: q.BaseURL, Key: providers.NewKey(q.Key)}
	}
	s := source(endpointOf(provider, e), operator)
	if q.Key != "" {
		s.Key = providers.NewKey(q.Key)
	}
	return s
}

// endpointOf is what is set of a provider, by any name that it has.
func endpointOf(provider string, e settings.Effective) settings.Endpoint {
	if p, there := e.Providers[provider]; there {
		return p
	}
	if name, err := providers.Name(provider); err == nil {
		if p, there := e.Providers[name]; there {
			return p
		}
	}
	return settings.Endpoint{Provider: provider}
}

// source is a provider as it is set. The operator's word counts: only they, or what
// they have set, may lead to the daemon's own network, where Ollama usually is.
func source(p settings.Endpoint, operator bool) providers.Source {
	own := p.BaseURLFrom == settings.Operator || p.BaseURLFrom == settings.FromEnvironment || p.BaseURLFrom == "" && operator
	return providers.Source{Provider: p.Provider, BaseURL: p.BaseURL, Key: providers.NewKey(string(p.Key)), Trusted: own}
}

// isOperator reports whether the caller belongs to no tenant.
func isOperator(ctx context.Context) bool { return auth.From(ctx).Tenant == "" }

// unready is the error of a provider that cannot be asked as it is set.
func unready(err error, provider string) error {
	var fault *llm.Error
	if errors.As(err, &fault) {
		return errs.E(errs.Unready, "%s", fault.Error()).Hint("set its key with cubby settings set providers.%s.key, or in the daemon's environment", provider).Because(err)
	}
	return err
}

// maxSights bounds the models of which it is known whether they see.
const maxSights = 1000

// sight is what is known of a model's eyes. A tenant, or a URL of a request, may have
// another model by the same name: what it lacks is nobody else's.
func (c *Catalogue) sight(tenant, url string, ref providers.Ref, vision string) *loop.Sight {
	switch vision {
	case string(settings.VisionYes):
		return nil
	case string(settings.VisionNo):
		blind := new(loop.Sight)
		blind.Blind()
		return blind
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := strings.Join([]string{tenant, url, ref.String()}, "\x00")
	s := c.sights[name]
	if s == nil {
		if len(c.sights) >= maxSights {
			clear(c.sights)
		}
		s = new(loop.Sight)
		c.sights[name] = s
	}
	return s
}

// Asking is how settings ask providers for their models, and try one.
func Asking(open *providers.Set) settings.Asking {
	return settings.Asking{
		Models: func(ctx context.Context, e settings.Endpoint) ([]settings.Model, error) {
			provider, err := open.Open(source(e, isOperator(ctx)))
			if err != nil {
				return nil, refused(err)
			}
			found, err := provider.Models(ctx)
			list := make([]settings.Model, len(found))
			for i, m := range found {
				list[i] = settings.Model{ID: m.ID, Name: m.Name, Context: m.Context}
			}
			return list, refused(err)
		},
		Test: func(ctx context.Context, e settings.Endpoint, model string) error {
			provider, err := open.Open(source(e, isOperator(ctx)))
			if err != nil {
				return refused(err)
			}
			q := llm.Request{Model: model, MaxTokens: 64, Messages: []llm.Message{{Role: llm.User, Parts: []llm.Part{llm.Text{Text: "Answer with the word ready."}}}}}
			for _, err := range provider.Stream(ctx, q) {
				if err != nil {
					return refused(err)
				}
			}
			return nil
		},
	}
}

// refused is the error of a provider, for those who have set it.
func refused(err error) error {
	var fault *llm.Error
	if !errors.As(err, &fault) {
		return err
	}
	kind := errs.Unavailable
	switch fault.Fault {
	case llm.Denied, llm.NoModel, llm.Invalid, llm.TooLong, llm.Unsupported:
		kind = errs.Invalid
	case llm.Limited, llm.Quota, llm.Unavailable, llm.Broken:
	}
	return errs.E(kind, "%s", fault.Error()).Because(err)
}
