package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// follow reads all that a run tells, from an offset on.
func follow(t *testing.T, s *agent.Service, thread, run string, after int64) []conversation.Recorded {
	t.Helper()
	ctx, cancel := context.WithTimeout(acme(t), longest)
	defer cancel()
	var all []conversation.Recorded
	for rec, err := range s.Runs().Follow(ctx, thread, run, after) {
		if err != nil {
			t.Fatalf("Follow: %v", err)
		}
		all = append(all, rec)
	}
	return all
}

// TestFollowFromAnywhere: a reader that comes back with any offset it was given gets
// exactly what it has not had.
func TestFollowFromAnywhere(t *testing.T) {
	s, _ := newWorld(t).daemon()
	thread := newThread(t, s)
	run, _ := do(t, s, thread, says("call run"))
	all := follow(t, s, thread, run.ID, 0)
	if len(all) < 10 || all[0].Event.Begun == nil || all[len(all)-1].Event.Ended == nil {
		t.Fatalf("%d events, the first %+v", len(all), all[0])
	}
	for i, rec := range all[:len(all)-1] {
		equal(t, "the rest", follow(t, s, thread, run.ID, rec.Offset), all[i+1:])
	}
	if rest := follow(t, s, thread, run.ID, all[0].Offset-3); len(rest) != len(all)-1 {
		t.Errorf("an offset within an event gives %d events", len(rest))
	}
}

// TestFollowALongRun: a journal that is full has the end of the run nevertheless.
func TestFollowALongRun(t *testing.T) {
	w := newWorld(t)
	w.called = func(_ context.Context, c loop.Call) loop.Result {
		for range 100 {
			c.Output("box", "stdout", strings.Repeat("x", 2000))
		}
		return loop.Result{Content: strings.Repeat("y", 2<<20)}
	}
	s, _ := w.daemon()
	thread := newThread(t, s)
	run, said := do(t, s, thread, says("call run"))
	all := follow(t, s, thread, run.ID, 0)
	last := all[len(all)-1].Event.Ended
	if last == nil || last.Status != conversation.RunSuccess || len(said) != 4 || len(said[2]) < 2<<20 {
		t.Errorf("the last event is %+v", all[len(all)-1].Event)
	}
}

// TestNextDaemonGoesOn: runs that go on or wait when the daemon stops are taken up by
// the next one, and those who follow come back to it.
func TestNextDaemonGoesOn(t *testing.T) {
	w := newWorld(t)
	s, stop := w.daemon()
	thread := newThread(t, s)
	first := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	n := says("two")
	n.Multitask = conversation.MultitaskEnqueue
	second := begin(t, s, thread, n)
	var before []conversation.Recorded
	for rec, err := range s.Runs().Follow(acme(t), thread, first.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if before = append(before, rec); rec.Event.Chunk != nil {
			break
		}
	}
	stop()
	close(w.model.release)
	s, _ = w.daemon()
	got, _ := wait(t, s, thread, first)
	equal(t, "status", got.Status, conversation.RunSuccess)
	_, said := wait(t, s, thread, second)
	equal(t, "said", said, []string{"human:wait", "ai:waitingsaid wait", "human:two", "ai:said two"})
	rest := follow(t, s, thread, first.ID, before[len(before)-1].Offset)
	if again := rest[0].Event.Begun; again == nil || again.Attempt != 2 {
		t.Errorf("the rest begins with %+v", rest[0].Event)
	}
	// What is said again is another message: pieces of both would be joined.
	if first, again := before[len(before)-1].Event.Chunk.Message.ID, idOfAnswer(rest); first == again || again == "" {
		t.Errorf("the answer is %q before and %q after", first, again)
	}
	// The time is that of the stop and not of the run: what was told once is told once.
	all := follow(t, s, thread, first.ID, 0)
	if len(all) != len(before)+len(rest) {
		t.Errorf("%d events in all, %d before and %d after", len(all), len(before), len(rest))
	}
}

// TestToolsAreNotRunTwice by the next daemon: nobody knows how one ended.
func TestToolsAreNotRunTwice(t *testing.T) {
	w := newWorld(t)
	running := make(chan struct{}, 1)
	calls := 0
	w.called = func(ctx context.Context, _ loop.Call) loop.Result {
		calls++
		running <- struct{}{}
		<-ctx.Done()
		return loop.Result{Content: "canceled", Failed: true}
	}
	s, stop := w.daemon()
	thread := newThread(t, s)
	run := begin(t, s, thread, says("call run"))
	<-running
	stop()
	s, _ = w.daemon()
	got, said := wait(t, s, thread, run)
	if got.Status != conversation.RunSuccess || calls != 1 || !strings.Contains(said[2], "restarted") {
		t.Errorf("%+v after %d calls: %q", got, calls, said)
	}
}

// TestKeysStayOut: the key that a request brings is in no file in clear, and in nothing
// that is answered.
func TestKeysStayOut(t *testing.T) {
	const key = "sk-verysecret-0123456789"
	w := newWorld(t)
	s, stop := w.daemon()
	thread := newThread(t, s)
	n := says("wait")
	n.Request.Configurable = map[string]json.RawMessage{
		"chat_model": conversation.Text("m"), "chat_model_provider": conversation.Text("test"), "chat_model_api_key": conversation.Text(key),
	}
	run := begin(t, s, thread, n)
	<-w.model.waiting
	look := func() {
		t.Helper()
		err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err == nil && bytes.Contains(data, []byte(key)) {
				t.Errorf("%s has the key", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	look()
	close(w.model.release)
	got, _ := wait(t, s, thread, run)
	view, err := s.Threads().Get(acme(t), thread)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := json.Marshal([]any{got, view, follow(t, s, thread, run.ID, 0)})
	if err != nil || bytes.Contains(answers, []byte(key)) {
		t.Errorf("an answer has the key, %v", err)
	}
	if len(w.choices) != 2 || w.choices[1].Key != key || w.choices[1].Provider != "test" {
		t.Errorf("chosen with %+v", w.choices)
	}
	stop()
	look()
}

// idOfAnswer is that of the first message in some events.
func idOfAnswer(list []conversation.Recorded) string {
	for _, rec := range list {
		if c := rec.Event.Chunk; c != nil {
			return c.Message.ID
		}
	}
	return ""
}

// TestNextRun waits for a run that can be followed at once, and for no run of a thread
// that is gone.
func TestNextRun(t *testing.T) {
	s, _ := newWorld(t).daemon()
	thread := newThread(t, s)
	coming, err := s.Runs().Coming(acme(t), thread)
	if err != nil || coming != 1 {
		t.Fatalf("Coming = %d, %v", coming, err)
	}
	type next struct {
		run conversation.Run
		err error
	}
	wait := func(from int64) <-chan next {
		c := make(chan next, 1)
		go func() {
			run, err := s.Runs().Next(acme(t), thread, from)
			c <- next{run, err}
		}()
		return c
	}
	first := wait(1)
	run := begin(t, s, thread, says("one"))
	if got := <-first; got.err != nil || got.run.ID != run.ID {
		t.Errorf("Next = %+v", got)
	}
	if all := follow(t, s, thread, run.ID, 0); all[len(all)-1].Event.Ended == nil {
		t.Error("the run that is next has no end")
	}
	if coming, err = s.Runs().Coming(acme(t), thread); err != nil || coming != 2 {
		t.Errorf("Coming = %d, %v", coming, err)
	}
	second := wait(2)
	if err := s.Threads().Delete(acme(t), thread); err != nil {
		t.Fatal(err)
	}
	if got := <-second; !errors.Is(got.err, errs.NotFound) {
		t.Errorf("Next in a thread that is gone = %+v", got)
	}
}

// TestNextRunOfAThreadThatGoesAsItIsAskedFor: a thread that went before its runs were
// watched was waited for for ever.
func TestNextRunOfAThreadThatGoesAsItIsAskedFor(t *testing.T) {
	s, _ := newWorld(t).daemon()
	for range 50 { // what comes first is chance
		thread := newThread(t, s)
		ended := make(chan error, 1)
		go func() {
			_, err := s.Runs().Next(acme(t), thread, 1)
			ended <- err
		}()
		if err := s.Threads().Delete(acme(t), thread); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, errs.NotFound) {
			t.Errorf("Next = %v", err)
		}
	}
}
