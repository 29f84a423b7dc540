package store

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestList(t *testing.T) {
	s, _ := fresh(t)
	var uids []sandbox.UID // oldest first
	for i := range 12 {
		b := box(fmt.Sprintf("b%d", i))
		// Unlike random ULIDs of one millisecond these have a known order.
		b.UID = sandbox.UID(fmt.Sprintf("01kannnnnnnnnnnnnnnnnnnn%02d", i))
		b.Tenant = []string{"x", "y"}[i%2]
		b.Spec.Labels = map[string]string{"third": fmt.Sprint(i % 3), "all": "1"}
		b.Spec.External = sandbox.External{UserID: fmt.Sprint(i % 4), ProjectID: "p", WorkspaceID: "w"}
		create(t, s, b)
		uids = append(uids, b.UID)
	}
	move(t, s, uids[0], sandbox.Stopped, Change{Why: asked})
	move(t, s, uids[1], sandbox.Failed, Change{})
	move(t, s, uids[2], sandbox.Destroyed, Change{})

	x, none := "x", ""
	for _, tt := range []struct {
		name  string
		query Query
		want  []int
	}{
		{"all", Query{}, []int{11, 10, 9, 8, 7, 6, 5, 4, 3, 1, 0}},
		{"tenant", Query{Tenant: &x}, []int{10, 8, 6, 4, 0}},
		{"no tenant", Query{Tenant: &none}, nil},
		{"state", Query{States: []sandbox.State{sandbox.Stopped}}, []int{0}},
		{"states", Query{States: []sandbox.State{sandbox.Stopped, sandbox.Failed}}, []int{1, 0}},
		{"destroyed", Query{States: []sandbox.State{sandbox.Destroyed}}, []int{2}},
		{"label", Query{Labels: map[string]string{"third": "0"}}, []int{9, 6, 3, 0}},
		{"labels", Query{Labels: map[string]string{"third": "1", "all": "1"}}, []int{10, 7, 4, 1}},
		{"label of none", Query{Labels: map[string]string{"third": "9"}}, nil},
		{"external user", Query{External: sandbox.External{UserID: "3"}}, []int{11, 7, 3}},
		{"external all", Query{External: sandbox.External{UserID: "3", ProjectID: "p", WorkspaceID: "w"}}, []int{11, 7, 3}},
		{"everything at once", Query{Tenant: &x, Labels: map[string]string{"third": "1"}, External: sandbox.External{UserID: "2"},
			States: []sandbox.State{sandbox.Running}}, []int{10}},
	} {
		for _, size := range []int{0, 1, 2, 100} {
			var got []int
			q := tt.query
			q.Limit = size
			for {
				items, next, err := s.Sandboxes(t.Context(), q)
				if err != nil {
					t.Fatalf("%s, pages of %d: %v", tt.name, size, err)
				}
				if size > 0 && len(items) > size {
					t.Fatalf("%s: a page of %d, want at most %d", tt.name, len(items), size)
				}
				for _, b := range items {
					var i int
					fmt.Sscanf(string(b.ID), "b%d", &i)
					got = append(got, i)
				}
				if next == "" {
					break
				}
				q.After = next
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s, pages of %d (-want +got):\n%s", tt.name, size, diff)
			}
		}
	}
	_, _, err := s.Sandboxes(t.Context(), Query{After: "nonsense"})
	wantKind(t, "a malformed cursor", err, errs.Invalid)

	n, err := s.CountSandboxes(t.Context(), sandbox.Running, sandbox.Failed, sandbox.Destroyed)
	if err != nil || n != 11 {
		t.Errorf("CountSandboxes = %d, %v, want 11", n, err)
	}
}
