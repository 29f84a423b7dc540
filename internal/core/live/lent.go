package live

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// lent are the hosts that a run may reach beside those of its policy.
type lent struct {
	mu    sync.Mutex
	holds map[string]int           // how many hold each; guarded by mu
	hosts atomic.Pointer[[]string] // their names; nil: none
}

// policy is what the sandbox may reach now.
func (o *outbound) policy() sandbox.Policy {
	p := o.run.spec.Load().Network
	if hosts := o.lent.hosts.Load(); hosts != nil {
		p.Lent = *hosts
	}
	return p
}

// Lend lets a sandbox that runs reach a host, as "host:port", until it is given back;
// what the sandbox or the operator denies stays denied. Giving back ends the
// connections that nothing else allows.
func (h *Egress) Lend(r *Run, target string) (giveBack func()) {
	r.out.changeLent(target, 1)
	return sync.OnceFunc(func() {
		r.out.changeLent(target, -1)
		h.s.proxy.Cut(r.UID, r.out.policy())
	})
}

func (o *outbound) changeLent(target string, by int) {
	l := &o.lent
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds == nil {
		l.holds = make(map[string]int)
	}
	if l.holds[target] += by; l.holds[target] <= 0 {
		delete(l.holds, target)
	}
	if len(l.holds) == 0 {
		l.hosts.Store(nil)
	} else {
		hosts := slices.Sorted(maps.Keys(l.holds))
		l.hosts.Store(&hosts)
	}
	o.run.s.proxy.PolicyChanged(o.run.UID)
}
