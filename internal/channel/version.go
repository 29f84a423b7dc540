package channel

import (
	"fmt"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// foreignVersion is the version of an agent that knows the secret and that this
// daemon does not drive.
type foreignVersion int

func (v foreignVersion) Error() string {
	return fmt.Sprintf("version %d of the agent's protocol", int(v))
}

func (v foreignVersion) supported() bool {
	return v >= sandbox.OldestAgentProtocol && v <= sandbox.AgentProtocol
}

// refuse notes that the agent that dials speaks a version that this daemon does
// not: who waits for it hears so.
func (l *Listener) refuse(v foreignVersion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.control != nil {
		return // it is being replaced by one that is supported
	}
	select {
	case <-l.foreign:
	default:
		close(l.foreign)
		l.log.Warn("the sandbox's agent is not supported", "err", v)
	}
	l.version = v
}

// refused returns a channel that is closed when the agent was refused because
// of its version.
func (l *Listener) refused() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foreign
}

// errVersion is why there is no agent; it was refused.
func (l *Listener) errVersion() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errs.E(errs.Unsupported, "the sandbox's agent speaks version %d of its protocol, and this daemon versions %d to %d",
		int(l.version), sandbox.OldestAgentProtocol, sandbox.AgentProtocol).
		Hint("the sandbox was started by another version of cubby: stop and start it")
}
