package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// step is one call of the store.
type step struct {
	name    string
	durable bool // the call must be on disk when it returns
	call    func() error
}

// tour calls every method that reads or writes, in an order that works.
func tour(ctx context.Context, s *Store, id string) []step {
	b := box(id)
	b.Tenant, b.Spec.External.UserID = "acme", "u"
	b.Spec.Labels = map[string]string{"k": "v", "l": "w"}
	heir := box(id)
	heir.Tenant, heir.Spec.External.UserID = "acme", "u"
	heir.DiskUID = b.UID
	e := sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID, Spec: sandbox.ExecSpec{Env: map[string]string{"K": "v"}}}
	var claim, second *Claim
	var steps []step
	add := func(name string, durable bool, call func() error) { steps = append(steps, step{name, durable, call}) }
	read := func(name string, call func() error) { add(name, false, call) }
	list := func(name string, q Query) {
		read("Sandboxes by "+name, func() error { _, _, err := s.Sandboxes(ctx, q); return err })
		q.After = string(b.UID)
		read("Sandboxes by "+name+", next page", func() error { _, _, err := s.Sandboxes(ctx, q); return err })
	}

	add("Idempotency", false, func() (err error) { claim, err = s.Idempotency(ctx, "p", id, "h"); return err })
	add("CreateSandbox", false, func() error { return s.CreateSandbox(ctx, b) })
	add("SetHandle", false, func() error { return s.SetHandle(ctx, b.UID, []byte("h")) })
	add("Move", true, func() error {
		_, err := s.Move(ctx, b.UID, sandbox.Running, Change{Claim: claim})
		return err
	})
	add("MoveAll", true, func() error {
		_, err := s.MoveAll(ctx, []Moving{{UID: b.UID, To: sandbox.Stopped, Change: Change{Why: asked}}})
		return err
	})
	add("Restate", true, func() error {
		_, err := s.Restate(ctx, b.UID, Change{Why: sandbox.Why{Cause: sandbox.CauseDied, Reason: "r"}})
		return err
	})
	add("Move to running", true, func() error { _, err := s.Move(ctx, b.UID, sandbox.Running, Change{}); return err })
	add("UpdateSpec", true, func() error {
		_, err := s.UpdateSpec(ctx, b.UID, func(*sandbox.Spec) error { return nil })
		return err
	})
	kept := sandbox.Snapshot{UID: sandbox.NewUID(), Name: "s" + id, Tenant: "acme", Spec: sandbox.Spec{Env: map[string]string{"K": "v"}}}
	add("CreateSnapshot", true, func() error { return s.CreateSnapshot(ctx, kept) })
	add("ReadySnapshot", true, func() error { return s.ReadySnapshot(ctx, kept.UID, 1, 2) })
	read("SnapshotByUID", func() error { _, err := s.SnapshotByUID(ctx, kept.UID); return err })
	for name, tenant := range map[string]*string{"of a tenant": &kept.Tenant, "of any": nil} {
		read("Snapshot "+name, func() error { _, err := s.Snapshot(ctx, tenant, kept.Name); return err })
		read("Snapshots "+name, func() error { _, _, err := s.Snapshots(ctx, SnapshotQuery{Tenant: tenant, Source: "x"}); return err })
		read("Snapshots "+name+", next page", func() error {
			_, _, err := s.Snapshots(ctx, SnapshotQuery{Tenant: tenant, Before: kept.UID})
			return err
		})
	}
	read("SnapshotUse", func() error { _, err := s.SnapshotUse(ctx, kept.Tenant); return err })
	read("UnreadySnapshots", func() error { _, err := s.UnreadySnapshots(ctx); return err })
	add("RemoveSnapshot", true, func() error { return s.RemoveSnapshot(ctx, kept.UID) })
	add("DropSnapshot", true, func() error { return s.DropSnapshot(ctx, kept.UID) })
	read("Holdings", func() error { _, err := s.Holdings(ctx, b.Tenant); return err })
	add("Touch", false, func() error { return s.Touch(ctx, b.UID, s.now()) })
	add("CreateExec", false, func() error { _, err := s.CreateExec(ctx, e); return err })
	read("ExecEnv", func() error { _, err := s.ExecEnv(ctx, b.UID, 1); return err })
	add("StartExec", false, func() error { return s.StartExec(ctx, b.UID, 1, s.now()) })
	read("UnfinishedExecs", func() error { _, err := s.UnfinishedExecs(ctx); return err })
	add("CancelExec", true, func() error { return s.CancelExec(ctx, b.UID, 1, s.now()) })
	read("CancelledExecs", func() error { _, err := s.CancelledExecs(ctx); return err })
	add("FinishExec", false, func() error {
		_, err := s.FinishExec(ctx, b.UID, 1, sandbox.Exit{}, sandbox.ExecDone, s.now())
		return err
	})
	add("FinishExec again", false, func() error {
		_, err := s.FinishExec(ctx, b.UID, 1, sandbox.Exit{}, sandbox.ExecDone, s.now())
		return err
	})
	add("AppendEvent", false, func() error { _, err := s.AppendEvent(ctx, sandbox.Event{Box: b.UID, Kind: "k"}); return err })
	read("Sandbox", func() error { _, err := s.Sandbox(ctx, b.ID); return err })
	read("SandboxByUID", func() error { _, err := s.SandboxByUID(ctx, b.UID); return err })
	read("CountSandboxes", func() error { _, err := s.CountSandboxes(ctx, sandbox.Running); return err })
	read("Exec", func() error { _, err := s.Exec(ctx, b.UID, 1); return err })
	read("Execs", func() error { _, err := s.Execs(ctx, b.UID, ExecQuery{}); return err })
	read("Execs unfinished", func() error { _, err := s.Execs(ctx, b.UID, ExecQuery{Unfinished: true}); return err })
	read("Events", func() error { _, err := s.Events(ctx, b.UID, 0, 0); return err })
	read("Events of all", func() error { _, err := s.Events(ctx, "", 0, 0); return err })
	list("nothing", Query{})
	list("tenant", Query{Tenant: &b.Tenant})
	list("state", Query{States: []sandbox.State{sandbox.Running}})
	list("label", Query{Labels: map[string]string{"k": "v"}})
	list("labels", Query{Labels: b.Spec.Labels})
	list("user", Query{External: sandbox.External{UserID: "u"}})
	list("project", Query{External: sandbox.External{ProjectID: "p"}})
	list("tenant and thread", Query{Tenant: &b.Tenant, Thread: "t"})
	read("LinkKey of none", func() error { _, err := s.LinkKey(ctx, b.UID, nil); return err })
	add("LinkKey", true, func() error { _, err := s.LinkKey(ctx, b.UID, []byte("k")); return err })
	add("DropLinkKey", true, func() error { return s.DropLinkKey(ctx, b.UID) })
	add("AddExports", true, func() error { return s.AddExports(ctx, b.UID, []Export{{Path: "/workspace/a"}}) })
	read("Exports", func() error { _, err := s.Exports(ctx, b.UID); return err })
	read("Export", func() error { _, err := s.Export(ctx, b.UID, "/workspace/a"); return err })
	read("Threads", func() error { _, err := s.Threads(ctx, b.Tenant); return err })
	read("AllThreads", func() error { _, err := s.AllThreads(ctx); return err })
	list("label, tenant and state", Query{Labels: map[string]string{"k": "v"}, Tenant: &b.Tenant, States: []sandbox.State{sandbox.Running}})
	add("MakeTenant", true, func() error { _, err := s.MakeTenant(ctx, "t-"+id); return err })
	add("ReadyTenant", true, func() error { return s.ReadyTenant(ctx, "t-"+id) })
	read("Tenant", func() error { _, err := s.Tenant(ctx, "t-"+id); return err })
	read("Tenants", func() error { _, err := s.Tenants(ctx, "", 0); return err })
	read("TenantUse", func() error { _, err := s.TenantUse(ctx, "t-"+id); return err })
	add("SetSecret", true, func() error { _, err := s.SetSecret(ctx, "t-"+id, "K", "v", 9); return err })
	add("SetSecret again", true, func() error { _, err := s.SetSecret(ctx, "t-"+id, "K", "w", 1); return err })
	read("Secrets", func() error { _, err := s.Secrets(ctx, "t-"+id); return err })
	read("SecretValues", func() error { _, err := s.SecretValues(ctx, "t-"+id, []string{"K", "L"}); return err })
	add("RemoveSecret", true, func() error { return s.RemoveSecret(ctx, "t-"+id, "K") })
	add("DropTenant", true, func() error { _, err := s.DropTenant(ctx, "t-"+id); return err })

	add("Move to Destroyed, keeping the disk", true, func() error {
		_, err := s.Move(ctx, b.UID, sandbox.Destroyed, Change{KeepDisk: true})
		return err
	})
	read("KeptDisks", func() error { _, err := s.KeptDisks(ctx); return err })
	read("TakeKeptDisk", func() error { _, _, err := s.TakeKeptDisk(ctx, b.ID.Key(), b.Tenant, b.Spec.External); return err })
	add("CreateSandbox with a kept disk", false, func() error { return s.CreateSandbox(ctx, heir) })
	add("Move to Failed", true, func() error { _, err := s.Move(ctx, heir.UID, sandbox.Failed, Change{}); return err })
	add("CreateSandbox after a failed one", false, func() error { return s.CreateSandbox(ctx, box(id)) })
	read("DestroyedSandbox", func() error { _, err := s.DestroyedSandbox(ctx, b.ID, &b.Tenant); return err })
	read("DestroyedSandbox of any tenant", func() error { _, err := s.DestroyedSandbox(ctx, b.ID, nil); return err })
	add("KeepDisk", true, func() error { return s.KeepDisk(ctx, KeptDisk{IDKey: b.ID.Key(), DiskUID: b.UID}) })
	add("DropKeptDisk", true, func() error { _, _, err := s.DropKeptDisk(ctx, b.ID.Key()); return err })
	add("Idempotency, known", false, func() error { _, err := s.Idempotency(ctx, "p", id, "h"); return err })
	add("Idempotency, another", false, func() (err error) { second, err = s.Idempotency(ctx, "p", id+"2", "h"); return err })
	add("Complete", true, func() error { return second.Complete(ctx, "r") })
	add("Idempotency, a third", false, func() (err error) { claim, err = s.Idempotency(ctx, "p", id+"3", "h"); return err })
	add("Release", false, func() error { return claim.Release(ctx) })
	read("HistoryBytes", func() error { _, err := s.HistoryBytes(ctx); return err })
	add("EvictHistory", false, func() error { _, err := s.EvictHistory(ctx, b.Tenant, s.now().Add(1)); return err })
	add("Prune", false, func() error { _, err := s.Prune(ctx, s.now().Add(1)); return err })
	steps = append(steps, agentTour(ctx, s, id)...)
	add("Ping", false, func() error { return s.Ping(ctx) })
	return steps
}

// agentTour is the tour of the agent's threads.
func agentTour(ctx context.Context, s *Store, id string) (steps []step) {
	add := func(name string, durable bool, call func() error) { steps = append(steps, step{name, durable, call}) }
	read := func(name string, call func() error) { add(name, false, call) }
	tenant := "acme"
	c := conversation.Thread{UID: sandbox.NewUID(), ID: id, Tenant: tenant, Metadata: object(`{"graph_id":"agent"}`)}
	a := conversation.Assistant{ID: id, Tenant: tenant, Version: 1}
	add("CreateAssistant", true, func() error { return s.CreateAssistant(ctx, a) })
	read("Assistant", func() error { _, err := s.Assistant(ctx, tenant, id); return err })
	read("Assistants", func() error { _, _, err := s.Assistants(ctx, AssistantQuery{Tenant: tenant}); return err })
	add("ChangeAssistant", true, func() error {
		_, err := s.ChangeAssistant(ctx, tenant, id, func(*conversation.Assistant) error { return nil })
		return err
	})
	read("AssistantVersions", func() error { _, err := s.AssistantVersions(ctx, tenant, id, nil); return err })
	read("AssistantVersion", func() error { _, err := s.AssistantVersion(ctx, tenant, id, 1); return err })
	add("UseAssistantVersion", true, func() error { _, err := s.UseAssistantVersion(ctx, tenant, id, 1); return err })
	cron := conversation.Cron{ID: "c" + id, Tenant: tenant, AssistantID: id, Enabled: true, Next: s.now()}
	add("CreateCron", true, func() error { return s.CreateCron(ctx, cron, 10) })
	read("Cron", func() error { _, err := s.Cron(ctx, tenant, cron.ID); return err })
	read("CronIDs", func() error { _, _, err := s.CronIDs(ctx, CronQuery{Tenant: tenant}); return err })
	read("NextCron", func() error { _, err := s.NextCron(ctx); return err })
	add("ClaimCron", true, func() error { _, err := s.ClaimCron(ctx, func(*conversation.Cron) {}); return err })
	add("EndCronClaim", false, func() error { return s.EndCronClaim(ctx, cron) })
	add("ChangeCron", true, func() error {
		_, err := s.ChangeCron(ctx, tenant, cron.ID, func(*conversation.Cron) error { return nil })
		return err
	})
	add("RemoveCron", true, func() error { return s.RemoveCron(ctx, tenant, cron.ID) })
	add("RemoveAssistant", true, func() error { return s.RemoveAssistant(ctx, tenant, id) })

	add("CreateConversation", true, func() error { return s.CreateConversation(ctx, c) })
	read("Conversation", func() error { _, err := s.Conversation(ctx, tenant, id); return err })
	read("ConversationOf", func() error { _, err := s.ConversationOf(ctx, c.UID); return err })
	add("ChangeConversation", false, func() error {
		_, err := s.ChangeConversation(ctx, c.UID, func(c *conversation.Thread) error { c.Metadata = object(`{"k":1}`); return nil })
		return err
	})
	for name, q := range map[string]ConversationQuery{
		"": {}, " of a tenant": {Tenant: &tenant}, " of a tenant with metadata": {Tenant: &tenant, Metadata: c.Metadata},
	} {
		for _, q.Descending = range []bool{false, true} {
			read("Conversations"+name, func() error { _, _, err := s.Conversations(ctx, q); return err })
		}
	}
	read("StaleConversations", func() error { _, err := s.StaleConversations(ctx, s.now(), 1, "", 0); return err })
	add("CreateRun", true, func() error {
		_, err := s.CreateRun(ctx, NewRun{Run: conversation.Run{ID: "r", Thread: c.UID, Secret: "s"}})
		return err
	})
	read("ConversationRun", func() error { _, err := s.ConversationRun(ctx, c.UID, "r"); return err })
	read("RunSecret", func() error { _, err := s.RunSecret(ctx, c.UID, "r"); return err })
	read("Runs", func() error { _, err := s.Runs(ctx, c.UID, RunQuery{}); return err })
	read("Runs of a status", func() error { _, err := s.Runs(ctx, c.UID, RunQuery{Status: conversation.RunPending}); return err })
	read("RunKeys", func() error { _, err := s.RunKeys(ctx, c.UID, RunQuery{}); return err })
	read("ConversationUses", func() error { _, err := s.ConversationUses(ctx, nil); return err })
	read("ConversationUses of a tenant", func() error { _, err := s.ConversationUses(ctx, &tenant); return err })
	read("AssistantBytes", func() error { _, err := s.AssistantBytes(ctx, tenant); return err })
	read("RestingConversations", func() error { _, err := s.RestingConversations(ctx, tenant, s.now()); return err })
	read("ExportsBytes", func() error { _, err := s.ExportsBytes(ctx, c.UID); return err })
	read("UnfinishedRuns", func() error { _, err := s.UnfinishedRuns(ctx); return err })
	var state []conversation.Entry
	step := func(id string, durable bool) func() error {
		return func() (err error) {
			state = append(state, text("b"))
			_, state, err = s.Commit(ctx, CommitRequest{
				Thread: c.UID, Checkpoint: conversation.Checkpoint{ID: id, RunID: "r"}, State: state, Head: true, Durable: durable,
			})
			return err
		}
	}
	add("Commit", false, step("c1", false))
	add("Commit, durable", true, step("c2", true))
	read("Messages", func() error { _, err := s.Messages(ctx, c.UID, refsOf(1, 2)); return err })
	read("Messages in pieces", func() error { _, err := s.Messages(ctx, c.UID, refsOf(2, 1)); return err })
	read("Checkpoint", func() error { _, err := s.Checkpoint(ctx, c.UID, "c1"); return err })
	for name, q := range map[string]CheckpointQuery{
		"": {}, ", next page": {Before: "c2"}, " of a run": {RunID: "r"}, " of a run, next page": {RunID: "r", Before: "c2"},
	} {
		read("Checkpoints"+name, func() error { _, err := s.Checkpoints(ctx, c.UID, q); return err })
	}
	add("AnnotateCheckpoint", false, func() error { _, err := s.AnnotateCheckpoint(ctx, c.UID, "c1", c.Metadata); return err })
	add("ChangeRunAndThread", false, func() error { return changeRun(ctx, s, c.UID, "r", endAs(conversation.RunRunning)) })
	add("ChangeRunAndThread to an end", true, func() error { return changeRun(ctx, s, c.UID, "r", endAs(conversation.RunSuccess)) })
	add("EndRun", false, func() error {
		return s.EndRun(ctx, c.UID, "r", func(*conversation.Run, *conversation.Thread, bool) error { return nil })
	})
	add("ChangeIdleConversation", false, func() error {
		return s.ChangeIdleConversation(ctx, c.UID, func(*conversation.Thread) error { return nil })
	})
	add("RemoveRun", true, func() error { return s.RemoveRun(ctx, c.UID, "r", true) })
	add("RemoveConversation", true, func() error { return s.RemoveConversation(ctx, c.UID) })

	memo := conversation.Item{Namespace: []string{"a", "b"}, Key: "k", Value: []byte(`{}`), TTL: time.Hour}
	add("SetItem", true, func() error { return s.SetItem(ctx, tenant, memo, ItemBounds{Items: 10}) })
	read("Item", func() error { _, err := s.Item(ctx, tenant, memo.Namespace, "k", true); return err })
	for name, prefix := range map[string][]string{"": nil, " below a namespace": {"a"}} {
		read("Items"+name, func() error { _, _, err := s.Items(ctx, tenant, prefix, ItemCursor{}, true); return err })
		read("Items without values"+name, func() error { _, _, err := s.Items(ctx, tenant, prefix, ItemCursor{}, false); return err })
		read("Namespaces"+name, func() error { _, err := s.Namespaces(ctx, tenant, prefix, nil); return err })
	}
	add("SetItem in a full store", false, func() error {
		memo.Key = "more"
		if err := s.SetItem(ctx, tenant, memo, ItemBounds{Bytes: 1}); !errors.Is(err, errs.OverQuota) {
			return fmt.Errorf("SetItem = %w", err)
		}
		return nil
	})
	add("RemoveItem", true, func() error { return s.RemoveItem(ctx, tenant, memo.Namespace, "k") })
	add("ForgetExpiredItems", false, func() error { _, err := s.ForgetExpiredItems(ctx, 10); return err })

	post := WebhookMessage{ID: "m" + id, Tenant: tenant, Kind: "k", URL: "https://example.com/", Body: []byte(`{}`)}
	add("AddWebhookMessage", true, func() error { return s.AddWebhookMessage(ctx, post) })
	read("PendingWebhooks", func() error { _, _, err := s.PendingWebhooks(ctx, tenant); return err })
	read("DueWebhooks", func() error { _, err := s.DueWebhooks(ctx); return err })
	add("ClaimWebhook", false, func() (err error) { post, err = s.ClaimWebhook(ctx, tenant, time.Minute); return err })
	add("EndWebhookAttempt", false, func() error {
		post.State = WebhookDelivered
		return s.EndWebhookAttempt(ctx, post)
	})
	read("WebhookMessages", func() error { _, err := s.WebhookMessages(ctx, tenant, 0, 0); return err })
	add("ForgetWebhookMessages", false, func() error { _, err := s.ForgetWebhookMessages(ctx, s.now(), 10); return err })
	add("WebhookSecret", true, func() error { _, err := s.WebhookSecret(ctx, tenant, []byte("s"), true); return err })
	read("WebhookSecret that there is", func() error { _, err := s.WebhookSecret(ctx, tenant, []byte("s"), false); return err })

	set := func([]byte) ([]byte, error) { return []byte("{}"), nil }
	add("ChangeAgentSettings", true, func() error { return s.ChangeAgentSettings(ctx, tenant, set) })
	read("AgentSettings", func() error { _, err := s.AgentSettings(ctx, tenant); return err })
	add("RemoveAgentSettings", true, func() error { return s.RemoveAgentSettings(ctx, tenant) })
	return steps
}

// TestDurability counts syncs: what is documented as durable waits for one,
// and the calls on the way of every exec do not.
func TestDurability(t *testing.T) {
	s, _ := fresh(t)
	flush := s.engine.Flush
	flushes := 0
	s.engine.Flush = func() error { flushes++; return flush() }
	for _, st := range tour(t.Context(), s, "a") {
		before := flushes
		if err := st.call(); err != nil {
			t.Fatalf("%s: %v", st.name, err)
		}
		if got := flushes - before; (got == 1) != st.durable {
			t.Errorf("%s: %d syncs, want durable = %v", st.name, got, st.durable)
		}
	}
	s.engine.Flush = func() error { return errs.E(errs.Unavailable, "broken disk") }
	wantKind(t, "a durable call whose sync fails",
		s.KeepDisk(t.Context(), KeptDisk{IDKey: "x", DiskUID: sandbox.NewUID()}), errs.Internal)
	s.engine.Flush = flush
}

// TestEveryStatementUsesAnIndex asks SQLite for the plan of every statement of
// the tour: none reads a whole table or sorts, so that none gets slower with
// the number of rows.
func TestEveryStatementUsesAnIndex(t *testing.T) {
	s, _ := fresh(t)
	for _, id := range []string{"a", "b"} {
		for _, st := range tour(t.Context(), s, id) {
			if err := st.call(); err != nil {
				t.Fatalf("%s: %v", st.name, err)
			}
		}
	}
	whole := regexp.MustCompile(`\bSCAN \w+$|\bSCAN \w+ USING (COVERING )?INDEX sqlite_autoindex_kept|TEMP B-TREE`)
	allowed := map[string]string{
		"SELECT " + keptColumns + " FROM kept_disks ORDER BY id_key": "all kept disks are what it is asked for",
		"DELETE FROM idempotency WHERE result IS NULL":               "runs once, at Open",
		"SELECT tenant, bytes FROM history":                          "all tenants are what it is asked for",
		dropOldVersions:                                              "it looks at the versions of one assistant",
		staleConversations:                                           "it runs now and then, and looks at the threads of all tenants",
		`SELECT thread, tenant, bytes FROM conversation_use`:         "all threads are what it is asked for",
	}
	seen := 0
	for _, cache := range []*engine.Statements{s.reads.Statements, s.writes} {
		for _, query := range cache.Texts() {
			seen++
			if _, ok := allowed[query]; ok {
				continue
			}
			args := make([]any, len(regexp.MustCompile(`\$\d+`).FindAllString(query, -1)))
			for i := range args {
				args[i] = 1
			}
			rows, err := s.reads.RowsOnce(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
			plan, err := engine.Collect(rows, err, func(r engine.Row) (string, error) {
				var id, parent, unused int
				var detail string
				return detail, r.Scan(&id, &parent, &unused, &detail)
			})
			if err != nil && !strings.Contains(err.Error(), "readonly") {
				t.Errorf("%s: %v", query, err)
			}
			for _, detail := range plan {
				if whole.MatchString(detail) {
					t.Errorf("%s\n\tis planned as %q", query, plan)
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("the tour left %d statements compiled, want all", seen)
	}
}
