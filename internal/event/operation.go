package event

import (
	"encoding/json"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Waits says that an exec is in a queue. The store numbers it.
func Waits(x sandbox.Exec) sandbox.Event {
	return ofExec(x, sandbox.ExecPending, ExecQueue{x.Spec.Session})
}

// Began says that an exec runs.
func Began(x sandbox.Exec) sandbox.Event {
	var p Payload = ExecStart{Seq: x.Seq, Session: x.Spec.Session, Terminal: x.Spec.Terminal}
	if run := x.Spec.Service; run != nil {
		p = ServiceStart{Service: run.Name, Seq: x.Seq}
	}
	e := ofExec(x, sandbox.ExecRunning, p)
	e.Time = x.StartedAt
	return e
}

// Ended says how a finished exec ended, after the limits that it met and the
// kernel that it took with it.
func Ended(x sandbox.Exec) []sandbox.Event {
	var all []sandbox.Event
	for _, limit := range limits(*x.Exit) {
		e := New(x.Box, x.Actor, Limit{Seq: x.Seq, Limit: limit})
		e.Seq = x.Seq
		all = append(all, e)
	}
	if why := kernelDeath(x); why != "" {
		e := New(x.Box, x.Actor, KernelDeath{Kernel: x.Spec.Cell.Kernel, Seq: x.Seq, Reason: why})
		e.Seq = x.Seq
		all = append(all, e)
	}
	var p Payload = ExecEnd{Seq: x.Seq, Reason: x.Exit.Reason, Code: x.Exit.Code}
	if run := x.Spec.Service; run != nil {
		p = ServiceEnd{Service: run.Name, Seq: x.Seq, Reason: x.Exit.Reason, Code: x.Exit.Code}
	}
	e := ofExec(x, x.Status, p)
	e.Result = x.Result
	if e.Result == nil {
		// A struct of strings and numbers: no value of it fails.
		e.Result, _ = json.Marshal(ending{
			Reason: x.Exit.Reason, Code: x.Exit.Code, Signal: x.Exit.Signal, Millis: x.Took().Milliseconds(),
		})
	}
	return append(all, e)
}

// kernelDeath is why a kernel ended under its code; "": it did not.
func kernelDeath(x sandbox.Exec) string {
	if x.Spec.Cell == nil || x.Result == nil {
		return ""
	}
	var result struct {
		Died string `json:"kernel_died"`
	}
	// A result that is no object tells of no death.
	_ = json.Unmarshal(x.Result, &result)
	return result.Died
}

// ending is the result of a plain command; its output is in the journal.
type ending struct {
	Reason sandbox.EndReason `json:"reason"`
	Code   *int              `json:"exit_code"`
	Signal string            `json:"signal,omitempty"`
	Millis int64             `json:"duration_ms"`
}

// ofExec makes an event of a plain command, or of the operation that it is:
// then the kind is the operation's and the payload what it was asked.
func ofExec(x sandbox.Exec, status sandbox.ExecStatus, p Payload) sandbox.Event {
	e := New(x.Box, x.Actor, p)
	if x.Spec.Kind != "" {
		e.Kind, e.Payload = x.Spec.Kind, sandbox.KeptDetail(x.Spec.Detail)
	}
	e.Seq, e.Status = x.Seq, status
	return e
}

func limits(x sandbox.Exit) []string {
	var all []string
	switch x.Reason {
	case sandbox.EndOOM:
		all = append(all, "memory")
	case sandbox.EndTimeout:
		all = append(all, "time")
	case sandbox.EndDiskFull:
		all = append(all, "host_disk")
	}
	if x.StdoutCut > 0 || x.StderrCut > 0 || x.RichCut > 0 {
		all = append(all, "output")
	}
	return all
}
