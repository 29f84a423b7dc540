package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
)

func TestCrons(t *testing.T) {
	s, clock := fresh(t)
	ctx := t.Context()
	thread := conversation.Thread{UID: sandbox.NewUID(), ID: "t", Tenant: "acme"}
	if err := s.CreateConversation(ctx, thread); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := s.CreateAssistant(ctx, conversation.Assistant{ID: id, Tenant: "acme", Version: 1}); err != nil {
			t.Fatal(err)
		}
	}
	now := column.FromMicros(column.Micros(clock.Now()))
	c := conversation.Cron{
		ID: "c1", Tenant: "acme", Owner: "ann", Thread: thread.UID, Schedule: "* * * * *", Timezone: "Europe/Berlin", AssistantID: "a",
		Run:      conversation.CronRun{Request: conversation.RunRequest{Input: json.RawMessage(`{"messages":[]}`), Webhook: "https://x/"}, Metadata: object(`{"m":1}`), Multitask: "enqueue"},
		Metadata: object(`{"m":1}`), Keep: true, Enabled: true, EndTime: now.Add(time.Hour), Next: now.Add(time.Minute),
	}
	if err := s.CreateCron(ctx, c, 2); err != nil {
		t.Fatal(err)
	}
	want := c
	want.ThreadID, want.CreatedAt, want.UpdatedAt = "t", now, now
	if got, err := s.Cron(ctx, "acme", "c1"); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("Cron: %v\n%s", err, cmp.Diff(want, got))
	}
	_, err := s.Cron(ctx, "beta", "c1")
	wantKind(t, "Cron of another tenant", err, errs.NotFound)
	wantKind(t, "RemoveCron of another tenant", s.RemoveCron(ctx, "beta", "c1"), errs.NotFound)

	alone := conversation.Cron{ID: "c2", Tenant: "acme", AssistantID: "b", Schedule: "@daily", Next: now.Add(2 * time.Minute), Enabled: true}
	clock.advance(time.Second)
	if err := s.CreateCron(ctx, alone, 2); err != nil {
		t.Fatal(err)
	}
	alone.ID = "c3"
	wantKind(t, "one too many", s.CreateCron(ctx, alone, 2), errs.OverQuota)
	alone.AssistantID = "none"
	wantKind(t, "one of no assistant", s.CreateCron(ctx, alone, 0), errs.NotFound)
	alone.AssistantID, alone.Thread = "a", sandbox.NewUID()
	wantKind(t, "one of no thread", s.CreateCron(ctx, alone, 0), errs.NotFound)

	yes, no := true, false
	for _, tt := range []struct {
		q    CronQuery
		want string
	}{
		{CronQuery{}, "c1 c2"}, {CronQuery{Descending: true}, "c2 c1"}, {CronQuery{Limit: 1, Offset: 1}, "c2"}, {CronQuery{ThreadID: "t"}, "c1"},
		{CronQuery{AssistantID: "b"}, "c2"}, {CronQuery{Metadata: object(`{"m":1}`)}, "c1"}, {CronQuery{Enabled: &yes}, "c1 c2"}, {CronQuery{Enabled: &no}, ""},
		{CronQuery{SortBy: "thread_id"}, "c2 c1"}, {CronQuery{SortBy: "next_run_date", Descending: true}, "c2 c1"}, {CronQuery{SortBy: "end_time"}, "c2 c1"},
	} {
		tt.q.Tenant = "acme"
		if ids, _, err := s.CronIDs(ctx, tt.q); err != nil || strings.Join(ids, " ") != tt.want {
			t.Errorf("CronIDs(%+v) = %v, %v, want %s", tt.q, ids, err, tt.want)
		}
	}

	// Each time is given once, the one that is due for longest first.
	claim := func() (string, error) {
		c, err := s.ClaimCron(ctx, func(c *conversation.Cron) { c.LastAt, c.Next, c.Failure = c.Next, c.Next.Add(time.Hour), "begun" })
		return c.ID, err
	}
	_, err = claim()
	wantKind(t, "ClaimCron before the time", err, errs.NotFound)
	clock.advance(10 * time.Minute)
	for _, want := range []string{"c1", "c2"} {
		if id, err := claim(); id != want || err != nil {
			t.Errorf("ClaimCron = %s, %v, want %s", id, err, want)
		}
	}
	_, err = claim()
	wantKind(t, "ClaimCron of what was claimed", err, errs.NotFound)
	if next, err := s.NextCron(ctx); err != nil || !next.Equal(now.Add(time.Hour+time.Minute)) {
		t.Errorf("NextCron = %s, %v", next, err)
	}
	if err := s.EndCronClaim(ctx, conversation.Cron{ID: "c1", LastThread: "t", LastRun: "r"}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Cron(ctx, "acme", "c1"); err != nil || got.LastRun != "r" || got.LastThread != "t" || got.Failure != "" || !got.LastAt.Equal(now.Add(time.Minute)) {
		t.Errorf("Cron = %+v, %v", got, err)
	}
	if got, err := s.ChangeCron(ctx, "acme", "c2", func(c *conversation.Cron) error { c.Enabled = false; return nil }); err != nil || got.Enabled || got.Failure != "begun" {
		t.Errorf("ChangeCron = %+v, %v", got, err)
	}
	// A cron goes with its thread, and with its assistant.
	if err := s.RemoveConversation(ctx, thread.UID); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAssistant(ctx, "acme", "b"); err != nil {
		t.Fatal(err)
	}
	if ids, total, err := s.CronIDs(ctx, CronQuery{Tenant: "acme"}); err != nil || len(ids)+total > 0 {
		t.Errorf("CronIDs = %v of %d, %v", ids, total, err)
	}
	if next, err := s.NextCron(ctx); err != nil || !next.IsZero() {
		t.Errorf("NextCron = %s, %v", next, err)
	}
}
