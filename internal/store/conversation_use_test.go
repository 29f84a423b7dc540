package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// recount is the use of all threads, counted anew.
const recount = `SELECT c.uid, c.tenant, 1024 + octet_length(c.metadata) + octet_length(c.config) + octet_length(c.error)
	+ COALESCE((SELECT SUM(256 + octet_length(m.body)) FROM conversation_messages m WHERE m.thread = c.uid), 0)
	+ COALESCE((SELECT SUM(512 + octet_length(p.nodes) + octet_length(p.tasks) + octet_length(p.metadata) + octet_length(p.messages) + octet_length(p.approval)) FROM checkpoints p WHERE p.thread = c.uid), 0)
	+ COALESCE((SELECT SUM(512 + octet_length(r.request) + octet_length(r.metadata) + octet_length(r.error)) FROM runs r WHERE r.thread = c.uid), 0)
	FROM conversations c`

// TestUseOfConversations: whatever is done to threads, what they use is known.
func TestUseOfConversations(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	same := func(after string, want int) {
		t.Helper()
		rows, err := s.reads.Rows(ctx, recount)
		all, err := engine.Collect(rows, err, func(r engine.Row) (u ConversationUse, err error) { return u, r.Scan(&u.Thread, &u.Tenant, &u.Bytes) })
		if err != nil {
			t.Fatal(err)
		}
		of := map[ConversationUse]bool{}
		for _, u := range all {
			of[u] = true
		}
		uses, err := s.ConversationUses(ctx, nil)
		if err != nil || len(uses) != want || len(all) != want {
			t.Fatalf("after %s: uses %+v, %v, want those of %d threads", after, uses, err, want)
		}
		for _, u := range uses {
			if !of[u] {
				t.Errorf("after %s: %+v, want one of %+v", after, u, all)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := talk(t, s, "acme", "a", with(`{"k":1}`))
	b := talk(t, s, "beta", "b")
	same("two creates", 2)
	_, err := s.ChangeConversation(ctx, a.UID, func(c *conversation.Thread) error {
		c.Metadata, c.Error = object(`{"k":"ü"}`), json.RawMessage(`{"error":"x"}`)
		return nil
	})
	must(err)
	same("a change", 2)
	_, err = s.CreateRun(ctx, NewRun{Run: conversation.Run{ID: "r1", Thread: a.UID, Metadata: object(`{"x":1}`)}})
	must(err)
	first, list := commit(t, s, CommitRequest{Thread: a.UID, State: messages("hello", "wörld"), Head: true, Checkpoint: conversation.Checkpoint{RunID: "r1"}})
	commit(t, s, CommitRequest{Thread: a.UID, State: append(list, text(strings.Repeat("x", 1000))), Head: true, Checkpoint: conversation.Checkpoint{RunID: "r1"}})
	same("a run and its steps", 2)
	_, err = s.AnnotateCheckpoint(ctx, a.UID, first.ID, object(`{"note":"n"}`))
	must(err)
	first.Tasks, first.Approval = []conversation.Task{{ID: "t", Name: "tools"}}, &conversation.Approval{}
	must(s.PauseCheckpoint(ctx, a.UID, first))
	must(s.ChangeRunAndThread(ctx, a.UID, "r1", func(r *conversation.Run, c *conversation.Thread) error {
		r.Status, r.Error = conversation.RunFailed, json.RawMessage(`{"error":"y"}`)
		c.Status = conversation.ThreadFailed
		return nil
	}))
	same("notes and an end", 2)
	must(s.RemoveRun(ctx, a.UID, "r1", true))
	same("a run that is taken back", 2)
	acme := "acme"
	if uses, err := s.ConversationUses(ctx, &acme); err != nil || len(uses) != 1 || uses[0].Thread != a.UID {
		t.Errorf("of a tenant: %+v, %v", uses, err)
	}
	must(s.RemoveConversation(ctx, b.UID))
	same("a removal", 1)
	must(s.CreateAssistant(ctx, conversation.Assistant{Tenant: "acme", ID: "x", Metadata: object(`{"k":"` + strings.Repeat("x", 1000) + `"}`)}))
	if n, err := s.AssistantBytes(ctx, "acme"); err != nil || n < 2500 || n > 3000 { // with its version
		t.Errorf("AssistantBytes = %d, %v", n, err)
	}
	if n, err := s.AssistantBytes(ctx, "beta"); err != nil || n != 0 {
		t.Errorf("AssistantBytes of nobody = %d, %v", n, err)
	}
}

// TestTrimmedConversation: a thread keeps its state and loses its history, unless
// something goes on in it or waits.
func TestTrimmedConversation(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	a := talk(t, s, "acme", "a")
	if _, err := s.CreateRun(ctx, NewRun{Run: conversation.Run{ID: "r1", Thread: a.UID}}); err != nil {
		t.Fatal(err)
	}
	_, list := commit(t, s, CommitRequest{Thread: a.UID, State: messages("one", "two"), Head: true})
	head, list := commit(t, s, CommitRequest{Thread: a.UID, State: append(list[1:], text("three")), Head: true})
	_, err := s.TrimConversation(ctx, a.UID)
	wantKind(t, "one with a run that goes on", err, errs.WrongState)
	end := func(status conversation.ThreadStatus) {
		t.Helper()
		if err := s.ChangeRunAndThread(ctx, a.UID, "r1", func(r *conversation.Run, c *conversation.Thread) error {
			r.Status, c.Status = conversation.RunSuccess, status
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	end(conversation.ThreadInterrupted)
	c.advance(time.Hour)
	if resting, err := s.RestingConversations(ctx, "acme", c.Now()); err != nil || len(resting) > 0 {
		t.Errorf("one that waits for an answer rests: %v, %v", resting, err)
	}
	_, err = s.TrimConversation(ctx, a.UID)
	wantKind(t, "one that waits for an answer", err, errs.WrongState)
	end(conversation.ThreadIdle)
	if resting, err := s.RestingConversations(ctx, "acme", c.Now()); err != nil || len(resting) > 0 {
		t.Errorf("one that was just used rests: %v, %v", resting, err)
	}
	c.advance(time.Hour)
	if resting, err := s.RestingConversations(ctx, "acme", c.Now()); err != nil || len(resting) != 1 || resting[0] != a.UID {
		t.Errorf("resting: %v, %v", resting, err)
	}
	freed, err := s.TrimConversation(ctx, a.UID)
	if err != nil || freed < 1024 {
		t.Errorf("TrimConversation = %d, %v", freed, err)
	}
	kept, err := s.Checkpoints(ctx, a.UID, CheckpointQuery{})
	if err != nil || len(kept) != 1 || kept[0].ID != head.ID {
		t.Errorf("checkpoints: %+v, %v", kept, err)
	}
	got, err := s.Messages(ctx, a.UID, head.Messages)
	if err != nil || len(got) != len(list) {
		t.Errorf("the state has %d messages, %v, want %d", len(got), err, len(list))
	}
	if runs, err := s.Runs(ctx, a.UID, RunQuery{}); err != nil || len(runs) != 0 {
		t.Errorf("runs: %+v, %v", runs, err)
	}
	var n int
	if err := s.reads.Row(ctx, `SELECT COUNT(*) FROM conversation_messages`).Scan(&n); err != nil || n != len(list) {
		t.Errorf("%d messages are left, %v", n, err)
	}
	if freed, err = s.TrimConversation(ctx, a.UID); err != nil || freed != 0 {
		t.Errorf("TrimConversation again = %d, %v", freed, err)
	}
}
