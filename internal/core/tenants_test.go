package core_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/tenants"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

func (w *world) createIn(tenant, id string) sandbox.Sandbox {
	w.t.Helper()
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Tenant: tenant})
	if err != nil {
		w.t.Fatalf("Create(%s) of %s = %v", id, tenant, err)
	}
	if b.Tenant != tenant {
		w.t.Fatalf("Create(%s) made a sandbox of %q", id, b.Tenant)
	}
	return b
}

func (w *world) write(id, name, content string) {
	w.t.Helper()
	if _, err := w.Files().Write(w.ctx, id, name, strings.NewReader(content), sandbox.FileWrite{Parents: true}); err != nil {
		w.t.Fatalf("WriteFile(%s, %s) = %v", id, name, err)
	}
}

func (w *world) content(id, name string) string {
	w.t.Helper()
	r, _, err := w.Files().Read(w.ctx, id, name, 0, -1)
	if err != nil {
		return string(errs.KindOf(err))
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil {
		w.t.Error(err)
	}
	return string(all)
}

func TestTenantsShareFiles(t *testing.T) {
	w := newWorld(t)
	w.createIn("acme", "a")
	w.createIn("acme", "b")
	w.createIn("other", "c")
	w.create("d")
	for _, name := range []string{"/workspace/f", "/mnt/user-data/outputs/f"} {
		w.write("a", name, "shared")
		if got := w.content("b", name); got != "shared" {
			t.Errorf("%s in a sandbox of the same tenant is %q", name, got)
		}
		if got := w.content("c", name); got != string(errs.NotFound) {
			t.Errorf("%s in another tenant's sandbox is %q", name, got)
		}
	}
	w.write("a", "/home/sandbox/f", "own")
	if got := w.content("b", "/home/sandbox/f"); got != string(errs.NotFound) {
		t.Errorf("the home of one sandbox in another is %q", got)
	}

	// Stopped sandboxes have the same files.
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if got := w.content("a", "/workspace/f"); got != "shared" {
		t.Errorf("the file of a stopped sandbox is %q", got)
	}
	w.write("a", "/workspace/g", "by a stopped one")
	if got := w.content("b", "/workspace/g"); got != "by a stopped one" {
		t.Errorf("what was written in a stopped sandbox is %q", got)
	}
	if got := w.content("a", "/mnt/user-data/outputs/f") + w.content("a", "/home/sandbox/f"); got != "sharedown" {
		t.Errorf("the other files of a stopped sandbox are %q", got)
	}

	// They outlive the sandboxes.
	for _, id := range []string{"a", "b"} {
		if err := w.Sandboxes().Destroy(w.ctx, id, false); err != nil {
			t.Fatal(err)
		}
	}
	w.restart()
	w.createIn("acme", "e")
	if got := w.content("e", "/workspace/f") + w.content("e", "/home/sandbox/f"); got != "shared"+string(errs.NotFound) {
		t.Errorf("a later sandbox has %q", got)
	}
}

// TestWhoSharesFiles: a tenant that is named shares its files, the one of a token
// alone does not, and whoever says so has it the other way.
func TestWhoSharesFiles(t *testing.T) {
	w := newWorld(t)
	w.createIn("acme", "sharing")
	w.write("sharing", "/workspace/f", "shared")
	token := as(w.ctx, "alice", "acme")
	yes, no := true, false
	for _, tt := range []struct {
		name   string
		r      lifecycle.CreateRequest
		shares bool
	}{
		{"token", lifecycle.CreateRequest{}, false},
		{"token-and-name", lifecycle.CreateRequest{Tenant: "acme"}, true},
		{"token-and-yes", lifecycle.CreateRequest{SharedFiles: &yes}, true},
		{"name-and-no", lifecycle.CreateRequest{Tenant: "acme", SharedFiles: &no}, false},
		// What the spec says is not asked.
		{"spec", lifecycle.CreateRequest{Spec: sandbox.Spec{SharedFiles: true}}, false},
	} {
		tt.r.ID = tt.name
		b, err := w.Sandboxes().Create(token, tt.r)
		if err != nil || b.Tenant != "acme" || b.Spec.SharedFiles != tt.shares {
			t.Errorf("%s: Create = a sandbox of %q that shares %t, %v; want %t", tt.name, b.Tenant, b.Spec.SharedFiles, err, tt.shares)
			continue
		}
		want := map[bool]string{true: "shared", false: string(errs.NotFound)}[tt.shares]
		if got := w.content(tt.name, "/workspace/f"); got != want {
			t.Errorf("%s: the file of the tenant is %q, want %q", tt.name, got, want)
		}
	}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{SharedFiles: &yes}); !errors.Is(err, errs.Invalid) {
		t.Errorf("Create with the files of no tenant = %v, want invalid", err)
	}

	// What is its own stays so: stopped, started by another daemon, destroyed.
	w.write("token", "/workspace/g", "own")
	if _, err := w.Sandboxes().Stop(w.ctx, "token", 0); err != nil {
		t.Fatal(err)
	}
	if got := w.content("token", "/workspace/g"); got != "own" {
		t.Errorf("the file of the stopped sandbox is %q", got)
	}
	w.restart()
	if _, err := w.Sandboxes().Start(w.ctx, "token"); err != nil {
		t.Fatal(err)
	}
	if got := w.content("token", "/workspace/g") + w.content("sharing", "/workspace/g"); got != "own"+string(errs.NotFound) {
		t.Errorf("the file is %q in it and in another sandbox of its tenant", got)
	}
}

// TestATokensTenantAloneHasNoDisk: no disk is made that nobody uses.
func TestATokensTenantAloneHasNoDisk(t *testing.T) {
	w := newWorld(t)
	token := as(w.ctx, "alice", "acme")
	if _, err := w.Sandboxes().Create(token, lifecycle.CreateRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if disks, err := w.disks.List(); err != nil || len(disks) != 1 {
		t.Errorf("there are disks %v, %v, want that of the sandbox", disks, err)
	}
	if _, err := w.Tenants().Get(token, "acme"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Get of a tenant without shared files = %v, want not found", err)
	}
}

func TestTenantsOfTokens(t *testing.T) {
	w := newWorld(t)
	acme, other := as(w.ctx, "alice", "acme"), as(w.ctx, "bob", "other")
	if b, err := w.Sandboxes().Create(acme, lifecycle.CreateRequest{ID: "a"}); err != nil || b.Tenant != "acme" {
		t.Fatalf("Create = %+v, %v", b, err)
	}
	if _, err := w.Sandboxes().Create(other, lifecycle.CreateRequest{ID: "b", Tenant: "acme"}); !errors.Is(err, errs.Forbidden) {
		t.Errorf("Create in another tenant = %v, want forbidden", err)
	}
	for _, tenant := range []string{"../acme", "/etc", "a..b", ".", "a/b", "a\x00", strings.Repeat("a", 65)} {
		if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "b", Tenant: tenant}); !errors.Is(err, errs.Invalid) {
			t.Errorf("Create in the tenant %q = %v, want invalid", tenant, err)
		}
		if _, err := w.Tenants().WriteUpload(w.ctx, tenant, "f", strings.NewReader("x")); !errors.Is(err, errs.Invalid) {
			t.Errorf("WriteUpload of the tenant %q = %v, want invalid", tenant, err)
		}
	}
	w.write("a", "/workspace/f", "x")
	for what, err := range map[string]error{
		"Sandbox":      second(w.Sandboxes().Get(other, "a")),
		"Stat":         second(w.Files().Stat(other, "a", "/workspace/f", true)),
		"Stop":         second(w.Sandboxes().Stop(other, "a", 0)),
		"Destroy":      w.Sandboxes().Destroy(other, "a", false),
		"Purge":        second(w.Sandboxes().Purge(other, "a")),
		"StartExec":    second(w.Execs().Start(other, "a", sandbox.ExecSpec{Shell: "true"})),
		"Tenant":       second(w.Tenants().Get(other, "acme")),
		"RemoveTenant": w.Tenants().Remove(other, "acme"),
		"WriteUpload":  second(w.Tenants().WriteUpload(other, "acme", "f", strings.NewReader("x"))),
		"RemoveUpload": w.Tenants().RemoveUpload(other, "acme", "f", false),
		"ListUploads":  second(w.Tenants().ListUploads(other, "acme", "", false, 10)),
	} {
		if !errors.Is(err, errs.NotFound) {
			t.Errorf("another tenant's %s = %v, want not found", what, err)
		}
	}
	if _, err := w.Sandboxes().List(other, lifecycle.Query{Tenant: "acme"}); !errors.Is(err, errs.Forbidden) {
		t.Errorf("List of another tenant = %v, want forbidden", err)
	}
	if page, err := w.Sandboxes().List(other, lifecycle.Query{}); err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("List of another tenant's token = %v, %v", page.Sandboxes, err)
	}
	if page, _, err := w.Tenants().List(other, "", 0); err != nil || len(page) != 0 {
		t.Errorf("Tenants of another tenant's token = %v, %v", page, err)
	}

	// A token of no tenant sees all.
	w.create("mine")
	if page, err := w.Sandboxes().List(w.ctx, lifecycle.Query{}); err != nil || len(page.Sandboxes) != 2 {
		t.Errorf("List = %v, %v, want both", page.Sandboxes, err)
	}
	if page, err := w.Sandboxes().List(w.ctx, lifecycle.Query{Tenant: "acme"}); err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != "a" {
		t.Errorf("List of a tenant = %v, %v", page.Sandboxes, err)
	}
	if page, err := w.Sandboxes().List(acme, lifecycle.Query{}); err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != "a" {
		t.Errorf("List of a tenant's token = %v, %v", page.Sandboxes, err)
	}
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Error(err)
	}
	if _, _, err := w.Events().List(w.ctx, "a", 0, 0); err != nil {
		t.Errorf("Events of a tenant's destroyed sandbox = %v", err)
	}
	if _, _, err := w.Events().List(other, "a", 0, 0); !errors.Is(err, errs.NotFound) {
		t.Errorf("another tenant's Events = %v, want not found", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestTenantUploads(t *testing.T) {
	w := newWorld(t)
	if f, err := w.Tenants().WriteUpload(w.ctx, "acme", "in/data.csv", strings.NewReader("1,2")); err != nil || f.Path != "/mnt/user-data/uploads/in/data.csv" {
		t.Fatalf("WriteUpload = %+v, %v", f, err)
	}
	w.createIn("acme", "a")
	if got := w.content("a", "/mnt/user-data/uploads/in/data.csv"); got != "1,2" {
		t.Errorf("the sandbox reads %q", got)
	}
	files, err := w.Tenants().ListUploads(w.ctx, "acme", "", true, 10)
	if err != nil || len(files) != 2 {
		t.Errorf("ListUploads = %v, %v", files, err)
	}
	if _, err := w.Tenants().ListUploads(w.ctx, "acme", "", true, 1); !errors.Is(err, errs.TooLarge) {
		t.Errorf("ListUploads over its bound = %v", err)
	}
	r, _, err := w.Tenants().ReadUpload(w.ctx, "acme", "/mnt/user-data/uploads/in/data.csv")
	if err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(r); string(all) != "1,2" || err != nil {
		t.Errorf("ReadUpload = %q, %v", all, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"../outputs/f", "/workspace/f", "..", "/mnt/user-data/uploads/../outputs/f", ".", ""} {
		if _, err := w.Tenants().WriteUpload(w.ctx, "acme", name, strings.NewReader("x")); !errors.Is(err, errs.Invalid) {
			t.Errorf("WriteUpload(%q) = %v, want invalid", name, err)
		}
	}
	if err := w.Tenants().RemoveUpload(w.ctx, "acme", "in", true); err != nil {
		t.Error(err)
	}
	if err := w.Tenants().RemoveUpload(w.ctx, "acme", "in", true); !errors.Is(err, errs.NotFound) {
		t.Errorf("RemoveUpload of what is gone = %v", err)
	}
	if err := w.Tenants().RemoveUpload(w.ctx, "acme", ".", true); !errors.Is(err, errs.Forbidden) {
		t.Errorf("RemoveUpload of all at once = %v", err)
	}
	if _, err := w.Tenants().ListUploads(w.ctx, "nobody", "", false, 10); !errors.Is(err, errs.NotFound) {
		t.Errorf("ListUploads of a tenant that is not known = %v", err)
	}
}

func TestRemoveTenant(t *testing.T) {
	w := newWorld(t)
	w.createIn("acme", "a")
	w.write("a", "/workspace/f", "x")
	if tenant, err := w.Tenants().Get(w.ctx, "acme"); err != nil || tenant.Sandboxes != 1 || tenant.Running != 1 || tenant.Disk.Bytes != tenants.DefaultDisk {
		t.Errorf("Tenant = %+v, %v", tenant, err)
	}
	if err := w.Tenants().Remove(w.ctx, "acme"); !errors.Is(err, errs.Conflict) {
		t.Errorf("RemoveTenant with a running sandbox = %v", err)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Tenants().Remove(w.ctx, "acme"); !errors.Is(err, errs.Conflict) {
		t.Errorf("RemoveTenant with a stopped sandbox = %v", err)
	}
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	if err := w.Tenants().Remove(w.ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	if err := w.Tenants().Remove(w.ctx, "acme"); !errors.Is(err, errs.NotFound) {
		t.Errorf("RemoveTenant again = %v", err)
	}
	w.nothingLeft()
	w.createIn("acme", "b")
	if got := w.content("b", "/workspace/f"); got != string(errs.NotFound) {
		t.Errorf("after it the tenant has %q", got)
	}
}

// TestTenantDiskThatIsGone: a loss is said, and not covered up with a new disk.
func TestTenantDiskThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.createIn("acme", "a")
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	tenant, err := w.store.Tenant(w.ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(w.dir, "disks", string(tenant.DiskUID))
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "b", Tenant: "acme"}); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Create without the tenant's disk = %v, want unavailable", err)
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	w.createIn("acme", "b")
}

// TestInterruptedTenant: a daemon that is killed while it makes a tenant's disk
// leaves nothing in the way.
func TestInterruptedTenant(t *testing.T) {
	w := newWorld(t)
	if _, err := w.store.MakeTenant(w.ctx, "acme"); err != nil { // as far as it came
		t.Fatal(err)
	}
	made, err := w.store.MakeTenant(w.ctx, "other")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.disks.Create(w.ctx, made.DiskUID, storage.Shared, 1<<30); err != nil { // and further
		t.Fatal(err)
	}
	w.restart()
	w.createIn("acme", "a")
	w.createIn("other", "b")
	disks, err := w.disks.List()
	if err != nil || len(disks) != 4 || !slices.Contains(disks, made.DiskUID) {
		t.Errorf("there are disks %v, %v, want four", disks, err)
	}
}

// TestFailedCreateLetsGoOfItsTenant: what was undone does not hold the disk.
func TestFailedCreateLetsGoOfItsTenant(t *testing.T) {
	w := newWorld(t)
	w.faults.SetFail("Start", errs.E(errs.Unavailable, "no"))
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Tenant: "acme"}); err == nil {
		t.Fatal("Create succeeds")
	}
	if err := w.Tenants().Remove(w.ctx, "acme"); err != nil {
		t.Errorf("RemoveTenant after a failed create = %v", err)
	}
	w.nothingLeft()
}
