// Package preview decides who may reach the ports of a sandbox from outside,
// and brings them there. A port is open to everybody when its sandbox is public
// and declares it; else a visitor needs a link, or to be somebody who sees the
// sandbox. It knows no transport: how a visitor presents a token, and what is
// spoken over a connection, is a door's matter.
package preview

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// visits bounds the requests and connections that are open to the ports of
// sandboxes. One sandbox, and one tenant, leaves as much to the others as it has.
var visits = tenancy.Bound{All: 4096, Tenant: 1024}

// Config is what Previews need; all fields are required but URL.
type Config struct {
	Store *store.Store
	Live  *live.Sandboxes
	Scope *scope.Scope
	Gate  *gate.Gate
	Now   func() time.Time
	// URL is where a port of a sandbox is seen; nil, or "": nowhere.
	URL func(id string, port int) string
	// Watch hears that somebody uses a port of a sandbox, and when that is over.
	Watch func(box sandbox.UID) (left func())
}

// Previews are the ports of sandboxes, as they are seen from outside. Methods
// may be called from any goroutine.
type Previews struct {
	cfg    Config
	visits *tenancy.Places
}

// New returns the previews of what runs.
func New(cfg Config) *Previews {
	return &Previews{cfg: cfg, visits: tenancy.NewPlaces("requests of previews open", visits)}
}

// URL is where a port of a sandbox is seen, by whoever may; "" while there are no
// previews.
func (p *Previews) URL(id sandbox.ID, port int) string {
	if p.cfg.URL == nil {
		return ""
	}
	return p.cfg.URL(strings.ToLower(string(id)), port)
}

// Visitor is who wants to see a port.
type Visitor struct {
	// Tokens are those of links, as the visitor presents them. The first that
	// holds counts.
	Tokens []string
	// Principal is who has shown a token of the API; nil: nobody.
	Principal *auth.Principal
}

// Admission is a visitor's leave to use a port.
type Admission struct {
	Box  sandbox.Sandbox
	Port int
	// Token is the one of a link that gave it, and Expires its end; "": none did.
	Token   string
	Expires time.Time
	// Open: everybody may see the port.
	Open bool
}

// Admit lets a visitor use a port, or is errs.Unauthenticated: the same error
// whether there is no such sandbox, it is not the visitor's to see, or its port
// is not open. It wakes nothing, and the principal of the context does not count.
func (p *Previews) Admit(ctx context.Context, id string, port int, v Visitor) (Admission, error) {
	b, err := p.find(ctx, id)
	switch {
	case errors.Is(err, errs.NotFound), errors.Is(err, errs.Invalid):
		b = sandbox.Sandbox{} // which nobody sees; what is asked of one is asked of it too
	case err != nil:
		return Admission{}, err
	}
	a := Admission{Box: b, Port: port}
	if a.Token, a.Expires, err = p.holding(ctx, b, port, v.Tokens); err != nil {
		return Admission{}, err
	}
	if b.UID == "" || sandbox.ValidatePort(port) != nil {
		return Admission{}, errDenied()
	}
	a.Open = b.Spec.Visibility == sandbox.Public && slices.Contains(b.Spec.DeclaredPorts(), port)
	if a.Token != "" || a.Open || v.Principal != nil && v.Principal.Sees(b.Tenant) {
		return a, nil
	}
	return Admission{}, errDenied()
}

// find finds a sandbox of any tenant, and says nothing of what became of one that is
// gone: to look for that takes time, which tells visitors that there is none.
func (p *Previews) find(ctx context.Context, id string) (sandbox.Sandbox, error) {
	if err := p.cfg.Gate.Wait(ctx); err != nil {
		return sandbox.Sandbox{}, err
	}
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return p.cfg.Store.Sandbox(ctx, parsed)
}

func errDenied() error {
	return errs.E(errs.Unauthenticated, "this preview is not open to you, or there is none").
		Hint("open it with a link, or send a token in X-Cubby-Preview-Token")
}

// Visit is the use of a port by one request, until Done.
type Visit struct {
	run   *live.Run
	port  int
	using func() // ends the use of the sandbox
	leave func()
}

// Enter begins the visit of somebody who was admitted. A sandbox that rests runs
// first, if its auto_wake allows that, and all who come meanwhile wait for the same
// wake. It is WrongState when the sandbox does not run and nothing may wake it,
// and OverQuota when too many visits go on.
func (p *Previews) Enter(ctx context.Context, a Admission) (*Visit, error) {
	leave, err := p.visits.EnterFor(a.Box.Tenant, string(a.Box.UID))
	if err != nil {
		return nil, err
	}
	var r *live.Run
	var done func()
	ok := false
	if a.Box.State == sandbox.Running {
		r, done, ok = p.cfg.Live.UseRunning(ctx, a.Box.UID)
	}
	if !ok {
		if r, done, err = p.use(ctx, a); err != nil {
			leave()
			return nil, err
		}
	}
	left := p.cfg.Watch(a.Box.UID)
	return &Visit{run: r, port: a.Port, leave: leave, using: func() {
		left()
		done()
	}}, nil
}

// use uses a sandbox that may have to run first.
func (p *Previews) use(ctx context.Context, a Admission) (*live.Run, func(), error) {
	b, r, done, err := p.cfg.Live.Use(auth.WithPrincipal(ctx, auth.Principal{}), string(a.Box.ID))
	if err == nil && b.UID != a.Box.UID { // the id is another sandbox's by now
		done()
		err = errDenied()
	}
	return r, done, err
}

// Open begins the visit of a port by the caller, who sees the sandbox. It wakes and
// waits as [Previews.Enter] does, and has the same bounds.
func (p *Previews) Open(ctx context.Context, id string, port int) (*Visit, error) {
	if err := sandbox.ValidatePort(port); err != nil {
		return nil, err
	}
	b, err := p.cfg.Scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.Enter(ctx, Admission{Box: b, Port: port})
}

// Runs reports whether a sandbox runs now: then Enter has nothing to wait for.
func (p *Previews) Runs(a Admission) bool { return p.cfg.Live.Of(a.Box.UID) != nil }
