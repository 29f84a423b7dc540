package store

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// text is a message that has no place.
func text(content string) conversation.Entry {
	quoted, _ := json.Marshal(content) // a string
	return conversation.Entry{Message: conversation.Message{Type: conversation.Human, ID: "m-" + content[:min(len(content), 20)], Content: quoted}}
}

func messages(contents ...string) (list []conversation.Entry) {
	for _, content := range contents {
		list = append(list, text(content))
	}
	return list
}

func refsOf(places ...int64) (r conversation.Refs) {
	for _, place := range places {
		r.Add(place)
	}
	return r
}

// commit makes a step; without an id the checkpoint has a new one.
func commit(t testing.TB, s *Store, r CommitRequest) (conversation.Checkpoint, []conversation.Entry) {
	t.Helper()
	if r.Checkpoint.ID == "" {
		r.Checkpoint.ID = conversation.NewID()
	}
	c, state, err := s.Commit(t.Context(), r)
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return c, state
}

// state reads the messages of a checkpoint: their contents.
func state(t testing.TB, s *Store, uid sandbox.UID, id string) string {
	t.Helper()
	c, err := s.Checkpoint(t.Context(), uid, id)
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.Messages(t.Context(), uid, c.Messages)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range list {
		all = append(all, string(m.Message.Content))
	}
	return strings.ReplaceAll(strings.Join(all, " "), `"`, "")
}

func TestCommit(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	thread := talk(t, s, "acme", "a")
	other := talk(t, s, "acme", "b")
	c.advance(time.Second)
	failed := "it broke"
	want := conversation.Checkpoint{
		ID: "c1", Source: conversation.SourceLoop, Step: -1, Next: []string{conversation.NodeAgent}, RunID: "r",
		Tasks:    []conversation.Task{{ID: "t", Name: "agent", Error: &failed, Interrupts: []conversation.Interrupt{{ID: "i", Value: json.RawMessage(`{"a":1}`)}}}},
		Metadata: object(`{"k":"v"}`),
	}
	message := conversation.Message{
		Type: conversation.AI, ID: "m", Content: json.RawMessage(`[{"type":"text","text":"x"}]`),
		ToolCalls: []conversation.ToolCall{{Name: "f", Args: json.RawMessage(`{}`), ID: "1", Type: "tool_call"}},
	}
	made, placed := commit(t, s, CommitRequest{Thread: thread.UID, Checkpoint: want, State: []conversation.Entry{{Message: message}, text("b")}})
	want.CreatedAt = column.FromMicros(column.Micros(c.Now()))
	want.Messages = refsOf(1, 2)
	refs := cmp.Comparer(func(a, b conversation.Refs) bool { return a.String() == b.String() })
	if diff := cmp.Diff(want, made, refs); diff != "" {
		t.Errorf("Commit:\n%s", diff)
	}
	got, err := s.Checkpoint(ctx, thread.UID, "c1")
	if diff := cmp.Diff(want, got, refs); err != nil || diff != "" {
		t.Errorf("Checkpoint: %v\n%s", err, diff)
	}
	if placed[0].Place != 1 || placed[1].Place != 2 {
		t.Errorf("places %+v", placed)
	}
	list, err := s.Messages(ctx, thread.UID, want.Messages)
	if err != nil || len(list) != 2 || cmp.Diff(conversation.Entry{Place: 1, Message: message}, list[0]) != "" {
		t.Errorf("Messages = %+v, %v", list, err)
	}
	if now, err := s.ConversationOf(ctx, thread.UID); err != nil || cmp.Diff(thread, now) != "" {
		t.Errorf("a commit that is not the head changed the thread: %v\n%s", err, cmp.Diff(thread, now))
	}

	// One stays, one is replaced, two are new.
	second, placed := commit(t, s, CommitRequest{
		Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: "c2", Parent: "c1"}, Head: true,
		State:  []conversation.Entry{text("x"), placed[1], text("y"), placed[0]},
		Change: func(c *conversation.Thread) error { c.Status = conversation.ThreadBusy; return nil },
	})
	if second.Messages.String() != "3,2,4,1" || placed[2].Place != 4 {
		t.Errorf("the places are %s", second.Messages)
	}
	if got := state(t, s, thread.UID, "c2"); got != "x b y [{type:text,text:x}]" {
		t.Errorf("the state is %s", got)
	}
	now, err := s.ConversationOf(ctx, thread.UID)
	if at := column.FromMicros(column.Micros(c.Now())); err != nil || now.Head != "c2" || now.Status != conversation.ThreadBusy || now.StateUpdatedAt != at || now.UpdatedAt != at {
		t.Errorf("the thread is %+v, %v", now, err)
	}

	for name, tt := range map[string]struct {
		r    CommitRequest
		want error
	}{
		"an id again":           {CommitRequest{Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: "c1"}, State: messages("lost")}, errs.Conflict},
		"no such thread":        {CommitRequest{Thread: "x", Checkpoint: conversation.Checkpoint{ID: "c3"}}, errs.NotFound},
		"a missing message":     {CommitRequest{Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: "c3"}, State: []conversation.Entry{{Place: 5}, text("lost")}}, errs.Conflict},
		"one of another thread": {CommitRequest{Thread: other.UID, Checkpoint: conversation.Checkpoint{ID: "c3"}, State: []conversation.Entry{{Place: 1}}}, errs.Conflict},
		"a refused change": {CommitRequest{
			Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: "c3"}, State: messages("lost"),
			Change: func(*conversation.Thread) error { return errs.E(errs.WrongState, "no") },
		}, errs.WrongState},
	} {
		_, _, err := s.Commit(ctx, tt.r)
		wantKind(t, name, err, tt.want)
	}
	// Nothing of these is left.
	last, _ := commit(t, s, CommitRequest{Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: "c3"}, State: messages("z")})
	if last.Messages.String() != "5" || len(last.Next) != 0 {
		t.Errorf("afterwards %+v", last)
	}
	_, err = s.Checkpoint(ctx, other.UID, "c1")
	wantKind(t, "a checkpoint of another thread", err, errs.NotFound)
	_, err = s.Messages(ctx, thread.UID, refsOf(5, 6))
	wantKind(t, "Messages where one is missing", err, errs.Internal)
}

// TestStateInManyPieces reads and adds to states whose messages are in many spans.
func TestStateInManyPieces(t *testing.T) {
	s, _ := fresh(t)
	thread := talk(t, s, "acme", "a")
	var contents []string
	for i := range 60 {
		contents = append(contents, fmt.Sprint(i))
	}
	_, all := commit(t, s, CommitRequest{Thread: thread.UID, State: messages(contents...)})
	for _, step := range []int{1, 2, 3, 7, 29, 59} {
		var some []conversation.Entry
		var want []string
		for i := 0; i < len(all); i += step {
			some, want = append(some, all[i]), append(want, contents[i])
		}
		some, want = append(some, text("end"), all[1]), append(want, "end", "1")
		made, _ := commit(t, s, CommitRequest{Thread: thread.UID, State: some})
		if got := state(t, s, thread.UID, made.ID); got != strings.Join(want, " ") {
			t.Errorf("every %d: %s\nwant %s", step, got, want)
		}
	}
}

func TestCheckpoints(t *testing.T) {
	s, _ := fresh(t)
	thread := talk(t, s, "acme", "a")
	for i := range 7 {
		commit(t, s, CommitRequest{Thread: thread.UID, Checkpoint: conversation.Checkpoint{
			ID: fmt.Sprintf("c%d", (i*3)%7), Step: i, RunID: []string{"", "r", "q"}[i%3], Metadata: object(fmt.Sprintf(`{"odd":%t,"n":%d}`, i%2 == 1, i)),
		}})
	}
	for name, tt := range map[string]struct {
		q    CheckpointQuery
		want string
	}{
		"all":             {CheckpointQuery{}, "c6 c5 c4 c3 c2 c1 c0"},
		"a page":          {CheckpointQuery{Limit: 2}, "c6 c5"},
		"the next":        {CheckpointQuery{Limit: 2, Before: "c5"}, "c4 c3"},
		"before the last": {CheckpointQuery{Before: "c0"}, ""},
		"between":         {CheckpointQuery{Before: "c33"}, "c3 c2 c1 c0"},
		"of a run":        {CheckpointQuery{RunID: "r"}, "c5 c3"},
		"of a run, later": {CheckpointQuery{RunID: "r", Before: "c5"}, "c3"},
		"with metadata":   {CheckpointQuery{Metadata: object(`{"odd":true}`)}, "c3 c2 c1"},
		"a page of these": {CheckpointQuery{Metadata: object(`{"odd":true}`), Limit: 2}, "c3 c2"},
		"both":            {CheckpointQuery{Metadata: object(`{"odd":false,"n":4}`), RunID: "r"}, "c5"},
	} {
		list, err := s.Checkpoints(t.Context(), thread.UID, tt.q)
		var got []string
		for _, c := range list {
			got = append(got, c.ID)
		}
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, %v, want %s", name, got, err, tt.want)
		}
	}
	if list, err := s.Checkpoints(t.Context(), talk(t, s, "acme", "b").UID, CheckpointQuery{}); err != nil || len(list) > 0 {
		t.Errorf("of another thread: %v, %v", list, err)
	}
	c, err := s.AnnotateCheckpoint(t.Context(), thread.UID, "c3", object(`{"odd":"no","note":[1]}`))
	if err != nil || len(c.Metadata) != 3 || string(c.Metadata["odd"]) != `"no"` {
		t.Errorf("AnnotateCheckpoint = %+v, %v", c, err)
	}
	if got, err := s.Checkpoint(t.Context(), thread.UID, "c3"); err != nil || cmp.Diff(c.Metadata, got.Metadata) != "" {
		t.Errorf("Checkpoint = %+v, %v", got, err)
	}
	_, err = s.AnnotateCheckpoint(t.Context(), thread.UID, "c9", object(`{}`))
	wantKind(t, "AnnotateCheckpoint of none", err, errs.NotFound)
}

// TestCheckpointsBeyondABatch looks for metadata that few have, among many.
func TestCheckpointsBeyondABatch(t *testing.T) {
	s, _ := fresh(t)
	thread := talk(t, s, "acme", "a")
	for i := range 3 * checkpointBatch {
		commit(t, s, CommitRequest{Thread: thread.UID, Checkpoint: conversation.Checkpoint{
			ID: fmt.Sprintf("c%04d", i), Metadata: object(fmt.Sprintf(`{"rare":%t}`, i%250 == 0)),
		}})
	}
	list, err := s.Checkpoints(t.Context(), thread.UID, CheckpointQuery{Metadata: object(`{"rare":true}`)})
	if err != nil || len(list) != 3 || list[0].ID != "c0500" || list[2].ID != "c0000" {
		t.Errorf("%d are found, %v", len(list), err)
	}
}

// TestThreadsStayLinear makes a thread of 1000 messages in 2000 steps: its
// checkpoints do not repeat its messages.
func TestThreadsStayLinear(t *testing.T) {
	s, _ := fresh(t)
	thread := talk(t, s, "acme", "a")
	size := func() (bytes int) {
		if err := s.reads.Row(t.Context(), `SELECT SUM(LENGTH(id) + LENGTH(parent) + LENGTH(nodes) + LENGTH(tasks) + LENGTH(metadata) + LENGTH(messages))
				FROM checkpoints`).Scan(&bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	var list []conversation.Entry
	first, half := 0, 0
	for i := range 2000 {
		if i%2 == 0 {
			list = append(list, text(strings.Repeat("x", 200)))
		}
		_, list = commit(t, s, CommitRequest{Thread: thread.UID, State: list, Checkpoint: conversation.Checkpoint{
			ID: conversation.NewID(), Parent: conversation.NewID(), Metadata: object(`{"source":"loop"}`),
		}})
		switch i {
		case 199:
			first = size()
		case 999:
			half = size()
		}
	}
	all := size()
	if all-half > 6*first || all > 400_000 {
		t.Errorf("200 checkpoints take %d bytes, 1000 %d, 2000 %d", first, half, all)
	}
	var n, bytes int
	if err := s.reads.Row(t.Context(), `SELECT COUNT(*), SUM(LENGTH(body)) FROM conversation_messages`).Scan(&n, &bytes); err != nil || n != 1000 || bytes > 600_000 {
		t.Errorf("%d messages of %d bytes, %v", n, bytes, err)
	}
}

func TestLargeMessages(t *testing.T) {
	s, _ := fresh(t)
	thread := talk(t, s, "acme", "a")
	content := strings.Repeat("0123456789abcdef", 20<<20/16)
	made, _ := commit(t, s, CommitRequest{Thread: thread.UID, State: messages("before", content, "after"), Durable: true})
	list, err := s.Messages(t.Context(), thread.UID, made.Messages)
	if err != nil || len(list) != 3 || string(list[1].Message.Content) != `"`+content+`"` || string(list[2].Message.Content) != `"after"` {
		t.Errorf("%d messages, %v", len(list), err)
	}
}

// TestConcurrentCommits: places are given once.
func TestConcurrentCommits(t *testing.T) {
	s, _ := fresh(t)
	thread := talk(t, s, "acme", "a")
	var mu sync.Mutex
	taken := map[int64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				_, list, err := s.Commit(t.Context(), CommitRequest{
					Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: conversation.NewID()}, State: messages("a", "b"), Head: true,
				})
				if err != nil {
					t.Errorf("Commit: %v", err)
					return
				}
				mu.Lock()
				for _, m := range list {
					if taken[m.Place] {
						t.Errorf("place %d is given twice", m.Place)
					}
					taken[m.Place] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(taken) != 160 || !taken[1] || !taken[160] {
		t.Errorf("%d places are taken", len(taken))
	}
}

// TestBrokenStepLeavesNothing fails each write of a commit, and of taking a run back:
// the thread is as it was, and the same call works when the database does.
func TestBrokenStepLeavesNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "cubby.db"), newClock())
	ctx := t.Context()
	thread := talk(t, s, "acme", "a", with(`{"k":1}`))
	begin(t, s, thread.UID, "r1")
	_, list := commit(t, s, CommitRequest{Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: "c0", RunID: "r1"}, State: messages("a"), Head: true})
	rows := func() (all string) {
		for _, query := range []string{
			`SELECT uid || head || metadata || last_place || updated_at FROM conversations`, `SELECT name || value FROM conversation_metadata`,
			`SELECT place || body FROM conversation_messages`, `SELECT id || messages FROM checkpoints`, `SELECT id || seq FROM runs`,
		} {
			rows, err := s.reads.Rows(ctx, query)
			lines, err := engine.Collect(rows, err, func(r engine.Row) (line string, err error) { return line, r.Scan(&line) })
			if err != nil {
				t.Fatal(err)
			}
			all += strings.Join(lines, "\n") + "\n"
		}
		return all
	}
	broken := func(write string, call func() error) {
		t.Helper()
		do := func(statement string) {
			t.Helper()
			if _, err := s.engine.Write.ExecContext(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		before := rows()
		do(`CREATE TRIGGER broken BEFORE ` + write + ` BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		if err := call(); err == nil {
			t.Errorf("%s fails and the call does not", write)
		}
		do(`DROP TRIGGER broken`)
		if diff := cmp.Diff(before, rows()); diff != "" {
			t.Errorf("after a broken %s:\n%s", write, diff)
		}
	}
	step := func() error {
		_, _, err := s.Commit(ctx, CommitRequest{
			Thread: thread.UID, Checkpoint: conversation.Checkpoint{ID: "c1", RunID: "r1"}, State: append(list, text("b"), text("c")), Head: true,
			Change: func(c *conversation.Thread) error { c.Metadata["k"] = json.RawMessage(`2`); return nil },
		})
		return err
	}
	for _, write := range []string{
		"UPDATE ON conversations", "INSERT ON conversation_messages WHEN NEW.place = 3", "INSERT ON checkpoints",
		"DELETE ON conversation_metadata", "INSERT ON conversation_metadata",
	} {
		broken(write, step)
	}
	if err := step(); err != nil {
		t.Fatal(err)
	}
	back := func() error { return s.RemoveRun(ctx, thread.UID, "r1", true) }
	for _, write := range []string{"DELETE ON runs", "DELETE ON checkpoints WHEN OLD.id = 'c1'", "DELETE ON conversation_messages", "UPDATE ON conversations"} {
		broken(write, back)
	}
	if err := back(); err != nil {
		t.Fatal(err)
	}
	another := func() error {
		_, err := s.CreateRun(ctx, NewRun{Run: conversation.Run{ID: "r2", Thread: thread.UID}, Change: func(c *conversation.Thread) error {
			c.Metadata["k"] = json.RawMessage(`3`)
			return nil
		}})
		return err
	}
	for _, write := range []string{"INSERT ON runs", "UPDATE ON conversations", "INSERT ON conversation_metadata"} {
		broken(write, another)
	}
	if err := another(); err != nil {
		t.Fatal(err)
	}
}
