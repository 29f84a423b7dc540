package modes

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
)

// checkpoint shows a step's end.
func (r *Renderer) checkpoint(at time.Time, step conversation.Step) {
	r.seen[step.ID] = true
	known := r.last.ID != "" && r.last.Source != conversation.SourceInput
	r.last = step
	if step.Source != conversation.SourceInput {
		r.emit(Values, string(Values), stateAt(step.ID))
		r.completed(step.ID, known)
	}
	r.shown(at, step.ID, func(c conversation.Checkpoint) conversation.Checkpoint {
		c.ID, c.Parent, c.Source, c.Step, c.Next = step.ID, step.Parent, step.Source, step.Step, step.Next
		return c
	})
}

// resumed shows the checkpoint that a run goes on from.
func (r *Renderer) resumed(at time.Time, id string) {
	r.seen[id] = true
	r.last = conversation.Step{ID: id}
	r.emit(Values, string(Values), stateAt(id))
	r.completed(id, false)
	r.shown(at, id, func(c conversation.Checkpoint) conversation.Checkpoint { return c })
}

type checkpointEvent struct {
	Values   valuesOf `json:"values"`
	Metadata metadata `json:"metadata"`
	Next     []string `json:"next"`
}

type debugCheckpoint struct {
	Config       config         `json:"config"`
	ParentConfig *config        `json:"parent_config,omitempty"`
	Values       valuesOf       `json:"values"`
	Metadata     metadata       `json:"metadata"`
	Next         []string       `json:"next"`
	Tasks        []pendingTask  `json:"tasks"`
	Checkpoint   *CheckpointRef `json:"checkpoint"`
	Parent       *CheckpointRef `json:"parent_checkpoint"`
}

type config struct {
	Configurable   metadata `json:"configurable"`
	Metadata       metadata `json:"metadata"`
	RecursionLimit int      `json:"recursion_limit,omitempty"`
	Tags           []string `json:"tags"`
}

// CheckpointRef names a checkpoint, as the platform's clients send and read it.
type CheckpointRef struct {
	ThreadID string         `json:"thread_id"`
	ID       string         `json:"checkpoint_id"`
	NS       string         `json:"checkpoint_ns"`
	Map      map[string]any `json:"checkpoint_map"`
}

// Ref names a checkpoint of a thread; "" is none.
func Ref(thread, id string) *CheckpointRef {
	if id == "" {
		return nil
	}
	return &CheckpointRef{ThreadID: thread, ID: id}
}

type pendingTask struct {
	ID         string                   `json:"id"`
	Name       string                   `json:"name"`
	Path       []string                 `json:"path"`
	Interrupts []conversation.Interrupt `json:"interrupts"`
}

// Path is where the platform says that a node stands in the graph.
func Path(node string) []string { return []string{"__pregel_pull", node} }

// shown adds the two views of a checkpoint. As says what of it the journal knows
// better than the store, where it changes when its tasks fail or wait.
func (r *Renderer) shown(at time.Time, id string, as func(conversation.Checkpoint) conversation.Checkpoint) {
	about := r.runMetadata()
	read := func(ctx context.Context, s States) (conversation.Checkpoint, valuesOf, error) {
		c, m, err := s.State(ctx, id)
		return as(c), values(m), err
	}
	r.emit(Checkpoints, string(Checkpoints), func(ctx context.Context, s States) (any, error) {
		c, v, err := read(ctx, s)
		return checkpointEvent{v, positionOf(c), orNoNodes(c.Next)}, err
	})
	r.emit(Debug, string(Debug), func(ctx context.Context, s States) (any, error) {
		c, v, err := read(ctx, s)
		if err != nil {
			return nil, err
		}
		d := debugCheckpoint{
			Config: r.configOf(c.ID, about), Values: v, Metadata: positionOf(c), Next: orNoNodes(c.Next), Tasks: []pendingTask{},
			Checkpoint: Ref(r.run.ThreadID, c.ID), Parent: Ref(r.run.ThreadID, c.Parent),
		}
		if c.Parent != "" {
			p := r.configOf(c.Parent, about)
			d.ParentConfig = &p
		}
		for _, t := range c.Tasks {
			d.Tasks = append(d.Tasks, pendingTask{t.ID, t.Name, Path(t.Name), []conversation.Interrupt{}})
		}
		return debugEvent{c.Step, "checkpoint", at.UTC(), d}, nil
	})
}

func orNoNodes(next []string) []string {
	if next == nil {
		return []string{}
	}
	return next
}

// positionOf is what a checkpoint says of how it came to be.
func positionOf(c conversation.Checkpoint) metadata {
	return metadata{"source": c.Source, "step": c.Step, "parents": map[string]string{}}
}

func (r *Renderer) configOf(checkpoint string, about metadata) config {
	return config{
		Configurable: metadata{
			"thread_id": r.run.ThreadID, "checkpoint_ns": "", "checkpoint_id": checkpoint,
			"run_id": r.run.ID, "graph_id": r.run.GraphID, "assistant_id": r.run.AssistantID,
		},
		Metadata: about, RecursionLimit: r.run.Request.RecursionLimit, Tags: orNoNodes(r.run.Request.Tags),
	}
}
