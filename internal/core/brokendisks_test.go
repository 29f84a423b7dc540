package core_test

import (
	"context"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// brokenDisks are disks of which single methods can be made to fail.
type brokenDisks struct {
	storage.Storage

	mu   sync.Mutex
	fail map[string]error // by method; guarded by mu
}

func (d *brokenDisks) set(method string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail[method] = err
}

func (d *brokenDisks) failure(method string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fail[method]
}

func (d *brokenDisks) Create(ctx context.Context, uid sandbox.UID, layout storage.Layout, bytes int64) error {
	if err := d.failure("Create"); err != nil {
		return err
	}
	return d.Storage.Create(ctx, uid, layout, bytes)
}

func (d *brokenDisks) Attach(ctx context.Context, use storage.Use) (storage.Mounts, error) {
	if err := d.failure("Attach"); err != nil {
		return storage.Mounts{}, err
	}
	return d.Storage.Attach(ctx, use)
}

func (d *brokenDisks) Detach(ctx context.Context, user, own sandbox.UID) error {
	if err := d.failure("Detach"); err != nil {
		return err
	}
	return d.Storage.Detach(ctx, user, own)
}

func (d *brokenDisks) Remove(ctx context.Context, uid sandbox.UID) (int64, error) {
	if err := d.failure("Remove"); err != nil {
		return 0, err
	}
	return d.Storage.Remove(ctx, uid)
}

func (d *brokenDisks) Clone(ctx context.Context, from storage.Source, to sandbox.UID) (time.Duration, error) {
	if err := d.failure("Clone"); err != nil {
		return 0, err
	}
	return d.Storage.Clone(ctx, from, to)
}

func (d *brokenDisks) Prepare(ctx context.Context, uid sandbox.UID, from storage.Source) (storage.Restoration, error) {
	if err := d.failure("Prepare"); err != nil {
		return nil, err
	}
	r, err := d.Storage.Prepare(ctx, uid, from)
	return brokenRestoration{r, d}, err
}

type brokenRestoration struct {
	storage.Restoration
	d *brokenDisks
}

func (r brokenRestoration) Restore(ctx context.Context) error {
	if err := r.d.failure("Restore"); err != nil {
		return err
	}
	return r.Restoration.Restore(ctx)
}
