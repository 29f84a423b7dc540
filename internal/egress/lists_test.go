package egress

import (
	"fmt"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Who asks for names one after another makes the daemon read no list again.
func TestListsAreReadOnce(t *testing.T) {
	p := sandbox.Policy{Mode: sandbox.NetworkAllowlist}
	for i := range sandbox.MaxAllowHosts {
		p.Allow = append(p.Allow, fmt.Sprintf("a%d.example.com:443", i))
		p.Deny = append(p.Deny, fmt.Sprintf("b%d.example.com:443", i))
	}
	e := NewEvaluator(Operator{})
	if n := testing.AllocsPerRun(100, func() { e.Decide(p, "c.example.com", 0) }); n > sandbox.MaxAllowHosts {
		t.Errorf("a decision takes %v allocations", n)
	}
}

func TestListsFollowWhatChanges(t *testing.T) {
	e := NewEvaluator(Operator{})
	p := sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
	allowed := func(name string) bool { return e.Decide(p, name, 443).Allow }
	if !allowed("a.example.com") || allowed("b.example.com") {
		t.Error("the first list does not hold")
	}
	p.Allow[0] = "b.example.com" // in the same place
	if allowed("a.example.com") || !allowed("b.example.com") {
		t.Error("the list that took its place does not hold")
	}
	p.Allow = []string{"b.example.com", "a.example.com"}[:1]
	longer := p
	longer.Allow = p.Allow[:2]
	if allowed("a.example.com") || !e.Decide(longer, "a.example.com", 443).Allow || allowed("a.example.com") {
		t.Error("lists that begin in the same place are taken for each other")
	}
	for i := range 3 * maxRead {
		if name := fmt.Sprintf("c%d.example.com", i); !e.Decide(sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{name}}, name, 443).Allow {
			t.Fatalf("list %d does not hold", i)
		}
	}
	if n := len(e.read.read); n > maxRead {
		t.Errorf("%d lists are kept, want at most %d", n, maxRead)
	}
}
