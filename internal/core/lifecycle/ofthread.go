package lifecycle

import (
	"context"
	"errors"

	"github.com/cubbyhq/cubby/internal/core/threads"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// ofThread is what threads have done to their sandboxes. It implements [threads.Acts].
type ofThread struct{ *acts }

var _ threads.Acts = ofThread{}

func (s ofThread) SandboxesOf(ctx context.Context, tenant, thread string) ([]sandbox.Sandbox, error) {
	q := liveRows
	q.Tenant, q.Thread = &tenant, thread
	live, err := s.rows(ctx, q)
	for i := range live {
		live[i] = s.upToDate(live[i])
	}
	return live, err
}

func (s ofThread) Admits(b sandbox.Sandbox) error { return s.admission.Check(b) }

func (s ofThread) Engaged(tenant, thread string) bool {
	return s.engaged.has(threadKey{tenant, thread})
}

func (s ofThread) DestroyOnly(ctx context.Context, b sandbox.Sandbox) error {
	stop := s.cutInstallation(ctx, b)
	unlock, err := s.ids.Lock(ctx, b.ID.Key())
	stop()
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.destroyIf(ctx, b, requested(), func(sandbox.Sandbox) bool { return true })
	return err
}

func (s ofThread) DestroyUnused(ctx context.Context, b sandbox.Sandbox, why sandbox.Why, unused func(sandbox.Sandbox) bool) (bool, error) {
	unlock, free := s.ids.TryLock(b.ID.Key())
	if !free {
		return false, nil
	}
	defer unlock()
	return s.destroyIf(ctx, b, why, unused)
}

// destroyIf destroys a sandbox whose lock is held, unless it is destroyed already
// or may refuses it as it is now.
func (s ofThread) destroyIf(ctx context.Context, b sandbox.Sandbox, why sandbox.Why, may func(sandbox.Sandbox) bool) (gone bool, err error) {
	b, err = s.cfg.Store.SandboxByUID(ctx, b.UID)
	if errors.Is(err, errs.NotFound) || err == nil && !b.State.Live() {
		return true, nil
	}
	if err != nil || !may(b) {
		return false, err
	}
	_, err = s.destroy(ctx, b, destruction{why: why})
	return err == nil, err
}
