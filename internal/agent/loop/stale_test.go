package loop_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
)

// TestAnswerIsOfOneQuestion: what a person approved is what they were shown. A command
// that finds no question does not answer a later one, nor does one that is sent twice.
func TestAnswerIsOfOneQuestion(t *testing.T) {
	yes := resume(`{"decisions":[{"type":"approve"}]}`)
	t.Run("the thread waits for the model", func(t *testing.T) {
		b := newBench(t, calls("run", `{}`))
		b.config.Policy, b.config.InterruptBefore = asks("run"), []string{"agent"}
		b.run(t.Context(), human("go"))
		b.config.InterruptBefore = nil
		if ended := b.run(t.Context(), yes); len(ended.Interrupts) != 1 || len(b.hands.made) > 0 {
			t.Errorf("ended %+v, made %q", ended, b.hands.made)
		}
	})
	t.Run("beside an input", func(t *testing.T) {
		b := newBench(t, calls("run", `{}`), calls("look", `{}`))
		b.config.Policy = asks("run", "look")
		b.run(t.Context(), human("go"))
		both := human("no, look")
		both.Command = yes.Command
		if ended := b.run(t.Context(), both); len(ended.Interrupts) != 1 || len(b.hands.made) > 0 {
			t.Errorf("ended %+v, made %q", ended, b.hands.made)
		}
	})
	t.Run("the next daemon stands before another question", func(t *testing.T) {
		b := newBench(t, calls("run", `{}`), calls("look", `{}`))
		b.config.Policy = asks("run", "look")
		b.run(t.Context(), human("go"))
		first, state := b.memory, b.memory.head()
		// It dies where it would note the second question.
		b.config.Record = &noPause{memory: first}
		if _, err := loop.Run(t.Context(), b.config, loop.Start{RunID: "second", Command: yes.Command, Question: state.Checkpoint.Question(), State: state}); err == nil {
			t.Fatal("the recorder did not die")
		}
		b.config.Record = first
		again := loop.Start{RunID: "second", Command: yes.Command, Question: state.Checkpoint.Question(), State: first.head(), Again: true}
		ended, err := loop.Run(t.Context(), b.config, again)
		if err != nil || len(ended.Interrupts) != 1 {
			t.Errorf("ended %+v, %v", ended, err)
		}
		equal(t, "made", b.hands.made, []string{"run{}"})
	})
	t.Run("it came before the question was asked", func(t *testing.T) {
		b := newBench(t, calls("run", `{}`), calls("look", `{}`), says("ok"))
		b.config.Policy = asks("run", "look")
		first := b.run(t.Context(), human("go")).Interrupts[0].ID
		second := b.run(t.Context(), yes).Interrupts[0].ID
		b.config.Policy = conversation.Policy{} // as of a client that does not say it again
		for _, came := range []string{first, ""} {
			ended, err := loop.Run(t.Context(), b.config, loop.Start{RunID: "late", Command: yes.Command, Question: came, State: b.memory.head()})
			if err != nil || ended.Error != "ValueError" || b.memory.head().Checkpoint.Question() != second {
				t.Errorf("ended %+v, %v", ended, err)
			}
		}
		equal(t, "made", b.hands.made, []string{"run{}"})
		b.run(t.Context(), yes)
		equal(t, "made", b.hands.made, []string{"run{}", "look{}"})
	})
	t.Run("an answer by a wrong id", func(t *testing.T) {
		b := newBench(t, calls("run", `{}`), says("ok"))
		b.config.Policy = asks("run")
		ended := b.run(t.Context(), human("go"))
		wrong := b.run(t.Context(), resume(`{"0123456789abcdef0123456789abcdef":{"decisions":[{"type":"approve"}]}}`))
		if wrong.Error != "ValueError" || len(b.hands.made) > 0 {
			t.Errorf("ended %+v, made %q", wrong, b.hands.made)
		}
		equal(t, "it still waits", b.memory.head().Checkpoint.Tasks[0].Interrupts, ended.Interrupts)
		b.run(t.Context(), resume(`{"`+ended.Interrupts[0].ID+`":{"decisions":[{"type":"approve"}]}}`))
		equal(t, "made", b.hands.made, []string{"run{}"})
		// Nothing waits any more.
		equal(t, "ended", b.run(t.Context(), yes), conversation.Ended{Status: conversation.RunSuccess})
		equal(t, "made", b.hands.made, []string{"run{}"})
	})
}

// noPause is a recorder that fails to note a question.
type noPause struct{ *memory }

func (*noPause) Pause(context.Context, conversation.Checkpoint) error {
	return errors.New("the disk is full")
}

// TestEditDoesNotGetAroundThePolicy: a person cannot make a denied call out of one that
// they are asked about.
func TestEditDoesNotGetAroundThePolicy(t *testing.T) {
	b := newBench(t, calls("run", `{}`), says("ok"))
	b.config.Policy = asks("run")
	b.config.Policy.Tools["look"] = conversation.Rule{Decision: conversation.Deny}
	b.run(t.Context(), human("go"))
	ended := b.run(t.Context(), resume(`{"decisions":[{"type":"edit","edited_action":{"name":"look","args":{}}}]}`))
	if ended.Status != conversation.RunFailed || ended.Error != "ValueError" || len(b.hands.made) > 0 {
		t.Errorf("ended %+v, made %q", ended, b.hands.made)
	}
}

// TestInterruptAfterATool stops behind the tool that is named and behind no other.
func TestInterruptAfterATool(t *testing.T) {
	b := newBench(t, calls("look", `{}`), calls("run", `{}`), says("ok"))
	b.config.InterruptAfter = []string{"run"}
	b.run(t.Context(), human("go"))
	equal(t, "made", b.hands.made, []string{"look{}", "run{}"})
	equal(t, "next", b.memory.head().Checkpoint.Next, []string{"agent"})
	b.run(t.Context(), loop.Start{})
	equal(t, "last", b.memory.said()[5], "ai:ok")
}

// TestBreakpointsOutliveTheDaemon: one that dies at a breakpoint, before the run has
// ended there, leaves one that the next daemon keeps.
func TestBreakpointsOutliveTheDaemon(t *testing.T) {
	for name, set := range map[string]func(*loop.Config){
		"before": func(c *loop.Config) { c.InterruptBefore = []string{"tools"} },
		"after":  func(c *loop.Config) { c.InterruptAfter = []string{"agent"} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, calls("run", `{}`), says("ok"))
			b.config.InterruptBefore = []string{"agent"}
			b.run(t.Context(), human("go"))
			b.config.InterruptBefore = nil
			set(&b.config)
			again := loop.Start{RunID: "second", State: b.memory.head()}
			if ended, err := loop.Run(t.Context(), b.config, again); err != nil || ended.Status != conversation.RunSuccess {
				t.Fatalf("Run = %+v, %v", ended, err)
			}
			// Nobody noted its end.
			again.Again, again.State = true, b.memory.head()
			if ended, err := loop.Run(t.Context(), b.config, again); err != nil || ended.Status != conversation.RunSuccess {
				t.Fatalf("Run = %+v, %v", ended, err)
			}
			if head := b.memory.head().Checkpoint; len(head.Next) != 1 || head.Next[0] != "tools" || len(b.hands.made) > 0 {
				t.Errorf("the next is %q, made %q", head.Next, b.hands.made)
			}
		})
	}
}
