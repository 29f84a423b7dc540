package store

import (
	"fmt"
	"testing"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// BenchmarkStore measures the calls of every request with few and with many
// rows: the two must be close.
func BenchmarkStore(b *testing.B) {
	for _, rows := range []int{10, 10_000} {
		s, c := fresh(b)
		flush := s.engine.Flush
		s.engine.Flush = func() error { return nil } // the filling need not survive
		var last sandbox.Sandbox
		for i := range rows {
			last = box(fmt.Sprint("box-", i))
			last.Spec.Labels = map[string]string{"shard": fmt.Sprint(i % 100)}
			last = create(b, s, last)
		}
		for range rows {
			finished(b, s, last.UID)
		}
		s.engine.Flush = flush
		run := func(name string, call func() error) {
			b.Run(fmt.Sprintf("%s/%d", name, rows), func(b *testing.B) {
				for b.Loop() {
					if err := call(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("get", func() error { _, err := s.Sandbox(b.Context(), last.ID); return err })
		run("list20", func() error { _, _, err := s.Sandboxes(b.Context(), Query{Limit: 20}); return err })
		run("list20ByLabel", func() error {
			_, _, err := s.Sandboxes(b.Context(), Query{Limit: 20, Labels: map[string]string{"shard": "1"}})
			return err
		})
		run("execs20", func() error { _, err := s.Execs(b.Context(), last.UID, ExecQuery{Limit: 20}); return err })
		run("execLife", func() error {
			seq, err := s.CreateExec(b.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: last.UID, Spec: sandbox.ExecSpec{Shell: "true"}})
			if err != nil {
				return err
			}
			if err := s.StartExec(b.Context(), last.UID, seq, c.Now()); err != nil {
				return err
			}
			_, err = s.FinishExec(b.Context(), last.UID, seq, sandbox.Exit{}, sandbox.ExecDone, c.Now())
			return err
		})
		run("sandboxLife", func() error {
			x := box("x")
			if err := s.CreateSandbox(b.Context(), x); err != nil {
				return err
			}
			if _, err := s.Move(b.Context(), x.UID, sandbox.Running, Change{}); err != nil {
				return err
			}
			_, err := s.Move(b.Context(), x.UID, sandbox.Destroyed, Change{})
			return err
		})
	}
}

// BenchmarkConversation measures a thread of 1000 messages, of 300 bytes each, among
// others.
func BenchmarkConversation(b *testing.B) {
	s, _ := fresh(b)
	flush := s.engine.Flush
	s.engine.Flush = func() error { return nil }
	for i := range 1000 {
		talk(b, s, "acme", fmt.Sprint("other-", i), with(`{"graph_id":"agent","n":1}`))
	}
	thread := talk(b, s, "acme", "a", with(`{"graph_id":"agent","rare":true}`))
	var last conversation.Checkpoint
	var list []conversation.Entry
	for i := range 1000 {
		last, list = commit(b, s, CommitRequest{
			Thread: thread.UID, State: append(list, text(fmt.Sprintf("%0300d", i))), Head: true,
			Checkpoint: conversation.Checkpoint{ID: conversation.NewID(), Metadata: object(`{"source":"loop"}`)},
		})
	}
	s.engine.Flush = flush
	run := func(name string, call func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("state", func() error { _, err := s.Messages(b.Context(), thread.UID, last.Messages); return err })
	run("commit", func() error {
		_, _, err := s.Commit(b.Context(), CommitRequest{
			Thread: thread.UID, State: list, Checkpoint: conversation.Checkpoint{ID: conversation.NewID()}, Head: true,
		})
		return err
	})
	run("history10", func() error { _, err := s.Checkpoints(b.Context(), thread.UID, CheckpointQuery{Limit: 10}); return err })
	for name, metadata := range map[string]string{"search": `{"graph_id":"agent"}`, "searchRare": `{"rare":true}`} {
		run(name, func() error {
			_, _, err := s.Conversations(b.Context(), ConversationQuery{
				Tenant: &thread.Tenant, Metadata: object(metadata), Descending: true, Limit: 100,
			})
			return err
		})
	}
	run("run", func() error {
		r, err := s.CreateRun(b.Context(), NewRun{Run: conversation.Run{ID: conversation.NewID(), Thread: thread.UID}})
		if err != nil {
			return err
		}
		return changeRun(b.Context(), s, thread.UID, r.ID, endAs(conversation.RunSuccess))
	})
}

// BenchmarkBurst is what creates that come together wait for.
func BenchmarkBurst(b *testing.B) {
	s, _ := fresh(b)
	b.SetParallelism(50)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			x := box(string(sandbox.NewID()))
			if err := s.CreateSandbox(b.Context(), x); err != nil {
				b.Error(err)
				return
			}
			if _, err := s.Move(b.Context(), x.UID, sandbox.Running, Change{}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
