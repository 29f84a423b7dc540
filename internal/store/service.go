package store

import (
	"context"
	"slices"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// SetServices notes what became of the services of a running sandbox, and forgets
// what is known of others. WrongState, and nothing changes, when it does not run.
func (s *Store) SetServices(ctx context.Context, uid sandbox.UID, states map[string]sandbox.ServiceState, events ...sandbox.Event) error {
	return s.update(ctx, relaxed, func(t *tx) error {
		b, err := t.seal.scanSandbox(t.row(selectSandboxByUID, uid))
		switch {
		case err != nil:
			return err
		case b.State != sandbox.Running:
			return errs.E(errs.WrongState, "the sandbox is %s", b.State)
		}
		column, err := t.seal.servicesColumn(string(uid), services{b.Spec.Services, states})
		if err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE sandboxes SET services = $1 WHERE uid = $2`, column, uid); err != nil {
			return err
		}
		return t.appendEvents(events, s.now())
	})
}

// withoutEnv is services of a sandbox that has ended.
func withoutEnv(list []sandbox.Service) []sandbox.Service {
	list = slices.Clone(list)
	for i := range list {
		list[i].Env = nil
	}
	return list
}
