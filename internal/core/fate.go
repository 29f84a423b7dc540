package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// formerly is what is known of a sandbox that does not exist any more, to those who
// saw it while it did. It is the cause of a NotFound.
type formerly struct {
	ago    time.Duration
	reason string // "" when somebody asked for it
}

func (*formerly) Error() string { return "the id had one before" }

func (g *formerly) String() string {
	text := "destroyed " + ago(g.ago)
	if g.reason != "" {
		text += ": " + g.reason
	}
	return text
}

// Fate returns what is known of the sandbox that err does not find, as a
// continuation of a door's own words for it: ": destroyed 3 minutes ago: idle",
// or "".
func Fate(err error) string {
	var g *formerly
	if !errors.As(err, &g) {
		return ""
	}
	return ": " + g.String()
}

// Failure returns why a sandbox failed, as a continuation of a door's own words
// where a failed one is none: ": it failed: create: …", or "".
func Failure(b sandbox.Sandbox) string {
	if b.State != sandbox.Failed || b.Reason == "" {
		return ""
	}
	return ": it failed: " + b.Reason
}

// noSuch is the error for an id that no sandbox of the caller's has: it says
// when and why the last one of this id ended, as long as its history is kept.
func (s *Service) noSuch(ctx context.Context, id sandbox.ID) error {
	b, err := s.cfg.Store.DestroyedSandbox(ctx, id, whose(ctx, ""))
	if errors.Is(err, errs.NotFound) {
		return noSuchSandbox()
	}
	if err != nil {
		return err
	}
	g := &formerly{ago: s.now().Sub(b.DestroyedAt), reason: b.Reason}
	e := errs.E(errs.NotFound, "no such sandbox: %s", g.String()).Because(g)
	if isIdle(b.Reason) {
		return e.Hint("create a new one; idle_policy and idle_timeout decide how long it stays unused")
	}
	return e
}

// rested says since when and why a sandbox does not run, as a continuation of
// its state: " (3 minutes ago: idle)", or "".
func rested(b sandbox.Sandbox, now time.Time) string {
	if b.StoppedAt.IsZero() || b.State != sandbox.Stopped && b.State != sandbox.Sleeping {
		return ""
	}
	text := " (" + ago(now.Sub(b.StoppedAt))
	if b.Reason != "" && !strings.HasPrefix(b.Reason, diedPrefix) {
		text += ": " + b.Reason
	}
	return text + ")"
}

// Fault returns why a sandbox ended that neither somebody nor its own idle
// policy ended; "" for one that ended as it should, or runs.
func Fault(b sandbox.Sandbox) string {
	if isIdle(b.Reason) {
		return ""
	}
	return b.Reason
}

// ago says how long something is past, roughly.
func ago(d time.Duration) string {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		switch n := int(d / unit.d); {
		case n == 1:
			return "1 " + unit.name + " ago"
		case n > 1:
			return fmt.Sprintf("%d %ss ago", n, unit.name)
		}
	}
	return "just now"
}
