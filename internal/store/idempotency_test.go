package store

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestIdempotency(t *testing.T) {
	s, _ := fresh(t)
	claim := func(principal, key, hash string) (*Claim, error) {
		return s.Idempotency(t.Context(), principal, key, hash)
	}
	first, err := claim("p", "k", "h")
	if err != nil {
		t.Fatal(err)
	}
	if _, done := first.Result(); done {
		t.Fatal("the first claim has a result")
	}
	_, err = claim("p", "k", "h")
	wantKind(t, "a repetition while the first runs", err, errs.Conflict)
	if errs.Public(err).RetryAfter == 0 {
		t.Error("a repetition while the first runs does not say when to try again")
	}
	_, err = claim("p", "k", "other")
	wantKind(t, "the key with another request", err, errs.Conflict)
	if errs.Public(err).RetryAfter != 0 {
		t.Error("the key with another request asks to try again")
	}
	if _, err := claim("q", "k", "other"); err != nil {
		t.Errorf("another principal's key: %v", err)
	}

	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, err = claim("p", "k", "other"); err != nil {
		t.Fatalf("a released key: %v", err)
	}
	b := box("a")
	if err := s.CreateSandbox(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	move(t, s, b.UID, sandbox.Running, Change{Claim: first})
	again, err := claim("p", "k", "other")
	if err != nil {
		t.Fatal(err)
	}
	if result, done := again.Result(); !done || result != string(b.UID) {
		t.Errorf("Result = %q, %v, want the sandbox's uid", result, done)
	}
	wantKind(t, "Complete twice", first.Complete(t.Context(), "x"), errs.Internal)
	if err := first.Release(t.Context()); err != nil {
		t.Errorf("Release after Complete = %v", err)
	}
	if again, err = claim("p", "k", "other"); err != nil {
		t.Fatal(err)
	}
	if _, done := again.Result(); !done {
		t.Error("Release took back a completed claim")
	}
}

func TestUnfinishedClaimsEndWithTheProcess(t *testing.T) {
	c := newClock()
	where := somewhere(t)
	s := openAt(t, where, c)
	done, err := s.Idempotency(t.Context(), "p", "done", "h")
	if err != nil {
		t.Fatal(err)
	}
	if err := done.Complete(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Idempotency(t.Context(), "p", "cut off", "h"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, where, c)
	for key, wantDone := range map[string]bool{"done": true, "cut off": false} {
		claim, err := s.Idempotency(t.Context(), "p", key, "h")
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if _, got := claim.Result(); got != wantDone {
			t.Errorf("%s: done = %v, want %v", key, got, wantDone)
		}
	}
}
