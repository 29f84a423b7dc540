package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/canonical"
	"github.com/cubbyhq/cubby/internal/store/column"
)

func object(text string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		panic(err)
	}
	return m
}

func TestAssistants(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	a := conversation.Assistant{
		ID: "a-1", Tenant: "acme", GraphID: "agent", Name: "First Ärger", Description: "does <it>", Version: 1,
		Config: json.RawMessage(`{"tags":["x"]}`), Context: json.RawMessage(`{}`), Metadata: object(`{"created_by":"user","n":{"a":1,"b":true}}`),
	}
	if err := s.CreateAssistant(ctx, a); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "CreateAssistant again", s.CreateAssistant(ctx, a), errs.Conflict)
	at := column.FromMicros(column.Micros(c.Now()))
	a.CreatedAt, a.UpdatedAt = at, at
	if got, err := s.Assistant(ctx, "acme", "a-1"); err != nil || cmp.Diff(a, got) != "" {
		t.Errorf("Assistant: %v\n%s", err, cmp.Diff(a, got))
	}
	for _, tenant := range []string{"", "Acme", "beta"} {
		_, err := s.Assistant(ctx, tenant, "a-1")
		wantKind(t, "Assistant of "+tenant, err, errs.NotFound)
		_, err = s.ChangeAssistant(ctx, tenant, "a-1", func(*conversation.Assistant) error { return nil })
		wantKind(t, "ChangeAssistant of "+tenant, err, errs.NotFound)
		wantKind(t, "RemoveAssistant of "+tenant, s.RemoveAssistant(ctx, tenant, "a-1"), errs.NotFound)
		if list, total, err := s.Assistants(ctx, AssistantQuery{Tenant: tenant}); err != nil || len(list)+total > 0 {
			t.Errorf("Assistants of %q = %d of %d, %v", tenant, len(list), total, err)
		}
	}
	a.ID = "a-1"
	a.Tenant = "beta"
	wantKind(t, "one of another tenant with the id", s.CreateAssistant(ctx, a), nil)

	later := c.advance(time.Minute)
	changed, err := s.ChangeAssistant(ctx, "acme", "a-1", func(a *conversation.Assistant) error {
		a.ID, a.Tenant, a.CreatedAt = "x", "y", time.Time{}
		a.Version++
		a.Metadata["created_by"] = json.RawMessage(`"system"`)
		return nil
	})
	if err != nil || changed.Version != 2 || changed.ID != "a-1" || changed.Tenant != "acme" || !changed.CreatedAt.Equal(at) ||
		!changed.UpdatedAt.Equal(column.FromMicros(column.Micros(later))) {
		t.Errorf("ChangeAssistant = %+v, %v", changed, err)
	}
	if got, err := s.Assistant(ctx, "acme", "a-1"); err != nil || cmp.Diff(changed, got) != "" {
		t.Errorf("the changed one: %v\n%s", err, cmp.Diff(changed, got))
	}
	_, err = s.ChangeAssistant(ctx, "acme", "a-1", func(*conversation.Assistant) error { return errs.E(errs.Invalid, "no") })
	wantKind(t, "a change that fails", err, errs.Invalid)
	if err := s.RemoveAssistant(ctx, "acme", "a-1"); err != nil {
		t.Fatal(err)
	}
	if _, total, err := s.Assistants(ctx, AssistantQuery{Tenant: "beta"}); err != nil || total != 1 {
		t.Errorf("beta has %d, %v", total, err)
	}
}

func TestAssistantQueries(t *testing.T) {
	s, c := fresh(t)
	for i, a := range []conversation.Assistant{
		{GraphID: "agent", Name: "Alpha", Metadata: object(`{"k":true,"o":{"b":2,"a":1}}`)},
		{GraphID: "other", Name: "beta", Metadata: object(`{"k":"true"}`)},
		{GraphID: "agent", Name: "alphabet", Metadata: object(`{"k":true,"n":1.0}`)},
		{GraphID: "agent", Name: "ÄRGER"},
	} {
		a.ID, a.Tenant, a.Version = fmt.Sprint("a", i), "acme", 1
		if i%2 == 1 {
			c.advance(time.Second)
		}
		if err := s.CreateAssistant(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		q     AssistantQuery
		want  string
		total int
	}{
		"all":               {AssistantQuery{}, "a0 a1 a2 a3", 4},
		"newest first":      {AssistantQuery{SortBy: "created_at", Descending: true}, "a3 a2 a1 a0", 4},
		"by name":           {AssistantQuery{SortBy: "name"}, "a0 a2 a1 a3", 4},
		"by id, descending": {AssistantQuery{SortBy: "assistant_id", Descending: true}, "a3 a2 a1 a0", 4},
		"by graph":          {AssistantQuery{SortBy: "graph_id"}, "a0 a2 a3 a1", 4},
		"by junk":           {AssistantQuery{SortBy: "1; DROP TABLE assistants"}, "a0 a1 a2 a3", 4},
		"a page":            {AssistantQuery{Limit: 2, Offset: 1}, "a1 a2", 4},
		"beyond":            {AssistantQuery{Offset: 9}, "", 4},
		"before":            {AssistantQuery{Offset: -9, Limit: -1}, "a0 a1 a2 a3", 4},
		"of a graph":        {AssistantQuery{GraphID: "other"}, "a1", 1},
		"with a name":       {AssistantQuery{Name: "ALPHA"}, "a0 a2", 2},
		"with an umlaut":    {AssistantQuery{Name: "ärg"}, "a3", 1},
		"no wildcards":      {AssistantQuery{Name: "%"}, "", 0},
		"a boolean":         {AssistantQuery{Metadata: object(`{"k":true}`)}, "a0 a2", 2},
		"a text":            {AssistantQuery{Metadata: object(`{"k":"true"}`)}, "a1", 1},
		"a number":          {AssistantQuery{Metadata: object(`{"n":1,"k":true}`)}, "a2", 1},
		"an object":         {AssistantQuery{Metadata: object(`{"o":{"a":1,"b":2.0}}`)}, "a0", 1},
		"part of an object": {AssistantQuery{Metadata: object(`{"o":{"a":1}}`)}, "", 0},
	} {
		tt.q.Tenant = "acme"
		list, total, err := s.Assistants(t.Context(), tt.q)
		var got []string
		for _, a := range list {
			got = append(got, a.ID)
		}
		if err != nil || total != tt.total || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v of %d, %v, want %s of %d", name, got, total, err, tt.want, tt.total)
		}
	}
	many := map[string]json.RawMessage{}
	for i := range canonical.MaxMatch + 1 {
		many[fmt.Sprint(i)] = json.RawMessage(`1`)
	}
	_, _, err := s.Assistants(t.Context(), AssistantQuery{Tenant: "acme", Metadata: many})
	wantKind(t, "too many names", err, errs.Invalid)
	_, _, err = s.Assistants(t.Context(), AssistantQuery{Tenant: "acme", Metadata: map[string]json.RawMessage{"k": json.RawMessage(`{`)}})
	wantKind(t, "what is no JSON", err, errs.Invalid)
}

func TestAssistantsOfATenantAreBounded(t *testing.T) {
	s, _ := fresh(t)
	err := s.update(t.Context(), relaxed, func(x *tx) error {
		for i := range maxAssistants {
			if _, err := x.exec(`INSERT INTO assistants (`+assistantColumns+`) VALUES ($1, $2, '', '', '', 1, '', '', '{}', 0, 0)`, "acme", fmt.Sprint(i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, "one more", s.CreateAssistant(t.Context(), conversation.Assistant{Tenant: "acme", ID: "x"}), errs.OverQuota)
	wantKind(t, "one of another tenant", s.CreateAssistant(t.Context(), conversation.Assistant{Tenant: "beta", ID: "x"}), nil)
	list, total, err := s.Assistants(t.Context(), AssistantQuery{Tenant: "acme", Limit: 5000})
	if err != nil || total != maxAssistants || len(list) != maxAssistants || slices.ContainsFunc(list, func(k Key) bool { return k.ID == "x" }) {
		t.Errorf("Assistants = %d of %d, %v", len(list), total, err)
	}
}
