package store

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/store/engine"
)

// TestNoTenantKeepsOthersFromReading: a tenant with as many reads as it can have waits
// for itself alone.
func TestNoTenantKeepsOthersFromReading(t *testing.T) {
	type tenant struct{}
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "cubby.db"), Tenant: func(ctx context.Context) string {
		name, _ := ctx.Value(tenant{}).(string)
		return name
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	of := func(name string) context.Context { return context.WithValue(t.Context(), tenant{}, name) }
	var open []engine.Rowset
	for range engine.Readers / 4 {
		rows, err := s.reads.Rows(of("acme"), `SELECT 1`)
		if err != nil || !rows.Next() {
			t.Fatal(err)
		}
		open = append(open, rows)
	}
	waiting, give := context.WithCancel(of("acme"))
	waited := make(chan error)
	var one int
	go func() { waited <- s.reads.Row(waiting, `SELECT 1`).Scan(&one) }()
	for _, other := range []string{"beta", ""} {
		if err := s.reads.Row(of(other), `SELECT 2`).Scan(&one); err != nil || one != 2 {
			t.Errorf("a read of %q: %d, %v", other, one, err)
		}
	}
	give()
	if err := <-waited; err == nil {
		t.Error("the tenant has one read more than it may")
	}
	for _, rows := range open {
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.reads.Row(of("acme"), `SELECT 3`).Scan(&one); err != nil || one != 3 {
		t.Errorf("a read of the tenant afterwards: %d, %v", one, err)
	}
}
