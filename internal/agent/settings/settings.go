// Package settings keeps what tenants and the operator set for the agent: which
// model it asks, by which providers and with whose keys, how far a run may go, and
// which tools people are asked about. A caller that belongs to a tenant sets its
// tenant's; any other one is the operator, whose settings hold for tenants too where
// they set none. Below both is the environment of the daemon.
//
// Keys go in and never come out: not in answers, errors or logs. They are kept
// sealed, and given to the agent alone, by [Settings.Effective]. A key is not sent
// where somebody else chose: with a base URL that a tenant set goes a key that the
// same tenant set, or none.
//
// The package connects to nothing. How models are listed and tried is given to it.
package settings

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Config is what Settings need.
type Config struct {
	Store *store.Store
	// Environment is what holds where nothing is set; see [Environment].
	Environment Document
	// Ask is how providers are asked; its zero value asks none.
	Ask Asking
	Log *slog.Logger // nil: silent
}

// Settings are those of all tenants. They hold no state; methods may be called from
// any goroutine.
type Settings struct {
	cfg Config
}

// New returns the settings of a store.
func New(c Config) *Settings {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Settings{cfg: c}
}

// Get returns what the caller has set, and what holds for it, without keys. Internal
// when its settings cannot be opened.
func (s *Settings) Get(ctx context.Context) (View, error) {
	caller := auth.From(ctx).Tenant
	own, err := s.load(ctx, caller)
	if err != nil {
		return View{}, err
	}
	all, err := s.layersOver(ctx, caller, own)
	if err != nil {
		return View{}, err
	}
	return viewOf(caller, own, all.effective()), nil
}

// Set changes what the caller has set, and returns what [Settings.Get] does. It is
// durable. Invalid when a value is not possible, and then nothing is changed.
func (s *Settings) Set(ctx context.Context, p Patch) (View, error) {
	return s.change(ctx, "the agent's settings were changed", p.apply)
}

// Replace is [Settings.Set] that drops what the patch leaves out. A provider that it
// names keeps its key unless it has another one.
func (s *Settings) Replace(ctx context.Context, p Patch) (View, error) {
	return s.change(ctx, "the agent's settings were replaced", p.replace)
}

// Clear drops all that the caller has set, also when it cannot be opened.
func (s *Settings) Clear(ctx context.Context) error {
	err := s.cfg.Store.RemoveAgentSettings(ctx, auth.From(ctx).Tenant)
	if err == nil {
		s.note(ctx, "the agent's settings were cleared")
	}
	return err
}

func (s *Settings) change(ctx context.Context, what string, apply func(Document) (Document, error)) (View, error) {
	err := s.cfg.Store.ChangeAgentSettings(ctx, auth.From(ctx).Tenant, func(text []byte) ([]byte, error) {
		was, err := decode(text)
		if err != nil {
			return nil, err
		}
		set, err := apply(was)
		if err != nil {
			return nil, err
		}
		if err := set.validate(); err != nil {
			return nil, err
		}
		if set.empty() {
			return nil, nil
		}
		return json.Marshal(set)
	})
	if err != nil {
		return View{}, err
	}
	s.note(ctx, what)
	return s.Get(ctx)
}

// Effective returns what holds for the caller, with keys: it is for the agent, and
// not for doors.
func (s *Settings) Effective(ctx context.Context) (Effective, error) {
	caller := auth.From(ctx).Tenant
	own, err := s.load(ctx, caller)
	if err != nil {
		return Effective{}, err
	}
	all, err := s.layersOver(ctx, caller, own)
	if err != nil {
		return Effective{}, err
	}
	return all.effective(), nil
}

func (s *Settings) load(ctx context.Context, tenant string) (Document, error) {
	text, err := s.cfg.Store.AgentSettings(ctx, tenant)
	if err != nil {
		return Document{}, err
	}
	return decode(text)
}

// layersOver puts the layers of a caller on each other.
func (s *Settings) layersOver(ctx context.Context, caller string, own Document) (layers, error) {
	if caller == "" {
		return layers{{Operator, own}, {FromEnvironment, s.cfg.Environment}}, nil
	}
	operator, err := s.load(ctx, "")
	if err != nil {
		return nil, err
	}
	return layers{{Tenant, own}, {Operator, operator}, {FromEnvironment, s.cfg.Environment}}, nil
}

func decode(text []byte) (d Document, err error) {
	if text == nil {
		return d, nil
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, errs.E(errs.Internal, "the settings of the agent are damaged").Hint("clear them, and set them again").Because(err)
	}
	return d, nil
}

// note logs who changed something, and not what it became.
func (s *Settings) note(ctx context.Context, what string) {
	p := auth.From(ctx)
	s.cfg.Log.InfoContext(ctx, what, telemetry.KeyPrincipal, p.Name, "tenant", p.Tenant)
}
