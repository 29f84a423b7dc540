package agentapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/agentapi/modes"
)

// RunCreate is what a run is to do. Fields of the platform that make no difference
// here are ignored.
type RunCreate struct {
	AssistantID       string                `json:"assistant_id" doc:"An assistant's id, or the graph's: agent"`
	Input             json.RawMessage       `json:"input,omitempty" doc:"{\"messages\":[…]}; left out: the thread goes on where it stands"`
	Command           *conversation.Command `json:"command,omitempty" doc:"Answers what the thread waits for."`
	Config            RunConfig             `json:"config,omitempty"`
	Context           json.RawMessage       `json:"context,omitempty"`
	Metadata          object                `json:"metadata,omitempty"`
	StreamMode        texts                 `json:"stream_mode,omitempty"`
	InterruptBefore   texts                 `json:"interrupt_before,omitempty" doc:"Nodes, tools, or * for all nodes"`
	InterruptAfter    texts                 `json:"interrupt_after,omitempty"`
	CheckpointID      string                `json:"checkpoint_id,omitempty" doc:"To go on from; left out: the newest"`
	Checkpoint        *CheckpointChoice     `json:"checkpoint,omitempty"`
	MultitaskStrategy string                `json:"multitask_strategy,omitempty" doc:"reject, interrupt, rollback or enqueue, when another run goes on. Left out: it is interrupted if nobody follows it, and this one rejected otherwise."`
	OnDisconnect      string                `json:"on_disconnect,omitempty" doc:"cancel, or continue, which is the default"`
	OnCompletion      string                `json:"on_completion,omitempty" doc:"Of a run without a thread: keep, or delete, which is the default"`
	IfNotExists       string                `json:"if_not_exists,omitempty" doc:"create makes the thread; reject is the default"`
	AfterSeconds      float64               `json:"after_seconds,omitempty"`
	Webhook           string                `json:"webhook,omitempty" doc:"An http or https URL that the run's end is posted to"`
}

// RunConfig is how a run is done.
type RunConfig struct {
	Tags           []string `json:"tags,omitempty"`
	RecursionLimit int      `json:"recursion_limit,omitempty" doc:"Steps that it may take"`
	Metadata       object   `json:"metadata,omitempty" doc:"Added to the run's metadata, which win."`
	Configurable   object   `json:"configurable,omitempty" doc:"chat_model and the like; chat_model_api_key is used and not kept"`
}

// oneOf checks a field with few values; "" is the default.
func oneOf(field, value string, values ...string) error {
	if value == "" || slices.Contains(values, value) {
		return nil
	}
	return errs.E(errs.Invalid, "%s: %.40q is not one of %q", field, value, values)
}

// check refuses what cannot be done.
func (c *RunCreate) check() error {
	for _, err := range []error{
		oneOf("multitask_strategy", c.MultitaskStrategy, "reject", "interrupt", "rollback", "enqueue"),
		oneOf("on_disconnect", c.OnDisconnect, "cancel", "continue"),
		oneOf("on_completion", c.OnCompletion, "keep", "delete"),
		oneOf("if_not_exists", c.IfNotExists, "create", "reject"),
		c.Checkpoint.ofNoSubgraph(),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case c.AssistantID == "":
		return unprocessable(errs.E(errs.Invalid, "assistant_id is missing").Hint("the graph's own assistant is %q", conversation.Graph))
	case c.AfterSeconds > 0:
		return unprocessable(errs.E(errs.Invalid, "after_seconds: runs begin at once"))
	case c.Config.RecursionLimit < 0:
		return errs.E(errs.Invalid, "config.recursion_limit: negative")
	}
	_, err := modes.Parse(c.StreamMode)
	return err
}

// cancels reports whether the run ends with its client.
func (c *RunCreate) cancels() bool { return c.OnDisconnect == "cancel" }

// run is what the agent is asked; followed: the client waits for it.
func (c *RunCreate) run(followed bool) agent.NewRun {
	at := c.CheckpointID
	if at == "" {
		at = c.Checkpoint.id()
	}
	return agent.NewRun{
		AssistantID: c.AssistantID, Metadata: c.metadata(), Multitask: conversation.Multitask(c.MultitaskStrategy),
		Make: c.IfNotExists == "create", Keep: c.OnCompletion == "keep",
		Request: conversation.RunRequest{
			Input: c.Input, Command: c.Command, Checkpoint: at, Tags: c.Config.Tags, RecursionLimit: c.Config.RecursionLimit,
			Configurable: c.Config.Configurable, Context: c.Context, InterruptBefore: c.InterruptBefore, InterruptAfter: c.InterruptAfter,
			StreamMode: c.StreamMode, CancelOnLeave: followed && c.cancels(), Webhook: c.Webhook,
		},
	}
}

// metadata is the run's own and those of its configuration.
func (c *RunCreate) metadata() object {
	if len(c.Config.Metadata) == 0 {
		return c.Metadata
	}
	all := maps.Clone(c.Config.Metadata)
	maps.Copy(all, c.Metadata)
	return all
}

// begun is a run that a request made.
type begun struct {
	RunCreate

	run    conversation.Run
	thread conversation.Thread
}

// begin makes the run that a request is for, in the thread of its path if there is
// one; followed: the client waits for it.
func (d *door) begin(r *http.Request, followed bool) (begun, error) {
	data, err := body(r)
	if err != nil {
		return begun{}, err
	}
	return d.beginOf(r, data, followed)
}

func (d *door) beginOf(r *http.Request, data []byte, followed bool) (begun, error) {
	var b begun
	if len(data) > 0 {
		if err := cannotInRuns.check(data); err != nil {
			return b, err
		}
		if err := front.DecodeLoose(data, &b.RunCreate); err != nil {
			if json.Valid(data) { // a field has a value that it cannot have
				err = unprocessable(err)
			}
			return b, err
		}
	}
	if err := b.check(); err != nil {
		return b, err
	}
	var err error
	b.run, b.thread, err = d.Runs.Create(r.Context(), r.PathValue("thread_id"), b.RunCreate.run(followed))
	return b, refused(err)
}
