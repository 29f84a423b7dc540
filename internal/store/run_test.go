package store

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store/column"
)

// changeRun changes a run alone.
func changeRun(ctx context.Context, s *Store, uid sandbox.UID, id string, change func(*conversation.Run) error) error {
	return s.ChangeRunAndThread(ctx, uid, id, func(r *conversation.Run, _ *conversation.Thread) error { return change(r) })
}

func begin(t testing.TB, s *Store, uid sandbox.UID, id string) conversation.Run {
	t.Helper()
	r, err := s.CreateRun(t.Context(), NewRun{Run: conversation.Run{ID: id, Thread: uid, Secret: "hush-" + id}})
	if err != nil {
		t.Fatalf("CreateRun %s: %v", id, err)
	}
	return r
}

func endAs(status conversation.RunStatus) func(*conversation.Run) error {
	return func(r *conversation.Run) error { r.Status = status; return nil }
}

func TestRuns(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	thread := talk(t, s, "acme", "a")
	other := talk(t, s, "beta", "a")
	want := conversation.Run{
		ID: "r1", Thread: thread.UID, AssistantID: "as", Metadata: object(`{"k":[1]}`), Multitask: conversation.MultitaskEnqueue,
		Request: conversation.RunRequest{
			Input: json.RawMessage(`{"messages":[]}`), Command: &conversation.Command{Resume: json.RawMessage(`{"decisions":[]}`)}, Tags: []string{"x"},
			Configurable: object(`{"chat_model":"m"}`), RecursionLimit: 3, Temporary: true,
		},
		Secret: "hush-5be00d21",
	}
	c.advance(time.Second)
	got, err := s.CreateRun(ctx, NewRun{Run: want, Change: func(c *conversation.Thread) error {
		c.Status = conversation.ThreadBusy
		return nil
	}})
	at := column.FromMicros(column.Micros(c.Now()))
	want.Secret, want.Seq, want.Status, want.CreatedAt, want.UpdatedAt = "", 1, conversation.RunPending, at, at
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("CreateRun: %v\n%s", err, diff)
	}
	if got, err := s.ConversationRun(ctx, thread.UID, "r1"); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("ConversationRun: %v\n%s", err, cmp.Diff(want, got))
	}
	if secret, err := s.RunSecret(ctx, thread.UID, "r1"); err != nil || secret != "hush-5be00d21" {
		t.Errorf("RunSecret = %q, %v", secret, err)
	}
	if now, err := s.ConversationOf(ctx, thread.UID); err != nil || now.Status != conversation.ThreadBusy || now.UpdatedAt != at {
		t.Errorf("the thread is %+v, %v", now, err)
	}
	_, err = s.CreateRun(ctx, NewRun{Run: want})
	wantKind(t, "CreateRun again", err, errs.Conflict)
	_, err = s.CreateRun(ctx, NewRun{
		Run: conversation.Run{ID: "r2", Thread: thread.UID}, Change: func(*conversation.Thread) error { return errs.E(errs.Invalid, "no") },
	})
	wantKind(t, "CreateRun with a change that fails", err, errs.Invalid)
	_, err = s.ConversationRun(ctx, thread.UID, "r2")
	wantKind(t, "ConversationRun of what was refused", err, errs.NotFound)
	if r := begin(t, s, other.UID, "r1"); r.Seq != 1 { // the id is free in another thread
		t.Errorf("its number is %d", r.Seq)
	}

	c.advance(time.Second)
	if err := changeRun(ctx, s, thread.UID, "r1", func(r *conversation.Run) error {
		r.ID, r.Thread, r.Seq, r.CreatedAt, r.Secret = "x", "y", 9, time.Time{}, "z"
		r.Status = conversation.RunRunning
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want.Status, want.UpdatedAt = conversation.RunRunning, column.FromMicros(column.Micros(c.Now()))
	if got, err := s.ConversationRun(ctx, thread.UID, "r1"); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("after ChangeRun: %v\n%s", err, cmp.Diff(want, got))
	}
	if secret, err := s.RunSecret(ctx, thread.UID, "r1"); err != nil || secret != "hush-5be00d21" {
		t.Errorf("RunSecret = %q, %v", secret, err)
	}
	if list, err := s.UnfinishedRuns(ctx); err != nil || len(list) != 2 || list[0].Thread != thread.UID || list[1].Thread != other.UID {
		t.Errorf("UnfinishedRuns = %+v, %v", list, err)
	}
	err = s.ChangeRunAndThread(ctx, thread.UID, "r1", func(r *conversation.Run, c *conversation.Thread) error {
		r.Status, r.Error = conversation.RunFailed, json.RawMessage(`{"error":"E"}`)
		c.Status, c.Error = conversation.ThreadFailed, r.Error
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ended, errRun := s.ConversationRun(ctx, thread.UID, "r1")
	now, err := s.ConversationOf(ctx, thread.UID)
	if err := errors.Join(errRun, err); err != nil || ended.Status != conversation.RunFailed || string(ended.Error) != `{"error":"E"}` || now.Status != conversation.ThreadFailed {
		t.Errorf("at the end %+v, %+v, %v", ended, now, err)
	}
	var sealed string
	if err := s.reads.Row(ctx, `SELECT secret FROM runs WHERE thread = $1`, thread.UID).Scan(&sealed); err != nil || sealed != "" {
		t.Errorf("the secret of a run that has ended is %q, %v", sealed, err)
	}
	if secret, err := s.RunSecret(ctx, thread.UID, "r1"); err != nil || secret != "" {
		t.Errorf("RunSecret = %q, %v", secret, err)
	}
	wantKind(t, "another end", changeRun(ctx, s, thread.UID, "r1", endAs(conversation.RunSuccess)), errs.WrongState)
	err = s.ChangeRunAndThread(ctx, thread.UID, "r1", func(r *conversation.Run, c *conversation.Thread) error {
		r.Status, c.Status = conversation.RunSuccess, conversation.ThreadIdle
		return nil
	})
	wantKind(t, "another end with the thread", err, errs.WrongState)
	if now, err := s.ConversationOf(ctx, thread.UID); err != nil || now.Status != conversation.ThreadFailed {
		t.Errorf("it changed the thread: %+v, %v", now, err)
	}
	wantKind(t, "metadata after the end", changeRun(ctx, s, thread.UID, "r1", func(r *conversation.Run) error { r.Metadata = nil; return nil }), nil)
	wantKind(t, "ChangeRun of none", changeRun(ctx, s, thread.UID, "x", endAs(conversation.RunSuccess)), errs.NotFound)
	wantKind(t, "RemoveRun of none", s.RemoveRun(ctx, thread.UID, "x", true), errs.NotFound)
	_, err = s.RunSecret(ctx, thread.UID, "x")
	wantKind(t, "RunSecret of none", err, errs.NotFound)
}

func TestRunLists(t *testing.T) {
	s, _ := fresh(t)
	thread := talk(t, s, "acme", "a")
	for _, id := range []string{"a", "b", "c", "d"} {
		begin(t, s, thread.UID, id)
	}
	if err := changeRun(t.Context(), s, thread.UID, "b", endAs(conversation.RunSuccess)); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveRun(t.Context(), thread.UID, "d", false); err != nil {
		t.Fatal(err)
	}
	if r := begin(t, s, thread.UID, "d"); r.Seq != 5 {
		t.Errorf("after a run was removed the next has the number %d, want 5", r.Seq)
	}
	for name, tt := range map[string]struct {
		q    RunQuery
		want string
	}{
		"all": {RunQuery{}, "dcba"}, "a page": {RunQuery{Limit: 2, Offset: 1}, "cb"}, "beyond": {RunQuery{Offset: 7}, ""},
		"pending": {RunQuery{Status: conversation.RunPending}, "dca"}, "the next": {RunQuery{Status: conversation.RunPending, Offset: 2}, "a"},
		"junk": {RunQuery{Status: "junk", Limit: -1, Offset: -1}, ""},
	} {
		list, err := s.Runs(t.Context(), thread.UID, tt.q)
		got := ""
		for _, r := range list {
			got += r.ID
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, tt.want)
		}
	}
}

// TestRolledBackRun takes a run back between others.
func TestRolledBackRun(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	thread := talk(t, s, "acme", "a")
	step := func(run, id, parent string, state []conversation.Entry) []conversation.Entry {
		t.Helper()
		_, state = commit(t, s, CommitRequest{
			Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: id, Parent: parent, RunID: run}, State: state, Head: true,
		})
		return state
	}
	begin(t, s, thread.UID, "r1")
	first := step("r1", "c1", "", messages("a", "b"))
	begin(t, s, thread.UID, "r2")
	second := step("r2", "c2", "c1", append(first, text("c")))
	second = step("r2", "c3", "c2", append(second[1:], text("d"), text("e")))
	// A client keeps one of its messages on a branch of its own.
	step("", "c4", "c1", []conversation.Entry{second[1]})
	count := func(table string) (n int) {
		if err := s.reads.Row(ctx, `SELECT COUNT(*) FROM `+table+` WHERE thread = $1`, thread.UID).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := s.RemoveRun(ctx, thread.UID, "r2", true); err != nil {
		t.Fatal(err)
	}
	now, err := s.ConversationOf(ctx, thread.UID)
	if err != nil || now.Head != "c4" {
		t.Errorf("the head on another branch became %q, %v", now.Head, err)
	}
	if a, b, c := count("checkpoints"), count("conversation_messages"), count("runs"); a != 2 || b != 3 || c != 1 {
		t.Errorf("%d checkpoints, %d messages and %d runs are left, want 2, 3 and 1", a, b, c)
	}
	if got := state(t, s, thread.UID, "c4"); got != "c" {
		t.Errorf("the kept message is %s", got)
	}

	begin(t, s, thread.UID, "r3")
	third := step("r3", "c5", "c1", append(first, text("f")))
	if third[2].Place != 6 {
		t.Errorf("a place is given again: %+v", third)
	}
	step("r3", "c6", "c5", append(third, text("g")))
	c.advance(time.Second)
	if err := s.RemoveRun(ctx, thread.UID, "r3", true); err != nil {
		t.Fatal(err)
	}
	now, err = s.ConversationOf(ctx, thread.UID)
	if err != nil || now.Head != "c4" || now.StateUpdatedAt != column.FromMicros(column.Micros(c.Now())) {
		t.Errorf("the thread is %+v, %v, want the head before the run, on another branch than it", now, err)
	}
	if got := state(t, s, thread.UID, "c1"); got != "a b" {
		t.Errorf("the state before the run is %s", got)
	}
	// What the run would have written afterwards is refused.
	_, _, err = s.Commit(ctx, CommitRequest{Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: "c7"}, State: third})
	wantKind(t, "a late commit", err, errs.Conflict)

	if err := s.RemoveRun(ctx, thread.UID, "r1", true); err != nil {
		t.Fatal(err)
	}
	if now, err = s.ConversationOf(ctx, thread.UID); err != nil || now.Head != "c4" {
		t.Errorf("without its first run the head is %q, %v", now.Head, err)
	}
}

// TestBusyThread: who ends a run is told of others, and a thread that has one is left
// alone.
func TestBusyThread(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	thread := talk(t, s, "acme", "a")
	begin(t, s, thread.UID, "r1")
	begin(t, s, thread.UID, "r2")
	for _, tt := range []struct {
		run  string
		busy bool
	}{{"r2", true}, {"r1", false}} {
		idle := func() (idle bool) {
			err := s.ChangeIdleConversation(ctx, thread.UID, func(*conversation.Thread) error { idle = true; return nil })
			if err != nil {
				t.Fatal(err)
			}
			return idle
		}
		if idle() {
			t.Errorf("before %s has ended, the thread is idle", tt.run)
		}
		var busy bool
		err := s.EndRun(ctx, thread.UID, tt.run, func(r *conversation.Run, _ *conversation.Thread, others bool) error {
			busy, r.Status = others, conversation.RunSuccess
			return nil
		})
		if err != nil || busy != tt.busy || idle() == busy {
			t.Errorf("EndRun of %s: others %t, %v", tt.run, busy, err)
		}
	}
}

// TestRolledBackFirstRun leaves a thread without a head.
func TestRolledBackFirstRun(t *testing.T) {
	s, _ := fresh(t)
	thread := talk(t, s, "acme", "a")
	begin(t, s, thread.UID, "r1")
	commit(t, s, CommitRequest{Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: "c1", RunID: "r1"}, State: messages("a"), Head: true})
	if err := s.RemoveRun(t.Context(), thread.UID, "r1", true); err != nil {
		t.Fatal(err)
	}
	if now, err := s.ConversationOf(t.Context(), thread.UID); err != nil || now.Head != "" {
		t.Errorf("the head is %q, %v", now.Head, err)
	}
}

// TestCopiedRunSecretIsNotOpened: a secret is bound to its run.
func TestCopiedRunSecretIsNotOpened(t *testing.T) {
	s, _ := fresh(t)
	thread := talk(t, s, "acme", "a")
	other := talk(t, s, "beta", "a")
	begin(t, s, thread.UID, "r1")
	begin(t, s, thread.UID, "r2")
	begin(t, s, other.UID, "r1")
	if err := s.update(t.Context(), relaxed, func(x *tx) error {
		_, err := x.exec(`UPDATE runs SET secret = (SELECT secret FROM runs WHERE thread = $1 AND id = 'r1')`, thread.UID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if secret, err := s.RunSecret(t.Context(), thread.UID, "r1"); err != nil || secret != "hush-r1" {
		t.Errorf("RunSecret = %q, %v", secret, err)
	}
	for _, r := range []conversation.Run{{Thread: thread.UID, ID: "r2"}, {Thread: other.UID, ID: "r1"}} {
		secret, err := s.RunSecret(t.Context(), r.Thread, r.ID)
		wantKind(t, "RunSecret of a copy: "+secret, err, errs.Internal)
	}
}

// TestAgentSecretsLeaveTheFiles looks for the secret of a run, and settings, in the
// raw files.
func TestAgentSecretsLeaveTheFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "cubby.db"), newClock())
	look := func(after string) {
		t.Helper()
		files, err := os.ReadDir(dir)
		if err != nil || len(files) == 0 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "hush-") {
				t.Errorf("after %s the value is in %s", after, f.Name())
			}
		}
	}
	thread := talk(t, s, "acme", "a")
	begin(t, s, thread.UID, "r1")
	set := func([]byte) ([]byte, error) { return []byte(`{"key":"hush-settings"}`), nil }
	if err := s.ChangeAgentSettings(t.Context(), "acme", set); err != nil {
		t.Fatal(err)
	}
	look("CreateRun")
	if err := changeRun(t.Context(), s, thread.UID, "r1", endAs(conversation.RunSuccess)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	look("Close")
}

func TestAgentSettings(t *testing.T) {
	where := somewhere(t)
	s := openAt(t, where, newClock())
	ctx := t.Context()
	want := func(s *Store, tenant, document string) {
		t.Helper()
		got, err := s.AgentSettings(ctx, tenant)
		if err != nil || string(got) != document || document == "" && got != nil {
			t.Errorf("AgentSettings of %q = %q, %v, want %q", tenant, got, err, document)
		}
	}
	set := func(s *Store, tenant, was, document string) error {
		return s.ChangeAgentSettings(ctx, tenant, func(old []byte) ([]byte, error) {
			if string(old) != was {
				t.Errorf("the settings of %q were %q, want %q", tenant, old, was)
			}
			if document == "" {
				return nil, nil
			}
			return []byte(document), nil
		})
	}
	want(s, "", "")
	wantKind(t, "the operator's", set(s, "", "", "{1}"), nil)
	wantKind(t, "a tenant's", set(s, "acme", "", "{2}"), nil)
	wantKind(t, "a tenant's again", set(s, "acme", "{2}", "{3}"), nil)
	want(s, "", "{1}")
	want(s, "acme", "{3}")
	want(s, "beta", "")
	wantKind(t, "a change that fails", s.ChangeAgentSettings(ctx, "acme", func([]byte) ([]byte, error) { return nil, errs.E(errs.Invalid, "no") }), errs.Invalid)
	want(s, "acme", "{3}")
	wantKind(t, "none", set(s, "acme", "{3}", ""), nil)
	want(s, "acme", "")

	// A copy for another tenant is not opened, nor anything with another key.
	if err := s.update(ctx, durable, func(x *tx) error {
		_, err := x.exec(`INSERT INTO agent_settings (tenant, document, updated_at) SELECT 'acme', document, updated_at FROM agent_settings WHERE tenant = ''`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, err := s.AgentSettings(ctx, "acme")
	wantKind(t, "a copy", err, errs.Internal)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if where.Seal, err = seal.NewKey(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(ctx, where); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.AgentSettings(ctx, "")
	if wantKind(t, "with another key", err, errs.Internal); errs.Public(err).Hint == "" {
		t.Error("nothing says what to do")
	}
	wantKind(t, "ChangeAgentSettings with another key", set(s, "", "", "{4}"), errs.Internal)
	if err := s.RemoveAgentSettings(ctx, ""); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "RemoveAgentSettings again", s.RemoveAgentSettings(ctx, ""), nil)
	wantKind(t, "ChangeAgentSettings of none", set(s, "", "", "{4}"), nil)
	want(s, "", "{4}")
}
