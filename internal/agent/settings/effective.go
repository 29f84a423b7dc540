package settings

import (
	"cmp"

	"github.com/cubbyhq/cubby/internal/config"
)

// Source is who set something; "" is nobody.
type Source string

const (
	Tenant          Source = "tenant"
	Operator        Source = "operator"
	FromEnvironment Source = "environment"
)

// Effective is what holds for a caller.
type Effective struct {
	Model         string // provider/model; "": none is set
	ModelFrom     Source
	Providers     map[string]Endpoint // those of which anything is set
	Vision        Vision
	MaxIterations int   // 0: none is set
	TokenBudget   int64 // 0: none is set
	Approval      map[string]Decision
}

// Endpoint is a provider with what is needed to ask it. Whoever connects to a base
// URL that a tenant set does so for somebody who is not to reach the daemon's network.
type Endpoint struct {
	Provider    string
	BaseURL     string // "": the provider's own
	BaseURLFrom Source
	Key         config.Secret // "": none
	KeyFrom     Source
}

// layers are documents, the first one on top.
type layers []struct {
	from Source
	Document
}

func (l layers) effective() Effective {
	e := Effective{Providers: map[string]Endpoint{}, Vision: VisionAuto, Approval: map[string]Decision{}}
	for i := len(l) - 1; i >= 0; i-- {
		layer := l[i]
		if layer.Model != "" {
			e.Model, e.ModelFrom = layer.Model, layer.from
		}
		if layer.Vision != "" {
			e.Vision = layer.Vision
		}
		// A tenant may have less than the operator gives, and not more.
		e.MaxIterations = tighter(e.MaxIterations, layer.MaxIterations, layer.from == Tenant)
		e.TokenBudget = tighter(e.TokenBudget, layer.TokenBudget, layer.from == Tenant)
		for tool := range layer.Approval {
			e.Approval[tool] = l.decide(tool)
			if l.below(Tenant).decide(tool) == Deny {
				e.Approval[tool] = Deny // a tenant takes it back from nobody
			}
		}
		for name := range layer.Providers {
			e.Providers[name] = l.endpoint(name)
		}
	}
	return e
}

// tighter is a limit with that of a layer above it; 0 is none. One that is bounded by
// what is below takes no more than that.
func tighter[T int | int64](below, set T, bounded bool) T {
	if set == 0 || bounded && below != 0 {
		return min(cmp.Or(set, below), cmp.Or(below, set))
	}
	return set
}

// endpoint is a provider: its base URL is of the first layer that has one, and so is
// its key, but that a key does not go where its owner did not send it.
func (l layers) endpoint(name string) Endpoint {
	p := Endpoint{Provider: name}
	for _, layer := range l {
		if set := layer.Providers[name].BaseURL; set != "" {
			p.BaseURL, p.BaseURLFrom = set, layer.from
			break
		}
	}
	for _, layer := range l {
		if p.BaseURLFrom == Tenant && layer.from != Tenant {
			break
		}
		if key := layer.Providers[name].Key; key != "" {
			p.Key, p.KeyFrom = config.Secret(key), layer.from
			break
		}
	}
	return p
}

// below are the layers that are not of a source.
func (l layers) below(from Source) layers {
	var rest layers
	for _, layer := range l {
		if layer.from != from {
			rest = append(rest, layer)
		}
	}
	return rest
}

// decide is what the first layer that says anything of a tool says; "" is nothing.
func (l layers) decide(tool string) Decision {
	for _, layer := range l {
		if d := cmp.Or(layer.Approval[tool], layer.Approval[AllOthers]); d != "" {
			return d
		}
	}
	return ""
}
