package core_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestSecrets(t *testing.T) {
	var log bytes.Buffer // read when the daemon has stopped
	w := newWorld(t, func(c *core.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	olga := as(w.ctx, "olga", "")
	set, err := w.Secrets().Set(olga, "acme", "API_KEY", "hush-5be00d21")
	if err != nil || set.Tenant != "acme" || set.Name != "API_KEY" || set.UpdatedAt.IsZero() {
		t.Fatalf("Set = %+v, %v", set, err)
	}
	if _, err := w.Secrets().Set(w.ctx, "", "API_KEY", "hush-none"); err != nil {
		t.Fatal(err)
	}
	if list, err := w.Secrets().List(olga, "acme"); err != nil || len(list) != 1 || list[0] != set {
		t.Errorf("List = %+v, %v, want %+v", list, err, set)
	}
	names := []string{"API_KEY", "OTHER"}
	for tenant, want := range map[string]map[string]string{
		"acme": {"API_KEY": "hush-5be00d21"}, "": {"API_KEY": "hush-none"}, "beta": {},
	} {
		if got, err := w.Secrets().Values(w.ctx, tenant, names); err != nil || !maps.Equal(got, want) {
			t.Errorf("Values of %q = %q, %v, want %q", tenant, got, err, want)
		}
	}
	w.restart()
	if got, err := w.Secrets().Values(w.ctx, "acme", names); err != nil || got["API_KEY"] != "hush-5be00d21" {
		t.Errorf("after a restart Values = %q, %v", got, err)
	}
	if err := w.Secrets().Remove(olga, "acme", "API_KEY"); err != nil {
		t.Fatal(err)
	}
	if err := w.Secrets().Remove(olga, "acme", "API_KEY"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Remove again = %v, want not found", err)
	}
	w.stop()
	text := log.String()
	for _, want := range []string{
		`msg="a secret was set" principal=olga tenant=acme name=API_KEY`,
		`msg="a secret was removed" principal=olga tenant=acme name=API_KEY`,
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("the log has not one line %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "hush") {
		t.Errorf("a value is in the log:\n%s", text)
	}
}

// TestSecretsAreTheOperators: a tenant may not see or change even its own.
func TestSecretsAreTheOperators(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Secrets().Set(w.ctx, "acme", "KEY", "v"); err != nil {
		t.Fatal(err)
	}
	alice := as(w.ctx, "alice", "acme")
	for _, tenant := range []string{"acme", "", "beta", "../x"} {
		for what, err := range map[string]error{
			"Set":    second(w.Secrets().Set(alice, tenant, "KEY", "w")),
			"Remove": w.Secrets().Remove(alice, tenant, "KEY"),
			"List":   second(w.Secrets().List(alice, tenant)),
		} {
			if !errors.Is(err, errs.Forbidden) {
				t.Errorf("a tenant's %s of %q = %v, want forbidden", what, tenant, err)
			}
		}
	}
	if got, err := w.Secrets().Values(w.ctx, "acme", []string{"KEY"}); err != nil || got["KEY"] != "v" {
		t.Errorf("afterwards Values = %q, %v", got, err)
	}
}

func TestBadSecrets(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		tenant, name, value string
		want                errs.Kind
	}{
		{"../x", "KEY", "v", errs.Invalid},
		{"acme", "A-B", "v", errs.Invalid},
		{"acme", "KEY", "", errs.Invalid},
		{"acme", "KEY", "a\x00", errs.Invalid},
		{"acme", "KEY", strings.Repeat("x", sandbox.MaxSecretValue+1), errs.TooLarge},
	} {
		if _, err := w.Secrets().Set(w.ctx, tt.tenant, tt.name, tt.value); !errors.Is(err, tt.want) {
			t.Errorf("Set(%q, %q, %.9q) = %v, want %v", tt.tenant, tt.name, tt.value, err, tt.want)
		}
	}
	for what, err := range map[string]error{
		"List of a bad tenant":   second(w.Secrets().List(w.ctx, "a..b")),
		"Remove of a bad tenant": w.Secrets().Remove(w.ctx, "a..b", "KEY"),
		"Remove of a bad name":   w.Secrets().Remove(w.ctx, "acme", "A=B"),
	} {
		if !errors.Is(err, errs.Invalid) {
			t.Errorf("%s = %v, want invalid", what, err)
		}
	}
	for i := range sandbox.MaxSecrets {
		if _, err := w.store.SetSecret(w.ctx, "acme", fmt.Sprintf("K%d", i), "v", sandbox.MaxSecrets); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Secrets().Set(w.ctx, "acme", "MORE", "v"); !errors.Is(err, errs.OverQuota) {
		t.Errorf("Set of one more = %v, want over quota", err)
	}
}
