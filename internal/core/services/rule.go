package services

import (
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	quickRun  = 10 * time.Second // a run that is shorter counts towards giving up
	maxQuick  = 5                // so many of them in a row
	calmRun   = time.Minute      // after a run of that length the pauses begin anew
	lastPause = 30 * time.Second
)

// end is how a run of a service ended, as far as that is known.
type end struct {
	reason sandbox.EndReason
	code   *int
	took   time.Duration
}

// endOf is how a run ended.
func endOf(x sandbox.Exec) end {
	e := end{took: x.Took(), reason: sandbox.EndLost}
	if x.Exit != nil {
		e.reason, e.code = x.Exit.Reason, x.Exit.Code
	}
	return e
}

// after is the rule of what becomes of a service whose run has ended by itself.
func after(policy sandbox.RestartPolicy, is sandbox.ServiceState, e end) sandbox.ServiceState {
	well := e.reason == sandbox.EndExited && e.code != nil && *e.code == 0
	if policy == sandbox.RestartNever || policy == sandbox.RestartOnFailure && well {
		is.Phase, is.Quick, is.Tries = sandbox.ServiceStopped, 0, 0
		return is
	}
	if withSandbox(e.reason) {
		// It is over with its sandbox; should that go on after all, the service does.
		is.Phase = sandbox.ServiceBackoff
		is.Tries++
		return is
	}
	if e.took < quickRun {
		is.Quick++
	} else {
		is.Quick = 0
	}
	if e.took >= calmRun {
		is.Tries = 0
	}
	if is.Quick >= maxQuick {
		is.Phase = sandbox.ServiceFailed
		is.Reason = fmt.Sprintf("it ended %d times in a row within %d seconds, at last %s; start it again when that is mended",
			maxQuick, int(quickRun.Seconds()), e.words())
		return is
	}
	is.Phase = sandbox.ServiceBackoff
	is.Tries++
	return is
}

// withSandbox reports whether a reason is the end of the whole sandbox.
func withSandbox(r sandbox.EndReason) bool {
	return r == sandbox.EndStopped || r == sandbox.EndDied || r == sandbox.EndDestroyed
}

func (e end) words() string {
	if e.reason == sandbox.EndExited && e.code != nil {
		return fmt.Sprintf("with exit code %d", *e.code)
	}
	return fmt.Sprintf("as %s", e.reason)
}

// pause is how long a service waits before it starts again: 1, 2, 4 … 30 s.
func pause(tries int) time.Duration {
	if tries > 5 {
		return lastPause
	}
	return time.Second << max(tries-1, 0)
}
