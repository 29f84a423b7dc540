package sandbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestServicesAreBounded(t *testing.T) {
	many := func(n int, edit func(int, *sandbox.Service)) []sandbox.Service {
		list := make([]sandbox.Service, n)
		for i := range list {
			list[i] = sandbox.Service{Name: fmt.Sprintf("s%d", i), Command: "true"}
			edit(i, &list[i])
		}
		return list
	}
	none := func(int, *sandbox.Service) {}
	one := func(s sandbox.Service) []sandbox.Service { return []sandbox.Service{s} }
	for _, tt := range []struct {
		name string
		list []sandbox.Service
		want errs.Kind
	}{
		{"as many as there may be", many(sandbox.MaxServices, none), ""},
		{"one more", many(sandbox.MaxServices+1, none), errs.Invalid},
		{"no name", one(sandbox.Service{Command: "true"}), errs.Invalid},
		{"a path as name", one(sandbox.Service{Name: "../x", Command: "true"}), errs.Invalid},
		{"no command", one(sandbox.Service{Name: "a", Command: " "}), errs.Invalid},
		{"a NUL", one(sandbox.Service{Name: "a", Command: "a\x00b"}), errs.Invalid},
		{"a long command", one(sandbox.Service{Name: "a", Command: strings.Repeat("x", 64<<10+1)}), errs.TooLarge},
		{"much together", many(5, func(_ int, s *sandbox.Service) { s.Command = strings.Repeat("x", 60<<10) }), errs.TooLarge},
		{"a port that is none", one(sandbox.Service{Name: "a", Command: "true", Port: 65536}), errs.Invalid},
		{"the same port", many(2, func(_ int, s *sandbox.Service) { s.Port = 80 }), errs.Invalid},
		{"the same name", many(2, func(_ int, s *sandbox.Service) { s.Name = "a" }), errs.Invalid},
		{"a policy that is none", one(sandbox.Service{Name: "a", Command: "true", Restart: "perhaps"}), errs.Invalid},
		{"an env name", one(sandbox.Service{Name: "a", Command: "true", Env: map[string]string{"A=": ""}}), errs.Invalid},
		{"a relative path", one(sandbox.Service{Name: "a", Command: "true", Requires: "app"}), errs.Invalid},
		{"all of it", one(sandbox.Service{
			Name: "a", Command: "true", Port: 80, Cwd: "app", Env: map[string]string{"A": "b"}, Restart: sandbox.RestartNever, Requires: "/workspace/app",
		}), ""},
	} {
		spec := validSpec()
		spec.Services = tt.list
		if err := spec.Validate(); (err == nil) != (tt.want == "") || err != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A copy has the runs of its memory and no numbers for them, but knows that they
// were: what ran once and has ended is not taken for what never ran.
func TestCopiesKnowThatAServiceRan(t *testing.T) {
	states := map[string]sandbox.ServiceState{"ran": {Exec: 7, Restarts: 2, Quick: 1}, "new": {}}
	copied := sandbox.CopiedServices(states)
	if want := (sandbox.ServiceState{Exec: sandbox.RunElsewhere, Quick: 1}); copied["ran"] != want || copied["new"] != (sandbox.ServiceState{}) {
		t.Errorf("the copy has %+v", copied)
	}
	if states["ran"].Exec != 7 {
		t.Error("the original is another")
	}
}

func TestRevisionsStayWhereTheSameRuns(t *testing.T) {
	before := sandbox.Revise(nil, []sandbox.Service{{Name: "a", Command: "x"}, {Name: "b", Command: "x"}})
	if before[0].Revision == "" || before[0].Revision == before[1].Revision {
		t.Fatalf("revisions %v", before)
	}
	now := sandbox.Revise(before, []sandbox.Service{
		{Name: "b", Command: "y"}, {Name: "a", Command: "x", Restart: sandbox.RestartNever, Requires: "/x"}, {Name: "c", Command: "x"},
	})
	if now[1].Revision != before[0].Revision {
		t.Error("what runs the same is another")
	}
	if now[0].Revision == before[1].Revision || now[2].Revision == before[0].Revision {
		t.Errorf("what runs otherwise is the same: %v, %v", before, now)
	}
}
