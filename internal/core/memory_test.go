package core_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// meter is a memory that counts.
type meter struct {
	mu      sync.Mutex
	charged int64 // guarded by mu
	held    int64 // guarded by mu
	full    bool  // guarded by mu
}

func (m *meter) Charge(_ context.Context, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return errs.E(errs.Unready, "no room")
	}
	m.charged += n
	return nil
}

func (m *meter) Hold(_ context.Context, n int64) (func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return nil, errs.E(errs.Unready, "no room")
	}
	m.held += n
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.held -= n
	}, nil
}

// TestWhatReadsHoldIsCharged: output, unless it is read as it leaves, lists of
// long commands, and large specs; without room they are refused.
func TestWhatReadsHoldIsCharged(t *testing.T) {
	m := new(meter)
	w := newWorld(t, func(c *core.Config) { c.Memory = m })
	metadata := make(map[string]string)
	for _, k := range strings.Split("abcdefgh", "") {
		metadata[k] = strings.Repeat("\x01", 10_000)
	}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{Metadata: metadata}}); err != nil {
		t.Fatal(err)
	}
	x := w.sh("a", "head -c 300000 /dev/zero").Exec
	for range 10 {
		w.sh("a", "true "+strings.Repeat("x", 20_000))
	}
	for _, tt := range []struct {
		name  string
		read  func() error
		least int64
	}{
		{"output that is held", func() error {
			_, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1, Stderr: -1})
			return err
		}, 900_000},
		{"output up to a bound", func() error {
			_, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: 100_000, Stderr: 100})
			return err
		}, 300_000},
		{"a list of commands", func() error { _, err := w.Execs().List(w.ctx, "a", live.ExecQuery{}); return err }, 100_000},
		{"a list of sandboxes", func() error { _, err := w.Sandboxes().List(w.ctx, lifecycle.Query{}); return err }, 1_400_000},
	} {
		m.mu.Lock()
		m.charged, m.full = 0, false
		m.mu.Unlock()
		if err := tt.read(); err != nil || m.charged < tt.least || m.charged > 2*tt.least {
			t.Errorf("%s: charged %d, %v, want about %d", tt.name, m.charged, err, tt.least)
		}
		m.mu.Lock()
		m.full = true
		m.mu.Unlock()
		if err := tt.read(); !errors.Is(err, errs.Unready) {
			t.Errorf("%s without room: %v", tt.name, err)
		}
	}
	if r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1, Stderr: -1, Hold: 1 << 10}); err != nil || r.Long == nil {
		t.Errorf("output that is read as it leaves: %v", err)
	}
	list, err := w.store.Execs(w.ctx, x.Box, store.ExecQuery{Brief: true})
	if err != nil || len(list) != 11 || len(list[10].Spec.Shell) > 5_000 || !strings.HasSuffix(list[10].Spec.Shell, "x…") {
		t.Errorf("a list has %d commands, %v, the last with %d bytes", len(list), err, len(list[len(list)-1].Spec.Shell))
	}
}
