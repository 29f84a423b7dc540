package admission

import (
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// DecideQuota is the rule of what a tenant may have.
func DecideQuota(caps Caps, h store.Holdings, keptBytes int64, b sandbox.Sandbox) error {
	others := h.Sandboxes
	for _, uid := range h.KeptDisks {
		if uid != b.DiskUID {
			others++
		}
	}
	if caps.OfTenant > 0 && others >= caps.OfTenant {
		return errs.E(errs.OverQuota, "the tenant has all %d sandboxes that it may have, stopped ones and kept disks included", caps.OfTenant).
			Hint("destroy or purge one; the operator's bound is max-sandboxes-per-tenant").RetryAfter(CapacityRetry)
	}
	if has := h.DiskBytes + keptBytes; caps.DiskOfTenant > 0 && has+b.Spec.Limits.DiskBytes > caps.DiskOfTenant {
		return errs.E(errs.OverQuota, "a disk of %d bytes is more than the tenant has left: its sandboxes have %d of %d", b.Spec.Limits.DiskBytes, has, caps.DiskOfTenant).
			Hint("destroy or purge a sandbox, or ask for a smaller disk; the operator's bound is max-disk-per-tenant").RetryAfter(CapacityRetry)
	}
	return nil
}
