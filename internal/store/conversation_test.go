package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/canonical"
	"github.com/cubbyhq/cubby/internal/store/column"
)

// growing are UIDs that grow, also those of the same millisecond.
var growing struct {
	mu   sync.Mutex
	last sandbox.UID // guarded by mu
}

func nextUID() sandbox.UID {
	growing.mu.Lock()
	defer growing.mu.Unlock()
	for {
		if uid := sandbox.NewUID(); uid > growing.last {
			growing.last = uid
			return uid
		}
	}
}

// talk makes a thread of a tenant.
func talk(t testing.TB, s *Store, tenant, id string, edit ...func(*conversation.Thread)) conversation.Thread {
	t.Helper()
	c := conversation.Thread{UID: nextUID(), ID: id, Tenant: tenant, Owner: "ann"}
	for _, e := range edit {
		e(&c)
	}
	if err := s.CreateConversation(t.Context(), c); err != nil {
		t.Fatalf("CreateConversation %s: %v", id, err)
	}
	c, err := s.ConversationOf(t.Context(), c.UID)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func with(metadata string) func(*conversation.Thread) {
	return func(c *conversation.Thread) { c.Metadata = object(metadata) }
}

func TestConversations(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	want := conversation.Thread{
		UID: sandbox.NewUID(), ID: "t1", Tenant: "acme", Owner: "ann", Metadata: object(`{"graph_id":"agent","o":{"x":[1,"<&>"]}}`),
		Config: json.RawMessage(`{"configurable":{}}`),
	}
	if err := s.CreateConversation(ctx, want); err != nil {
		t.Fatal(err)
	}
	at := column.FromMicros(column.Micros(c.Now()))
	want.Status, want.CreatedAt, want.UpdatedAt, want.StateUpdatedAt = conversation.ThreadIdle, at, at, at
	same := func(got conversation.Thread, err error) {
		t.Helper()
		// Values are compared as JSON: how a text is escaped is not kept.
		if err == nil {
			for name, value := range got.Metadata {
				a, _ := canonical.JSON(value)
				if b, _ := canonical.JSON(want.Metadata[name]); a == b {
					got.Metadata[name] = want.Metadata[name]
				}
			}
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("the thread: %v\n%s", err, diff)
		}
	}
	same(s.Conversation(ctx, "acme", "t1"))
	same(s.ConversationOf(ctx, want.UID))
	other := want
	other.UID = sandbox.NewUID()
	wantKind(t, "CreateConversation again", s.CreateConversation(ctx, other), errs.Conflict)
	other.Tenant = ""
	wantKind(t, "one of another tenant with the id", s.CreateConversation(ctx, other), nil)
	_, err := s.Conversation(ctx, "beta", "t1")
	wantKind(t, "Conversation of another tenant", err, errs.NotFound)

	later := column.FromMicros(column.Micros(c.advance(time.Second)))
	changed, err := s.ChangeConversation(ctx, want.UID, func(c *conversation.Thread) error {
		c.UID, c.ID, c.Tenant, c.Owner, c.CreatedAt = "u", "x", "beta", "bob", later
		c.Status, c.Head, c.Error = conversation.ThreadFailed, "h", json.RawMessage(`{"error":"E"}`)
		c.Metadata["graph_id"] = json.RawMessage(`"other"`)
		return nil
	})
	want.Status, want.Head, want.Error, want.UpdatedAt = conversation.ThreadFailed, "h", json.RawMessage(`{"error":"E"}`), later
	want.Metadata["graph_id"] = json.RawMessage(`"other"`)
	same(changed, err)
	same(s.Conversation(ctx, "acme", "t1"))
	for metadata, n := range map[string]int{`{"graph_id":"agent"}`: 1, `{"graph_id":"other"}`: 1, `{"o":{"x":[1,"<&>"]}}`: 2} {
		if _, total, err := s.Conversations(ctx, ConversationQuery{Metadata: object(metadata)}); err != nil || total != n {
			t.Errorf("%s is found %d times, %v, want %d", metadata, total, err, n)
		}
	}
	_, err = s.ChangeConversation(ctx, want.UID, func(c *conversation.Thread) error {
		c.Metadata["graph_id"] = json.RawMessage(`1`)
		return errs.E(errs.Invalid, "no")
	})
	wantKind(t, "a change that fails", err, errs.Invalid)
	same(s.Conversation(ctx, "acme", "t1"))

	if err := s.RemoveConversation(ctx, want.UID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "RemoveConversation again", s.RemoveConversation(ctx, want.UID), errs.NotFound)
	_, err = s.ChangeConversation(ctx, want.UID, func(*conversation.Thread) error { return nil })
	wantKind(t, "ChangeConversation of none", err, errs.NotFound)
	if got, err := s.Conversation(ctx, "", "t1"); err != nil || got.UID != other.UID {
		t.Errorf("the other one is %+v, %v", got, err)
	}
}

func idsOf(list []Key) string {
	var all []string
	for _, k := range list {
		all = append(all, k.ID)
	}
	return strings.Join(all, " ")
}

func ids(list []conversation.Thread) string {
	var all []string
	for _, c := range list {
		all = append(all, c.ID)
	}
	return strings.Join(all, " ")
}

func TestConversationQueries(t *testing.T) {
	s, c := fresh(t)
	acme := "acme"
	talk(t, s, acme, "d", with(`{"graph_id":"agent","on":true,"n":1}`))
	talk(t, s, acme, "c", with(`{"graph_id":"agent","on":"true","n":1.0,"o":{"a":[1],"b":null}}`)) // at the same time
	c.advance(time.Second)
	b := talk(t, s, acme, "b", with(`{"graph_id":"agent","on":1,"long":"`+strings.Repeat("x", 5000)+`"}`))
	talk(t, s, "beta", "d", with(`{"graph_id":"agent","on":true}`))
	c.advance(time.Second)
	a := talk(t, s, acme, "a", func(c *conversation.Thread) { c.Status = conversation.ThreadBusy })
	c.advance(time.Second)
	if _, err := s.ChangeConversation(t.Context(), b.UID, func(c *conversation.Thread) error {
		c.StateUpdatedAt = c.UpdatedAt
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		q     ConversationQuery
		want  string
		total int
	}{
		"all":                  {ConversationQuery{}, "d c b a", 4},
		"newest first":         {ConversationQuery{SortBy: "created_at", Descending: true}, "a b c d", 4},
		"by id":                {ConversationQuery{SortBy: "thread_id"}, "a b c d", 4},
		"by status":            {ConversationQuery{SortBy: "status"}, "a d c b", 4},
		"by change":            {ConversationQuery{SortBy: "updated_at"}, "d c a b", 4},
		"by change, latest":    {ConversationQuery{SortBy: "updated_at", Descending: true}, "b a c d", 4},
		"by state":             {ConversationQuery{SortBy: "state_updated_at"}, "d c a b", 4},
		"by junk":              {ConversationQuery{SortBy: "uid; DROP TABLE runs"}, "d c b a", 4},
		"a page":               {ConversationQuery{Limit: 2, Offset: 1}, "c b", 4},
		"the end":              {ConversationQuery{Limit: 2, Offset: 3}, "a", 4},
		"beyond":               {ConversationQuery{Offset: 10}, "", 4},
		"junk bounds":          {ConversationQuery{Limit: -3, Offset: -10}, "d c b a", 4},
		"of a status":          {ConversationQuery{Status: conversation.ThreadBusy}, "a", 1},
		"of a junk status":     {ConversationQuery{Status: "x"}, "", 0},
		"some ids":             {ConversationQuery{IDs: []string{"a", "d", "zz"}}, "d a", 2},
		"of a graph":           {ConversationQuery{Metadata: object(`{"graph_id":"agent"}`)}, "d c b", 3},
		"a boolean":            {ConversationQuery{Metadata: object(`{"on":true}`)}, "d", 1},
		"a text":               {ConversationQuery{Metadata: object(`{"on":"true"}`)}, "c", 1},
		"a number":             {ConversationQuery{Metadata: object(`{"on":1.0}`)}, "b", 1},
		"a number in two ways": {ConversationQuery{Metadata: object(`{"n":10e-1}`)}, "d c", 2},
		"an object":            {ConversationQuery{Metadata: object(`{"o":{"b":null,"a":[1]}}`)}, "c", 1},
		"another object":       {ConversationQuery{Metadata: object(`{"o":{"b":null,"a":[2]}}`)}, "", 0},
		"nothing":              {ConversationQuery{Metadata: object(`{"on":null}`)}, "", 0},
		"a long text":          {ConversationQuery{Metadata: object(`{"long":"` + strings.Repeat("x", 5000) + `"}`)}, "b", 1},
		"another long text":    {ConversationQuery{Metadata: object(`{"long":"` + strings.Repeat("x", 5001) + `"}`)}, "", 0},
		"both":                 {ConversationQuery{Metadata: object(`{"graph_id":"agent","on":true}`)}, "d", 1},
		"three":                {ConversationQuery{Metadata: object(`{"graph_id":"agent","on":true,"n":1}`), Limit: 1}, "d", 1},
	} {
		tt.q.Tenant = &acme
		list, total, err := s.Conversations(t.Context(), tt.q)
		if err != nil || idsOf(list) != tt.want || total != tt.total {
			t.Errorf("%s: %q of %d, %v, want %q of %d", name, idsOf(list), total, err, tt.want, tt.total)
		}
	}
	list, total, err := s.Conversations(t.Context(), ConversationQuery{Metadata: object(`{"on":true}`)})
	if err != nil || idsOf(list) != "d d" || total != 2 {
		t.Errorf("of all tenants: %q of %d, %v", idsOf(list), total, err)
	}
	_, _, err = s.Conversations(t.Context(), ConversationQuery{IDs: make([]string, maxLimit+1)})
	wantKind(t, "too many ids", err, errs.Invalid)
	many := map[string]json.RawMessage{}
	for i := range canonical.MaxMetadata + 1 {
		many[fmt.Sprint(i)] = json.RawMessage(`1`)
	}
	_, _, err = s.Conversations(t.Context(), ConversationQuery{Metadata: many})
	wantKind(t, "too much metadata to look for", err, errs.Invalid)
	_, err = s.ChangeConversation(t.Context(), a.UID, func(c *conversation.Thread) error { c.Metadata = many; return nil })
	wantKind(t, "too much metadata", err, errs.Invalid)
	delete(many, "0")
	_, err = s.ChangeConversation(t.Context(), a.UID, func(c *conversation.Thread) error { c.Metadata = many; return nil })
	wantKind(t, "as much metadata as possible", err, nil)
}

// TestConversationOfOddText: what clients send can be stored, or is refused as their
// mistake; the store is not broken by it.
func TestConversationOfOddText(t *testing.T) {
	s, _ := fresh(t)
	for name, metadata := range map[string]map[string]json.RawMessage{
		"a NUL":           object(`{"\u0000":"\u0000"}`),
		"no UTF-8":        {"k": json.RawMessage("\"\xff\"")},
		"a name of 1 MB":  {strings.Repeat("k", 1<<20): json.RawMessage(`1`)},
		"half a pair":     object(`{"half":"\ud800"}`),
		"a name with ' ;": object(`{"'; --":"%_\\"}`),
	} {
		c := talk(t, s, "acme", name, func(c *conversation.Thread) { c.Metadata = metadata })
		list, total, err := s.Conversations(t.Context(), ConversationQuery{Metadata: c.Metadata})
		if err != nil || total != 1 || idsOf(list) != name {
			t.Errorf("%s: %q of %d, %v", name, idsOf(list), total, err)
		}
	}
	for name, edit := range map[string]func(*conversation.Thread){
		"metadata": func(c *conversation.Thread) { c.Metadata = map[string]json.RawMessage{"k": json.RawMessage(`{`)} },
		"config":   func(c *conversation.Thread) { c.Config = json.RawMessage(`]`) },
	} {
		c := conversation.Thread{UID: sandbox.NewUID(), ID: "x", Tenant: "acme"}
		edit(&c)
		wantKind(t, "no JSON in "+name, s.CreateConversation(t.Context(), c), errs.Invalid)
	}
}

func TestStaleConversations(t *testing.T) {
	s, c := fresh(t)
	start := c.Now()
	var uids []sandbox.UID
	for i := range 6 {
		uids = append(uids, talk(t, s, "acme", fmt.Sprint(i)).UID)
		c.advance(time.Minute)
	}
	talk(t, s, "beta", "old")
	if _, err := s.ChangeConversation(t.Context(), uids[1], func(c *conversation.Thread) error { c.Status = conversation.ThreadBusy; return nil }); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		before time.Time
		keep   int
		after  sandbox.UID
		limit  int
		want   string
	}{
		"none":           {start, -1, "", 0, ""},
		"idle":           {start.Add(2*time.Minute + time.Second), -1, "", 0, "0 2"}, // 1 is busy
		"beyond":         {start, 3, "", 0, "0 2"},                                   // of 5 that are not busy
		"beyond one":     {start, 1, "", 0, "0 2 3 4"},
		"beyond none":    {start, 0, "", 0, "0 2 3 4 5 old"},
		"both":           {start.Add(4 * time.Minute), 3, "", 0, "0 2 3"},
		"a page":         {start, 0, "", 2, "0 2"},
		"the next":       {start, 0, uids[2], 2, "3 4"},
		"none after all": {start, 1, uids[5], 0, ""},
	} {
		list, err := s.StaleConversations(t.Context(), tt.before, tt.keep, tt.after, tt.limit)
		if err != nil || ids(list) != tt.want {
			t.Errorf("%s: %q, %v, want %q", name, ids(list), err, tt.want)
		}
	}
}

// TestRemovedConversationLeavesNothing counts rows.
func TestRemovedConversationLeavesNothing(t *testing.T) {
	s, _ := fresh(t)
	c := talk(t, s, "acme", "a", with(`{"k":1}`))
	kept := talk(t, s, "acme", "b", with(`{"k":1}`))
	for _, uid := range []sandbox.UID{c.UID, kept.UID} {
		commit(t, s, CommitRequest{Thread: uid, State: messages("hello"), Head: true})
		if _, err := s.CreateRun(t.Context(), NewRun{Run: conversation.Run{ID: "r", Thread: uid, Secret: "hush"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RemoveConversation(t.Context(), c.UID); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"conversations", "conversation_metadata", "conversation_messages", "checkpoints", "runs"} {
		var n int
		if err := s.reads.Row(t.Context(), `SELECT COUNT(*) FROM `+table).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s has %d rows, %v, want that of the other thread", table, n, err)
		}
	}
	_, _, err := s.Commit(t.Context(), CommitRequest{Thread: c.UID, Checkpoint: conversation.Checkpoint{ID: "x"}, State: messages("y")})
	wantKind(t, "Commit", err, errs.NotFound)
	_, err = s.CreateRun(t.Context(), NewRun{Run: conversation.Run{ID: "r", Thread: c.UID}})
	wantKind(t, "CreateRun", err, errs.NotFound)
}
