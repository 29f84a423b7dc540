package lifecycle

import (
	"context"
	"sync"

	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// seat makes sure that all may be further sandboxes of their tenant and thread, and
// that no other takes the places until leave: the rows have to be stored by then.
func (s *creator) seat(ctx context.Context, all ...sandbox.Sandbox) (leave func(), err error) {
	leaveTenant, err := s.tenantSeat(ctx, all...)
	if err != nil {
		return nil, err
	}
	leaveThread, err := s.threads.Seat(ctx, all[0])
	if err != nil {
		leaveTenant()
		return nil, err
	}
	return func() { leaveThread(); leaveTenant() }, nil
}

// tenantSeat is for what a tenant has whether it runs or not, and may get all of.
// Sandboxes of no tenant are the operator's and not bound.
func (s *creator) tenantSeat(ctx context.Context, all ...sandbox.Sandbox) (leave func(), err error) {
	caps := s.cfg.Settings.Caps
	tenant := all[0].Tenant
	if tenant == "" || caps.OfTenant <= 0 && caps.DiskOfTenant <= 0 {
		return func() {}, nil
	}
	unlock, err := s.quotas.Lock(ctx, tenant)
	if err != nil {
		return nil, err
	}
	unlock = sync.OnceFunc(unlock)
	if err := s.checkQuota(ctx, tenant, all); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func (s *creator) checkQuota(ctx context.Context, tenant string, all []sandbox.Sandbox) error {
	h, err := s.cfg.Store.Holdings(ctx, tenant)
	if err != nil {
		return err
	}
	var kept int64
	if s.cfg.Settings.Caps.DiskOfTenant > 0 {
		for _, uid := range h.KeptDisks {
			if uid == all[0].DiskUID {
				continue // it is the one that is taken over
			}
			use, err := s.cfg.Disks.Usage(ctx, uid)
			if err != nil {
				return err
			}
			kept += use.Bytes
		}
	}
	for _, b := range all {
		if err := admission.DecideQuota(s.cfg.Settings.Caps, h, kept, b); err != nil {
			return err
		}
		h.Sandboxes++
		h.DiskBytes += b.Spec.Limits.DiskBytes
	}
	return nil
}
