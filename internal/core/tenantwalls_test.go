package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestAStrangerDoesNotWaitForTheLockOfAnotherTenantsSandbox holds the lock of a
// sandbox in the middle of a stop: every act of another tenant ends meanwhile,
// as for an id that nobody has.
func TestAStrangerDoesNotWaitForTheLockOfAnotherTenantsSandbox(t *testing.T) {
	w := stoppedWorld(t)
	stopping, goOn := make(chan struct{}), make(chan struct{})
	w.faults.Before = func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Stop" {
			close(stopping)
			<-goOn
		}
	}
	w.start()
	w.createIn("acme", "a")
	stopped := make(chan error, 1)
	go func() {
		_, err := w.Sandboxes().Stop(as(w.ctx, "alice", "acme"), "a", 0)
		stopped <- err
	}()
	<-stopping

	ctx, cancel := context.WithTimeout(as(w.ctx, "bob", "beta"), 30*time.Second)
	defer cancel()
	ports := []int{80}
	for name, act := range map[string]func() error{
		"Update":    func() error { _, err := w.Sandboxes().Update(ctx, "a", lifecycle.Patch{Ports: &ports}); return err },
		"Keepalive": func() error { _, err := w.Sandboxes().Keepalive(ctx, "a", lifecycle.Keepalive{}); return err },
		"Start":     func() error { _, err := w.Sandboxes().Start(ctx, "a"); return err },
		"Stop":      func() error { _, err := w.Sandboxes().Stop(ctx, "a", 0); return err },
		"Destroy":   func() error { return w.Sandboxes().Destroy(ctx, "a", false) },
		"Purge":     func() error { _, err := w.Sandboxes().Purge(ctx, "a"); return err },
		"ReadFile":  func() error { _, _, err := w.Files().Read(ctx, "a", "f", 0, -1); return err },
		"Exec":      func() error { _, err := w.Execs().Start(ctx, "a", sandbox.ExecSpec{Shell: "true"}); return err },
		"InstallPackages": func() error {
			_, err := w.Packages().Install(ctx, "a", program.PackagesRequest{Runtime: "python"}, 0)
			return err
		},
		"Terminals": func() error { _, err := w.Terminals().List(ctx, "a"); return err },
	} {
		if err := act(); !errors.Is(err, errs.NotFound) {
			t.Errorf("%s of a stranger = %v, want not found", name, err)
		}
	}
	if _, err := w.Sandboxes().Create(ctx, lifecycle.CreateRequest{ID: "a"}); !errors.Is(err, errs.Conflict) {
		t.Errorf("Create of a stranger = %v, want conflict", err)
	}
	close(goOn)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestTheNameOfATokenGivenToAnotherTenantHasNoneOfItsIdempotencyKeys renames a
// token: web@acme becomes web@beta.
func TestTheNameOfATokenGivenToAnotherTenantHasNoneOfItsIdempotencyKeys(t *testing.T) {
	w := newWorld(t)
	req := lifecycle.CreateRequest{IdempotencyKey: "k"}
	acme, err := w.Sandboxes().Create(as(w.ctx, "web", "acme"), req)
	if err != nil {
		t.Fatal(err)
	}
	beta, err := w.Sandboxes().Create(as(w.ctx, "web", "beta"), req)
	if err != nil || beta.UID == acme.UID || beta.Tenant != "beta" {
		t.Errorf("the create of web@beta = %s of %q, %v, want a sandbox of its own", beta.ID, beta.Tenant, err)
	}
	again, err := w.Sandboxes().Create(as(w.ctx, "web", "acme"), req)
	if err != nil || again.UID != acme.UID {
		t.Errorf("the repeated create of web@acme = %s, %v, want %s", again.UID, err, acme.UID)
	}
}

// TestADestroyedSandboxIsNotUnknown: those of its tenant learn when and why it
// ended, others that there is none.
func TestADestroyedSandboxIsNotUnknown(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	w.createIn("acme", "a")
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	message := func(ctx context.Context) string {
		t.Helper()
		_, err := w.Execs().Start(ctx, "a", sandbox.ExecSpec{Shell: "true"})
		if !errors.Is(err, errs.NotFound) {
			t.Errorf("Exec = %v, want not found", err)
		}
		return errs.Public(err).Message
	}
	for tenant, want := range map[string]string{
		"acme": "no such sandbox: destroyed just now", "": "no such sandbox: destroyed just now", "beta": "no such sandbox",
	} {
		if got := message(as(w.ctx, "x", tenant)); got != want {
			t.Errorf("a caller of %q hears %q, want %q", tenant, got, want)
		}
	}
	// Another tenant has the id now: acme still learns of its own.
	w.createIn("beta", "a")
	if got := message(as(w.ctx, "x", "acme")); got != "no such sandbox: destroyed just now" {
		t.Errorf("with the id in other hands acme hears %q", got)
	}
}
