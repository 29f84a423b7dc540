package lifecycle

import (
	"context"
	"sync"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// seat makes sure that b may be one more sandbox of its tenant and thread, and
// that no other takes the place until leave: the row has to be stored by then.
func (s *creator) seat(ctx context.Context, b sandbox.Sandbox) (leave func(), err error) {
	leaveTenant, err := s.tenantSeat(ctx, b)
	if err != nil {
		return nil, err
	}
	leaveThread, err := s.threads.seat(ctx, b)
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
		if err := decideQuota(s.cfg.Settings.Caps, h, kept, b); err != nil {
			return err
		}
		h.Sandboxes++
		h.DiskBytes += b.Spec.Limits.DiskBytes
	}
	return nil
}

// decideQuota is the rule of what a tenant may have.
func decideQuota(caps Caps, h store.Holdings, keptBytes int64, b sandbox.Sandbox) error {
	others := h.Sandboxes
	for _, uid := range h.KeptDisks {
		if uid != b.DiskUID {
			others++
		}
	}
	if caps.OfTenant > 0 && others >= caps.OfTenant {
		return errs.E(errs.OverQuota, "the tenant has all %d sandboxes that it may have, stopped ones and kept disks included", caps.OfTenant).
			Hint("destroy or purge one; the operator's bound is max-sandboxes-per-tenant").RetryAfter(capacityRetry)
	}
	if has := h.DiskBytes + keptBytes; caps.DiskOfTenant > 0 && has+b.Spec.Limits.DiskBytes > caps.DiskOfTenant {
		return errs.E(errs.OverQuota, "a disk of %d bytes is more than the tenant has left: its sandboxes have %d of %d", b.Spec.Limits.DiskBytes, has, caps.DiskOfTenant).
			Hint("destroy or purge a sandbox, or ask for a smaller disk; the operator's bound is max-disk-per-tenant").RetryAfter(capacityRetry)
	}
	return nil
}
