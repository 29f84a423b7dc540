//go:build root

package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

// TestDeadlockIsRetried: a foreign transaction waits for what a write holds and
// holds what it needs.
func TestDeadlockIsRetried(t *testing.T) {
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}
	s := openAt(t, where, newClock())
	a, b := create(t, s, box("a")), create(t, s, box("b"))
	other := admin(t, where.URL)
	run(t, other, `SET deadlock_timeout = '1h'`) // the store's is the one to give way
	run(t, other, `BEGIN`)
	run(t, other, fmt.Sprintf(`UPDATE sandbox_activity SET last_seq = last_seq WHERE box = '%s'`, b.UID))
	runs := 0
	var waited sync.WaitGroup
	err := s.update(t.Context(), durable, func(tx *tx) error {
		if runs++; runs == 1 {
			if err := tx.touch(a.UID, s.now().Add(time.Hour)); err != nil {
				return err
			}
			waited.Go(func() {
				_, err := other.Exec(t.Context(), fmt.Sprintf(`UPDATE sandbox_activity SET last_seq = last_seq WHERE box = '%s'`, a.UID))
				if _, rollback := other.Exec(t.Context(), `ROLLBACK`); err != nil || rollback != nil {
					t.Errorf("the foreign transaction: %v, %v", err, rollback)
				}
			})
			waitUntil(t, func() bool {
				var n int
				err := s.engine.Read.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&n)
				return err == nil && n > 0
			})
		}
		return tx.touch(b.UID, s.now().Add(time.Hour))
	})
	waited.Wait()
	if err != nil || runs < 2 {
		t.Errorf("a write in a deadlock = %v after %d runs", err, runs)
	}
}

// waitUntil returns when cond holds.
func waitUntil(t *testing.T, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within a minute")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestServerGoneAndBack kills the server under writers and readers, again and
// again. Nothing that was acknowledged is lost, nothing that was refused is
// there, refusals are Unready, and everything goes on without help.
func TestServerGoneAndBack(t *testing.T) {
	server := postgrestest.Start(t)
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: server.NewDatabase(t)}
	s := openAt(t, where, newClock())
	b := create(t, s, box("a"))
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var mu sync.Mutex
	made := map[sandbox.UID]int64{} // seq by uid
	refused := map[sandbox.UID]bool{}
	var cursors []int64
	for range 4 {
		work.Go(func() {
			for ctx.Err() == nil {
				uid := sandbox.NewUID()
				seq, err := s.CreateExec(t.Context(), sandbox.Exec{UID: uid, Box: b.UID})
				mu.Lock()
				switch {
				case err == nil:
					made[uid] = seq
				case errors.Is(err, errs.Unready):
					refused[uid] = true
				default:
					t.Errorf("CreateExec: %v", err)
				}
				mu.Unlock()
				cursor, err := s.AppendEvent(t.Context(), sandbox.Event{Box: b.UID, Kind: "x"})
				if err == nil {
					mu.Lock()
					cursors = append(cursors, cursor)
					mu.Unlock()
				} else if !errors.Is(err, errs.Unready) {
					t.Errorf("AppendEvent: %v", err)
				}
			}
		})
	}
	work.Go(func() {
		for ctx.Err() == nil {
			got, err := s.Sandbox(t.Context(), "a")
			if err != nil && !errors.Is(err, errs.Unready) || err == nil && got.UID != b.UID {
				t.Errorf("Sandbox = %v, %v", got.UID, err)
			}
		}
	})
	work.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(made) }
	for range 3 {
		before := count()
		waitUntil(t, func() bool { return count() > before+20 })
		server.Kill()
		_, err := s.Sandbox(t.Context(), "a")
		wantKind(t, "a read without a server", err, errs.Unready)
		if errs.Public(err).RetryAfter == 0 {
			t.Error("it does not say when to try again")
		}
		wantKind(t, "Ping without a server", s.Ping(t.Context()), errs.Unready)
		server.Restart(t)
	}
	before := count()
	waitUntil(t, func() bool { return count() > before+20 })
	stop()
	work.Wait()
	var all []sandbox.Exec
	for q := (ExecQuery{Limit: 1000}); ; q.AfterSeq = all[len(all)-1].Seq {
		page, err := s.Execs(t.Context(), b.UID, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
	}
	for i, e := range all {
		if e.Seq != int64(i+1) {
			t.Fatalf("exec %d has the number %d", i+1, e.Seq)
		}
		if refused[e.UID] {
			t.Errorf("exec %d was refused and is there", e.Seq)
		}
		if seq, ok := made[e.UID]; ok && seq != e.Seq {
			t.Errorf("exec %d was acknowledged as %d", e.Seq, seq)
		}
		delete(made, e.UID)
	}
	if len(made) > 0 {
		t.Errorf("%d execs that were acknowledged are lost", len(made))
	}
	stored := map[int64]bool{}
	for after := int64(0); ; {
		page, err := s.Events(t.Context(), b.UID, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			stored[e.Cursor] = true
		}
		after = page[len(page)-1].Cursor
	}
	for _, c := range cursors {
		if !stored[c] {
			t.Errorf("event %d was acknowledged and is lost, or its cursor was given twice", c)
		}
		delete(stored, c)
	}
}

// TestRefusedLogin: what a server says against a user is told, and no password.
func TestRefusedLogin(t *testing.T) {
	url := postgrestest.New(t)
	for name, c := range map[string]struct{ url, want string }{
		"no such user":     {strings.Replace(url, "user=postgres", "user=nobody-here&password=hunter2", 1), "refuses the user"},
		"no such database": {strings.Replace(url, "/test", "/missing", 1) + "&password=hunter2", "does not exist"},
		"not a URL":        {"postgres://user:hunter2@host:port:1/x", "cannot be read"},
		"nobody listens":   {"postgres://user:hunter2@127.0.0.1:1/x", "cannot be reached"},
	} {
		_, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: c.url})
		if err == nil || !strings.Contains(errs.Public(err).Message, c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
