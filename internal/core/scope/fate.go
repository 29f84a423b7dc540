package scope

import (
	"errors"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// formerly is what is known of a sandbox that does not exist any more, to those
// who saw it while it did. It is the cause of a NotFound.
type formerly struct {
	ago    time.Duration
	reason string // "" when somebody asked for it
}

func (*formerly) Error() string { return "the id had one before" }

func (f *formerly) String() string {
	text := "destroyed " + ago(f.ago)
	if f.reason != "" {
		text += ": " + f.reason
	}
	return text
}

// Fate returns what is known of the sandbox that err does not find, to continue
// a door's own words for it: ": destroyed 3 minutes ago: idle", or "".
func Fate(err error) string {
	var f *formerly
	if !errors.As(err, &f) {
		return ""
	}
	return ": " + f.String()
}

// Failure returns why a sandbox failed, as a continuation of a door's own words
// where a failed one is none: ": it failed: create: …", or "".
func Failure(b sandbox.Sandbox) string {
	if b.State != sandbox.Failed || b.Reason == "" {
		return ""
	}
	return ": it failed: " + b.Reason
}

// rested says since when and why a sandbox does not run, as a continuation of
// its state: " (3 minutes ago: idle)", or "".
func rested(b sandbox.Sandbox, now time.Time) string {
	if b.StoppedAt.IsZero() || b.State != sandbox.Stopped && b.State != sandbox.Sleeping {
		return ""
	}
	text := " (" + ago(now.Sub(b.StoppedAt))
	if b.Reason != "" && !b.Cause.Died() {
		text += ": " + b.Reason
	}
	return text + ")"
}

// Fault returns what went wrong with a sandbox: why it ended though neither
// somebody nor cubby's own rules put it to rest, or what a running one has lost; ""
// for one that rests or runs as it should.
func Fault(b sandbox.Sandbox) string {
	switch b.Cause {
	case sandbox.CauseIdle, sandbox.CauseSleep, sandbox.CauseMemory:
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
