package live

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A kill of the whole sandbox can hit what watches over a command before it
// hits the agent, which then reports the command as lost. The command ended
// with its sandbox all the same.
func TestEndOfACommandWhoseSandboxIsBeingDestroyed(t *testing.T) {
	destroyed := &Ending{sandbox.EndDestroyed, "the sandbox was destroyed"}
	for _, tt := range []struct {
		agent  sandbox.EndReason
		ending *Ending
		want   sandbox.EndReason
	}{
		{sandbox.EndLost, destroyed, sandbox.EndDestroyed},
		{sandbox.EndStopped, destroyed, sandbox.EndDestroyed},
		{sandbox.EndExited, destroyed, sandbox.EndExited},
		{sandbox.EndKilled, destroyed, sandbox.EndKilled}, // canceled a moment before
		{sandbox.EndLost, nil, sandbox.EndLost},
	} {
		e := &Exec{run: &Run{execs: &execs{ending: tt.ending}}}
		if got := e.judge(sandbox.Exit{Reason: tt.agent}).Reason; got != tt.want {
			t.Errorf("%s while the sandbox ends (%v) = %s, want %s", tt.agent, tt.ending != nil, got, tt.want)
		}
	}
}
