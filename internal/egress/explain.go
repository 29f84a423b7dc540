package egress

import (
	"context"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Explain tells what a request for host:port would get, and why. The name is
// looked up as for a request, and nothing is dialled: an address that is
// allowed may still not answer. A name that cannot be looked up is an error of
// kind Unavailable. It waits for a turn among the lookups of the guest.
func (p *Proxy) Explain(ctx context.Context, from Guest, policy sandbox.Policy, hostname string, port int) (Decision, error) {
	d := p.eval.Decide(policy, hostname, port)
	if !d.Allow {
		return d, nil
	}
	addrs, err := p.lookup(ctx, from, d)
	if err != nil {
		return d, err
	}
	// As in a dial one allowed address is enough.
	last := d
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		if last = p.eval.decideAddress(policy, d, a, p.ownClass(a)); last.Allow {
			return last, nil
		}
	}
	return last, nil
}

// Target reads "host" or "host:port"; a missing port is 443. It is
// errs.Invalid for anything else.
func Target(s string) (host string, port int, err error) { return targetOf(s, 443) }
