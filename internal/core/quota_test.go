package core_test

import (
	"errors"
	"math"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestStoppedSandboxesAndKeptDisksOfATenantAreBounded: what does not run counts
// too, and nobody else is held up.
func TestStoppedSandboxesAndKeptDisksOfATenantAreBounded(t *testing.T) {
	w := newWorld(t, func(c *core.Config) { c.Sandboxes.Caps.OfTenant = 2 })
	w.createIn("acme", "a")
	w.createIn("acme", "b")
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	full := func(when string) {
		t.Helper()
		_, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "c", Tenant: "acme"})
		if info := errs.Public(orNone(err)); info.Kind != errs.OverQuota || info.Hint == "" {
			t.Errorf("%s: Create = %v, want over quota with a hint", when, err)
		}
	}
	full("with a stopped one")
	if err := w.Sandboxes().Destroy(w.ctx, "a", true); err != nil {
		t.Fatal(err)
	}
	full("with a kept disk")
	w.createIn("acme", "a") // takes the kept disk over
	w.createIn("beta", "d")
	w.create("e")
	if _, err := w.Sandboxes().Purge(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	w.createIn("acme", "c")
}

func TestTheDisksOfATenantAreBounded(t *testing.T) {
	const size = 64 << 20
	w := newWorld(t, func(c *core.Config) { c.Sandboxes.Caps.DiskOfTenant = 2*size + size/2 })
	create := func(id string) error {
		_, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Tenant: "acme", Spec: sandbox.Spec{Limits: sandbox.Limits{DiskBytes: size}}})
		return err
	}
	for _, id := range []string{"a", "b"} {
		if err := create(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := create("c"); !errors.Is(err, errs.OverQuota) {
		t.Errorf("the third disk = %v, want over quota", err)
	}
	if err := w.Sandboxes().Destroy(w.ctx, "b", false); err != nil {
		t.Fatal(err)
	}
	if err := create("c"); err != nil {
		t.Errorf("a disk in place of another = %v", err)
	}
}

// TestTheCommandsOfATenantAreBounded: those of all its sandboxes together, of
// every kind, and nobody else's; what waits for its turn begins when one ends.
func TestTheCommandsOfATenantAreBounded(t *testing.T) {
	w := newWorld(t, func(c *core.Config) { c.Sandboxes.Caps.Commands = 3 })
	for id, tenant := range map[string]string{"a": "acme", "b": "acme", "c": "beta", "d": ""} {
		w.createIn(tenant, id)
	}
	wait, open := gate(t)
	begin := func(id, session string) error {
		_, err := w.Execs().Start(w.ctx, id, sandbox.ExecSpec{Shell: wait, Session: session})
		return err
	}
	if err := errors.Join(begin("a", ""), begin("b", "")); err != nil {
		t.Fatal(err)
	}
	v, err := w.Terminals().Open(w.ctx, "a", live.TerminalSpec{Shell: wait})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	info := errs.Public(orNone(begin("b", "")))
	if info.Kind != errs.OverQuota || info.Hint == "" || info.RetryAfter == 0 {
		t.Errorf("one more = %+v, want over quota with a hint", info)
	}
	if _, err := w.Terminals().Open(w.ctx, "b", live.TerminalSpec{Shell: wait}); !errors.Is(err, errs.OverQuota) {
		t.Errorf("one more terminal = %v, want over quota", err)
	}
	if err := errors.Join(begin("b", "main"), begin("c", ""), begin("d", "")); err != nil {
		t.Errorf("one that waits, and those of others = %v", err)
	}
	open()
	w.wait("b", 2)
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	for range 4 { // each gives its place back
		if _, err := w.Execs().Run(w.ctx, "b", sandbox.ExecSpec{Shell: "true"}, -1, live.OutputCaps{}); err != nil {
			t.Error(err)
		}
	}
}

func orNone(err error) error {
	if err == nil {
		return errs.E(errs.Internal, "none")
	}
	return err
}

// TestInterfacesHaveTheirOwnLimits: what their systems document as far as the
// host has it, and what the operator says instead.
func TestInterfacesHaveTheirOwnLimits(t *testing.T) {
	w := newWorld(t, func(c *core.Config) {
		c.Sandboxes.Host = admission.Host{CPUs: 3, MemoryBytes: 8 << 30, OpenFiles: 1 << 20}
		c.Sandboxes.Interfaces = map[admission.Interface]admission.InterfaceLimits{
			"four": {Documented: sandbox.Limits{MemoryBytes: 4 << 30, CPUs: 4}},
			"more": {Documented: sandbox.Limits{MemoryBytes: 10 << 30, CPUs: math.MaxInt32, PIDs: 1024}},
			"none": {},
			"set":  {Documented: sandbox.Limits{MemoryBytes: 4 << 30, CPUs: 1}, Operator: sandbox.Limits{MemoryBytes: 512 << 20}},
		}
	})
	for i, want := range map[admission.Interface]sandbox.Limits{
		"":     {MemoryBytes: 1 << 30, CPUs: 2, PIDs: 512, DiskBytes: 4 << 30},
		"four": {MemoryBytes: 4 << 30, CPUs: 3, PIDs: 512, DiskBytes: 4 << 30},
		"more": {MemoryBytes: 8 << 30, CPUs: 3, PIDs: 1024, DiskBytes: 4 << 30},
		"none": {MemoryBytes: 1 << 30, CPUs: 2, PIDs: 512, DiskBytes: 4 << 30},
		"set":  {MemoryBytes: 512 << 20, CPUs: 1, PIDs: 512, DiskBytes: 4 << 30},
	} {
		b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Interface: i})
		if err != nil {
			t.Fatal(err)
		}
		got := b.Spec.Limits
		got.OpenFiles = 0
		if got != want {
			t.Errorf("%q: %+v, want %+v", i, got, want)
		}
	}
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Interface: "four", Spec: sandbox.Spec{Limits: sandbox.Limits{CPUs: 1}}})
	if err != nil || b.Spec.Limits.CPUs != 1 {
		t.Errorf("a limit that the caller names is %v, %v", b.Spec.Limits.CPUs, err)
	}
}
