package program

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/environ"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/packages"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// PackagesConfig says how packages are installed.
type PackagesConfig struct {
	Indexes packages.Indexes
	// Timeout bounds an installation; 0 is [DefaultPackagesTimeout].
	Timeout time.Duration
}

// DefaultPackagesTimeout bounds an installation.
const DefaultPackagesTimeout = 10 * time.Minute

// packagesOutput bounds the streams of an installation's answer.
const packagesOutput = 1 << 20

// PackagesRequest asks for packages. Runtime "" is the sandbox's, or Python.
type PackagesRequest struct {
	Runtime      string
	Dependencies map[string]string // versions by name; "" is any
}

// Packages installs packages in sandboxes.
type Packages struct {
	Config   PackagesConfig
	Execs    *live.Execs
	Scope    *scope.Scope
	Gate     *gate.Gate
	Journals *journal.Journals
}

// Install starts an installation and waits for its end as
// [live.Execs.Run] does; the installation goes on without the caller. It is an
// exec of kind [packages.Kind] of the sandbox's user, and its Result is a
// [packages.Result]. A failure of the installer is not an error of this call.
// It is Invalid for a name or version that the runtime does not have, and in a
// sandbox without network.
func (p *Packages) Install(ctx context.Context, id string, r PackagesRequest, wait time.Duration) (live.Result, error) {
	b, err := p.Scope.Find(ctx, id)
	if err != nil {
		return live.Result{}, err
	}
	spec, err := p.Spec(b.Spec, r)
	if err != nil {
		return live.Result{}, err
	}
	return p.Execs.Run(ctx, id, spec, wait, live.OutputCaps{Stdout: packagesOutput, Stderr: packagesOutput})
}

// Spec is the exec that carries a request out.
func (p *Packages) Spec(b sandbox.Spec, r PackagesRequest) (sandbox.ExecSpec, error) {
	if r.Runtime == "" {
		r.Runtime = b.Runtime
	}
	c, err := packages.Make(packages.Request{Runtime: r.Runtime, Dependencies: r.Dependencies})
	if err != nil {
		return sandbox.ExecSpec{}, err
	}
	if b.Network.Mode == sandbox.NetworkNone {
		return sandbox.ExecSpec{}, errs.E(errs.Invalid, "dependencies: the sandbox has no network to get packages from").
			Hint(`use network mode "allowlist" or "open", or an image that has them`)
	}
	// The indexes that are set now, whatever was when the sandbox was made,
	// except where it has its own.
	env := p.env(b)
	for name := range b.Env {
		delete(env, name)
	}
	timeout := p.Config.Timeout
	if timeout == 0 {
		timeout = DefaultPackagesTimeout
	}
	spec := c.Spec()
	spec.Env, spec.Timeout = env, &timeout
	return spec, nil
}

// env is what an installation has beside the sandbox's environment.
// The proxy is always in it: its refusals come at once and say why, and an
// index on the host's loopback has no other way in. A sandbox that has
// proxies of its own keeps those.
func (p *Packages) env(b sandbox.Spec) map[string]string {
	env := map[string]string{}
	if !b.Network.NamesProxy() && !slices.ContainsFunc(slices.Collect(maps.Keys(b.Env)), environ.NamesProxy) {
		env = environ.ProxyVariables()
	}
	maps.Copy(env, p.Config.Indexes.InstallEnv())
	return env
}

// Provide installs the dependencies of a sandbox that is being made and whose
// agent answers, in its run. Progress, when not nil, hears what the installer
// prints.
func (p *Packages) Provide(ctx context.Context, r *live.Run, b sandbox.Sandbox, progress func(sandbox.Output)) error {
	spec, err := p.Spec(b.Spec, PackagesRequest{Runtime: b.Spec.Runtime, Dependencies: b.Spec.Dependencies})
	if err != nil {
		return err
	}
	e, err := r.Begin(ctx, b, spec)
	if err != nil {
		return err
	}
	if progress != nil {
		p.tell(ctx, r, e.Snapshot().Seq, progress)
	}
	select {
	case <-e.Done():
	case <-r.Dead():
		return deathWhileInstalling(r.Death())
	case <-p.Gate.Ended():
		return gate.ErrShuttingDown()
	case <-ctx.Done():
		return ctx.Err()
	}
	return installError(e.Snapshot())
}

// tell follows an exec's output until its end, the sandbox's or that of ctx.
func (p *Packages) tell(ctx context.Context, r *live.Run, seq int64, progress func(sandbox.Output)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.Dead():
		case <-p.Gate.Ended():
		case <-ctx.Done():
		}
		cancel()
	}()
	for entry, err := range p.Journals.Read(ctx, r.UID, seq, 0, true) {
		if err != nil || entry.Exit != nil {
			return // what is wrong with the exec its end says
		}
		progress(entry.Output)
	}
}

func deathWhileInstalling(d driver.Death) error {
	if d.Cause == driver.DeathOOM {
		return errs.E(errs.Unsupported, "the sandbox ran out of memory while its packages were installed").
			Hint("create it with more limits.memory_bytes")
	}
	return errs.E(errs.Unavailable, "the sandbox died while its packages were installed")
}

// installError is why an installation that has ended installed nothing; nil
// when it did.
func installError(x sandbox.Exec) error {
	var r packages.Result
	if err := json.Unmarshal(x.Result, &r); err != nil {
		return errs.E(errs.Internal, "an installation ended without a result").Because(err)
	}
	f := r.Error
	if f == nil {
		return nil
	}
	kind := errs.Unsupported
	switch f.Code {
	case packages.Unreachable:
		kind = errs.Unavailable
	case packages.Timeout:
		kind = errs.Timeout
	case packages.Canceled:
		kind = errs.Conflict
	}
	hint := f.Hint
	if f.Log != "" {
		if hint != "" {
			hint += "; "
		}
		hint += "the end of the log:\n" + f.Log
	}
	e := errs.E(kind, "dependencies: %s", f.Message)
	if hint == "" {
		return e
	}
	return e.Hint("%s", hint)
}

// PackagesOperation is what is known of the execs that install packages.
func PackagesOperation(j *journal.Journals) live.Operation {
	return live.Operation{
		Result: func(ctx context.Context, x sandbox.Exec) (json.RawMessage, error) { return packagesResult(ctx, j, x) },
	}
}

// packagesResult makes the result of an installation.
func packagesResult(ctx context.Context, j *journal.Journals, x sandbox.Exec) (json.RawMessage, error) {
	var stdout, all []byte
	keepTail := func(b, data []byte) []byte {
		b = append(b, data...)
		if len(b) > 2*packages.Tail {
			b = append(b[:0], b[len(b)-packages.Tail:]...)
		}
		return b
	}
	for entry, err := range j.Read(ctx, x.Box, x.Seq, 0, false) {
		if errors.Is(err, errs.NotFound) {
			break // it never printed anything
		}
		if err != nil {
			return nil, err
		}
		all = keepTail(all, entry.Output.Data)
		if entry.Output.Stream == sandbox.Stdout {
			stdout = keepTail(stdout, entry.Output.Data)
		}
	}
	return json.Marshal(packages.ResultOf(*x.Exit, stdout, all))
}
