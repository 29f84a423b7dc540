package hostfiles

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func openUploads(t *testing.T, limits UploadLimits) *Uploads {
	t.Helper()
	u, err := OpenUploads(filepath.Join(t.TempDir(), "threads"), limits, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestUploadsDoNotWaitForThoseOfAnotherThread holds the lock under which the
// files of one thread are counted.
func TestUploadsDoNotWaitForThoseOfAnotherThread(t *testing.T) {
	u := openUploads(t, UploadLimits{Thread: 100, Tenant: 1000})
	use, err := u.ledger.open(u, key("acme"), key("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer use.close()
	use.thread.Lock()
	defer use.thread.Unlock()
	for _, other := range [][2]string{{"beta", "a"}, {"acme", "b"}} {
		if _, err := u.Put(t.Context(), other[0], other[1], "f", strings.NewReader("x")); err != nil {
			t.Errorf("Put of %v = %v", other, err)
		}
	}
}

func TestDirectoriesOfUploadsCount(t *testing.T) {
	u := openUploads(t, UploadLimits{Thread: 1 << 20})
	u.most = 100
	deep := strings.Repeat("d/", 30)
	for i := range 4 {
		_, err := u.Put(t.Context(), "acme", "a", fmt.Sprintf("%d/%sf", i, deep), strings.NewReader("x"))
		if i < 3 && err != nil {
			t.Fatalf("upload %d = %v", i, err)
		}
		if i == 3 && errs.KindOf(orNone(err)) != errs.TooLarge {
			t.Errorf("4 files in 31 directories each = %v, want too large", err)
		}
	}
	if _, err := u.Put(t.Context(), "acme", "b", strings.Repeat(deep, 2)+"f", strings.NewReader("x")); errs.KindOf(orNone(err)) != errs.Invalid {
		t.Errorf("60 directories deep = %v, want invalid", err)
	}
}

func orNone(err error) error {
	if err == nil {
		return errs.E(errs.Internal, "none")
	}
	return err
}

func TestUploadsOfATenantAreBounded(t *testing.T) {
	u := openUploads(t, UploadLimits{Thread: 100, Tenant: 150})
	put := func(tenant, thread string, bytes int) error {
		_, err := u.Put(t.Context(), tenant, thread, "f", strings.NewReader(strings.Repeat("x", bytes)))
		return err
	}
	if err := put("acme", "a", 100); err != nil {
		t.Fatal(err)
	}
	if err := put("acme", "b", 60); errs.KindOf(orNone(err)) != errs.OverQuota || errs.Public(err).Hint == "" {
		t.Errorf("more than the tenant may have = %v, want over quota", err)
	}
	if err := put("beta", "b", 100); err != nil {
		t.Errorf("another tenant's = %v", err)
	}
	if err := put("acme", "a", 40); err != nil {
		t.Errorf("in place of what is there = %v", err)
	}
	if err := put("acme", "b", 60); err != nil {
		t.Errorf("what there is room for = %v", err)
	}
	if err := u.Remove("acme", "a"); err != nil {
		t.Fatal(err)
	}
	if err := put("acme", "c", 90); err != nil {
		t.Errorf("after a thread was removed = %v", err)
	}
	// What lies there is counted by the next daemon too.
	again, err := OpenUploads(u.dir, u.limits, u.admit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Put(t.Context(), "acme", "d", "f", strings.NewReader("x")); errs.KindOf(orNone(err)) != errs.OverQuota {
		t.Errorf("one byte more after a restart = %v, want over quota", err)
	}
}
