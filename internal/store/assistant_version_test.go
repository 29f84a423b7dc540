package store

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// TestVersionsAreBounded: of an assistant's versions the newest are kept, and the one in
// use, in number and in bytes.
func TestVersionsAreBounded(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	if err := s.CreateAssistant(ctx, conversation.Assistant{ID: "a", Tenant: "acme", GraphID: "agent", Version: 1}); err != nil {
		t.Fatal(err)
	}
	change := func(size int) int {
		t.Helper()
		a, err := s.ChangeAssistant(ctx, "acme", "a", func(a *conversation.Assistant) error {
			a.Config = json.RawMessage(`{"x":"` + strings.Repeat("x", size) + `"}`)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return a.Version
	}
	kept := func() []int {
		t.Helper()
		keys, err := s.AssistantVersions(ctx, "acme", "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		numbers := make([]int, len(keys))
		for i, k := range keys {
			numbers[i] = k.Version
		}
		return numbers
	}
	for range maxVersions + 10 {
		change(1)
	}
	if got := kept(); len(got) != maxVersions || got[0] != maxVersions+11 || got[maxVersions-1] != 12 {
		t.Errorf("versions = %v", got)
	}
	_, err := s.UseAssistantVersion(ctx, "acme", "a", 11)
	wantKind(t, "a version that went", err, errs.NotFound)
	if a, err := s.UseAssistantVersion(ctx, "acme", "a", 12); err != nil || a.Version != 12 {
		t.Errorf("UseAssistantVersion = %d, %v", a.Version, err)
	}
	for range 3 {
		change(maxVersionsBytes / 2)
	}
	if got := kept(); len(got) != 1 || change(maxVersionsBytes*2) != got[0]+1 || len(kept()) != 1 {
		t.Errorf("large versions = %v, then %v", got, kept())
	}
	if err := s.RemoveAssistant(ctx, "acme", "a"); err != nil || len(kept()) != 0 {
		t.Errorf("versions of none = %v, %v", kept(), err)
	}
}
