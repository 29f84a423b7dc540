package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

// crashPath makes this test binary the writer that TestKilledWriter kills.
const (
	crashPath = "CUBBY_TEST_CRASH_PATH"
	crashURL  = "CUBBY_TEST_CRASH_URL"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashPath); path != "" {
		if err := writeUntilKilled(Config{Path: path, URL: os.Getenv(crashURL)}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(postgrestest.Kept{M: m})
}

// writeUntilKilled runs sandboxes through their lives from several goroutines
// and prints each fact after the store has acknowledged it.
func writeUntilKilled(where Config) (err error) {
	ctx := context.Background()
	if where.Seal, err = seal.OpenKey(where.Path + ".key"); err != nil {
		return err
	}
	s, err := Open(ctx, where)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	failed := make(chan error)
	for range 4 {
		go func() {
			for {
				if err := oneLife(ctx, s, say); err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

func oneLife(ctx context.Context, s *Store, say func(string, ...any)) error {
	b := sandbox.Sandbox{UID: sandbox.NewUID(), ID: sandbox.NewID(), Spec: sandbox.Spec{Labels: map[string]string{"k": "v"}}}
	if err := s.CreateSandbox(ctx, b); err != nil {
		return err
	}
	say("state %s %s", b.UID, sandbox.Creating)
	if _, err := s.Move(ctx, b.UID, sandbox.Running, Change{}); err != nil {
		return err
	}
	say("state %s %s", b.UID, sandbox.Running)
	for range 5 {
		seq, err := s.CreateExec(ctx, sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID, Spec: sandbox.ExecSpec{Env: map[string]string{"K": "v"}}})
		if err != nil {
			return err
		}
		say("exec %s %d %s", b.UID, seq, sandbox.ExecPending)
		if err := s.StartExec(ctx, b.UID, seq, time.Now()); err != nil {
			return err
		}
		say("exec %s %d %s", b.UID, seq, sandbox.ExecRunning)
		if _, err := s.FinishExec(ctx, b.UID, seq, sandbox.Exit{Reason: sandbox.EndExited}, sandbox.ExecDone, time.Now()); err != nil {
			return err
		}
		say("exec %s %d %s", b.UID, seq, sandbox.ExecDone)
	}
	if _, err := s.Move(ctx, b.UID, sandbox.Destroyed, Change{KeepDisk: true}); err != nil {
		return err
	}
	say("state %s %s", b.UID, sandbox.Destroyed)
	return oneTalk(ctx, s, say)
}

// oneTalk runs a thread of the agent: two messages a step.
func oneTalk(ctx context.Context, s *Store, say func(string, ...any)) error {
	uid := sandbox.NewUID()
	if err := s.CreateConversation(ctx, conversation.Thread{UID: uid, ID: string(uid)}); err != nil {
		return err
	}
	if _, err := s.CreateRun(ctx, NewRun{Run: conversation.Run{ID: "r", Thread: uid, Secret: "s"}}); err != nil {
		return err
	}
	say("thread %s %d", uid, 0)
	var state []conversation.Entry
	var err error
	for i := range 4 {
		_, state, err = s.Commit(ctx, CommitRequest{
			Thread: uid, Checkpoint: conversation.Checkpoint{ID: conversation.NewID(), RunID: "r", Step: i + 1},
			State: append(state, messages("a", "b")...), Head: true,
		})
		if err != nil {
			return err
		}
		say("thread %s %d", uid, i+1)
	}
	err = s.ChangeRunAndThread(ctx, uid, "r", func(r *conversation.Run, c *conversation.Thread) error {
		r.Status, c.Status = conversation.RunFailed, conversation.ThreadFailed
		return nil
	})
	if err == nil {
		say("thread %s %d", uid, 5)
	}
	return err
}

// checkTalks: a thread is as it was after a whole step, and not before the last one
// that was acknowledged.
func checkTalks(t *testing.T, s *Store, threads map[string]int) {
	t.Helper()
	for uid, want := range threads {
		c, err := s.ConversationOf(t.Context(), sandbox.UID(uid))
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.ConversationRun(t.Context(), c.UID, "r")
		if err != nil || r.Seq != 1 || r.Status.Ended() != (c.Status == conversation.ThreadFailed) {
			t.Fatalf("thread %s is %s and its run %+v, %v", uid, c.Status, r, err)
		}
		if secret, err := s.RunSecret(t.Context(), c.UID, "r"); err != nil || (secret == "") != r.Status.Ended() {
			t.Fatalf("the run of thread %s is %s and has the secret %q, %v", uid, r.Status, secret, err)
		}
		all, err := s.Checkpoints(t.Context(), c.UID, CheckpointQuery{})
		done := len(all)
		if r.Status.Ended() {
			done++
		}
		if err != nil || done < want {
			t.Fatalf("thread %s has done %d steps, %v; acknowledged are %d", uid, done, err, want)
		}
		for i, key := range all {
			checkpoint, err := s.Checkpoint(t.Context(), c.UID, key.ID)
			if err != nil {
				t.Fatal(err)
			}
			list, err := s.Messages(t.Context(), c.UID, checkpoint.Messages)
			if err != nil || checkpoint.Step != len(all)-i || len(list) != 2*checkpoint.Step || i == 0 && c.Head != checkpoint.ID {
				t.Fatalf("thread %s: checkpoint %+v has %d messages, %v; the head is %s", uid, checkpoint, len(list), err, c.Head)
			}
		}
	}
}

// TestKilledWriter kills a process in the middle of its writes, again and
// again on the same database: all that was acknowledged is there, and nothing
// is there by halves.
func TestKilledWriter(t *testing.T) {
	where := somewhere(t)
	rng := rand.New(rand.NewPCG(1, 2))
	states := map[string]sandbox.State{} // by uid: the last acknowledged
	execs := map[string]sandbox.ExecStatus{}
	threads := map[string]int{} // steps
	for round := range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), crashPath+"="+where.Path, crashURL+"="+where.URL)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n, stop := 0, 50+rng.IntN(400); lines.Scan(); n++ {
			cut := strings.LastIndexByte(lines.Text(), ' ')
			what, state := lines.Text()[:cut], lines.Text()[cut+1:]
			switch kind, key, _ := strings.Cut(what, " "); kind {
			case "state":
				states[key] = sandbox.State(state)
			case "exec":
				execs[key] = sandbox.ExecStatus(state)
			case "thread":
				if threads[key], err = strconv.Atoi(state); err != nil {
					t.Fatal(err)
				}
			}
			if n == stop {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() > 0 {
			t.Fatalf("the writer ended by itself: %v", err)
		}
		checkAfterCrash(t, where, round, states, execs, threads)
	}
	if len(states) < 20 || len(threads) < 10 {
		t.Errorf("only %d sandboxes and %d threads were written", len(states), len(threads))
	}
}

func checkAfterCrash(t *testing.T, where Config, round int, states map[string]sandbox.State, execs map[string]sandbox.ExecStatus, threads map[string]int) {
	t.Helper()
	var err error
	if where.Seal, err = seal.OpenKey(where.Path + ".key"); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), where)
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	defer s.Close()
	if where.URL == "" {
		var verdict string
		if err := s.reads.Row(t.Context(), "PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
			t.Fatalf("round %d: integrity_check = %q, %v", round, verdict, err)
		}
	}
	order := func(s sandbox.State) int {
		for i, state := range sandbox.States() {
			if s == state {
				return i
			}
		}
		return -1
	}
	for uid, want := range states {
		b, err := s.SandboxByUID(t.Context(), sandbox.UID(uid))
		if err != nil || order(b.State) < order(want) {
			t.Fatalf("round %d: sandbox %s is %q, %v; acknowledged as %s", round, uid, b.State, err, want)
		}
		list, err := s.Execs(t.Context(), b.UID, ExecQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range list {
			if e.Seq != int64(i+1) {
				t.Fatalf("round %d: exec %d of %s has number %d", round, i+1, uid, e.Seq)
			}
		}
	}
	progress := map[sandbox.ExecStatus]int{sandbox.ExecPending: 0, sandbox.ExecRunning: 1, sandbox.ExecDone: 2}
	for key, want := range execs {
		var uid sandbox.UID
		var seq int64
		if _, err := fmt.Sscanf(key, "%s %d", &uid, &seq); err != nil {
			t.Fatal(err)
		}
		e, err := s.Exec(t.Context(), uid, seq)
		if err != nil || progress[e.Status] < progress[want] {
			t.Fatalf("round %d: exec %s is %q, %v; acknowledged as %s", round, key, e.Status, err, want)
		}
		_, err = s.ExecEnv(t.Context(), uid, seq)
		if pending := e.Status == sandbox.ExecPending; pending != (err == nil) {
			t.Fatalf("round %d: exec %s is %s and its env says %v", round, key, e.Status, err)
		}
	}
	checkTalks(t, s, threads)
	disks, err := s.KeptDisks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept := map[sandbox.UID]bool{}
	for _, d := range disks {
		kept[d.DiskUID] = true
	}
	for uid := range states {
		b, err := s.SandboxByUID(t.Context(), sandbox.UID(uid))
		if err != nil || (b.State == sandbox.Destroyed) != kept[b.UID] {
			t.Fatalf("round %d: sandbox %s is %s and its disk kept = %v, %v", round, uid, b.State, kept[b.UID], err)
		}
	}
}

// TestConcurrentCreates has many callers want the same few ids: one at a time
// gets each.
func TestConcurrentCreates(t *testing.T) {
	s, _ := fresh(t)
	var mu sync.Mutex
	holders := map[string]int{}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 30 {
				b := box(fmt.Sprintf([]string{"box-%d", "BOX-%d"}[w%2], i%3))
				err := s.CreateSandbox(t.Context(), b)
				if errors.Is(err, errs.Conflict) {
					continue
				}
				if err != nil {
					t.Errorf("CreateSandbox: %v", err)
					return
				}
				key := b.ID.Key()
				count := func(n int) {
					mu.Lock()
					defer mu.Unlock()
					if holders[key] += n; holders[key] > 1 {
						t.Errorf("%d sandboxes have the id %s", holders[key], key)
					}
				}
				count(+1)
				if _, err := s.Sandbox(t.Context(), b.ID); err != nil {
					t.Errorf("Sandbox: %v", err)
				}
				count(-1) // before the id is free for others
				if _, err := s.Move(t.Context(), b.UID, sandbox.Destroyed, Change{}); err != nil {
					t.Errorf("Move: %v", err)
				}
			}
		})
	}
	// Readers never wait for writers and never see half of one.
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				items, _, err := s.Sandboxes(t.Context(), Query{})
				if err != nil || len(items) > 3 {
					t.Errorf("Sandboxes = %d, %v, want at most 3", len(items), err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	readers.Wait()
}

// TestOneMoveWins has many callers end the same sandbox.
func TestOneMoveWins(t *testing.T) {
	s, _ := fresh(t)
	b := create(t, s, box("a"))
	var wg sync.WaitGroup
	won := make(chan sandbox.State, 20)
	for i := range 20 {
		to := []sandbox.State{sandbox.Destroyed, sandbox.Failed}[i%2]
		wg.Go(func() {
			if _, err := s.Move(t.Context(), b.UID, to, Change{}); err == nil {
				won <- to
			} else if !errors.Is(err, errs.WrongState) {
				t.Errorf("Move: %v", err)
			}
		})
	}
	wg.Wait()
	close(won)
	var order []sandbox.State
	for to := range won {
		order = append(order, to)
	}
	// Failed → Destroyed is allowed, the rest not.
	if n := len(order); n == 0 || n > 2 {
		t.Errorf("%d moves won: %v", n, order)
	}
}
