package hostfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/cubbyhq/cubby/internal/errs"
)

// uploadLedger knows what the uploads of each tenant take: what is stored, and
// what is being received. Tenants do not wait for each other, nor threads of one
// tenant while their files are counted.
type uploadLedger struct {
	mu      sync.Mutex
	tenants map[string]*tenantUploads // by key; guarded by mu; of those that upload now or have been measured
}

type tenantUploads struct {
	users int // guarded by uploadLedger.mu

	mu       sync.Mutex
	measured bool                      // stored is what lies on the disk; guarded by mu
	stored   int64                     // guarded by mu
	incoming int64                     // guarded by mu
	threads  map[string]*threadUploads // by key; guarded by mu
}

type threadUploads struct {
	sync.Mutex // held while the files of the thread are counted

	users    int   // guarded by tenantUploads.mu, as what follows
	stored   int64 // as counted last
	incoming int64
}

// uploadUse is one upload while it lasts.
type uploadUse struct {
	uploads    *Uploads
	tenant     *tenantUploads
	thread     *threadUploads
	key, inKey string // of the tenant and of the thread in it
	received   int64
}

func (l *uploadLedger) open(u *Uploads, tenant, thread string) (*uploadUse, error) {
	l.mu.Lock()
	t := l.tenants[tenant]
	if t == nil {
		t = &tenantUploads{threads: make(map[string]*threadUploads)}
		if l.tenants == nil {
			l.tenants = make(map[string]*tenantUploads)
		}
		l.tenants[tenant] = t
	}
	t.users++
	l.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	use := &uploadUse{uploads: u, tenant: t, key: tenant, inKey: thread}
	if err := t.measure(u, tenant); err != nil {
		l.leave(tenant, t)
		return nil, err
	}
	use.thread = t.threads[thread]
	if use.thread == nil {
		use.thread = &threadUploads{}
		t.threads[thread] = use.thread
	}
	use.thread.users++
	return use, nil
}

// measure counts what a tenant has stored, once. The caller holds mu.
func (t *tenantUploads) measure(u *Uploads, tenant string) error {
	if t.measured || u.limits.Tenant <= 0 {
		return nil
	}
	root, err := os.OpenRoot(filepath.Join(u.dir, tenant))
	if errors.Is(err, fs.ErrNotExist) {
		t.measured = true
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	threads, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	t.stored = 0
	for _, thread := range t.threads {
		thread.stored = 0
	}
	for _, e := range threads {
		var bytes int64
		if err := fs.WalkDir(root.FS(), e.Name()+"/"+uploadsDir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				bytes += info.Size()
			}
			return err
		}); err != nil && !errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return err
		}
		thread := t.threads[e.Name()]
		if thread == nil {
			thread = &threadUploads{}
			t.threads[e.Name()] = thread
		}
		thread.stored = bytes
		t.stored += bytes
	}
	t.measured = true
	return nil
}

// receive books n bytes more that came.
func (use *uploadUse) receive(n int64) error {
	t := use.tenant
	t.mu.Lock()
	defer t.mu.Unlock()
	use.received += n
	t.incoming += n
	use.thread.incoming += n
	if use.thread.incoming > use.uploads.limits.Thread {
		return use.uploads.full() // together with what else comes for the thread
	}
	return use.checkTenant(0)
}

// keep books what the thread has when the received file has its name.
func (use *uploadUse) keep(total, size int64) error {
	t := use.tenant
	t.mu.Lock()
	defer t.mu.Unlock()
	more := total - use.thread.stored
	if err := use.checkTenant(more - size); err != nil {
		return err
	}
	t.stored += more
	use.thread.stored = total
	use.give()
	return nil
}

// checkTenant is for more bytes beside those that are booked. The caller holds
// the tenant's mu.
func (use *uploadUse) checkTenant(more int64) error {
	limit, t := use.uploads.limits.Tenant, use.tenant
	if limit <= 0 || t.stored+t.incoming+more <= limit {
		return nil
	}
	return errs.E(errs.OverQuota, "the uploaded files of a tenant's threads take at most %d bytes", limit).
		Hint("destroy a thread; the operator's bound is max-tenant-uploads")
}

// give ends the booking of what came. The caller holds the tenant's mu.
func (use *uploadUse) give() {
	use.tenant.incoming -= use.received
	use.thread.incoming -= use.received
	use.received = 0
}

func (use *uploadUse) close() {
	t := use.tenant
	t.mu.Lock()
	use.give()
	if use.thread.users--; use.thread.users == 0 && use.thread.stored == 0 {
		delete(t.threads, use.inKey)
	}
	t.mu.Unlock()
	use.uploads.ledger.leave(use.key, t)
}

func (l *uploadLedger) leave(tenant string, t *tenantUploads) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 && len(t.threads) == 0 && l.tenants[tenant] == t {
		delete(l.tenants, tenant)
	}
}

// forget has a tenant measured again: files of its threads were removed.
func (l *uploadLedger) forget(tenant string) {
	l.mu.Lock()
	t := l.tenants[tenant]
	if t != nil && t.users == 0 {
		delete(l.tenants, tenant)
		t = nil
	}
	l.mu.Unlock()
	if t != nil {
		t.mu.Lock()
		t.measured = false
		t.mu.Unlock()
	}
}
