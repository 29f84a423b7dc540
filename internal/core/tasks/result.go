package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/task"
)

// Bounds of a result, which is stored.
const (
	maxFinal  = 64 << 10
	maxText   = 4 << 10
	maxName   = 4 << 10
	maxFiles  = 1000
	stderrEnd = 2 << 10
)

// Result makes the result of an exec that is a task, or restores what one changed:
// see [live.Operation].
func (t *Tasks) Result(ctx context.Context, x sandbox.Exec) (json.RawMessage, error) {
	if x.Spec.Kind == task.KindRestore {
		return t.restored(ctx, x)
	}
	r, err := t.collect(ctx, x)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// resultOf is how a finished task ended.
func resultOf(x sandbox.Exec) task.Result {
	var r task.Result
	if x.Result == nil || json.Unmarshal(x.Result, &r) != nil {
		r = task.Result{}
	}
	settle(&r, x, "")
	return r
}

// gathered is what the records of a task say about its end.
type gathered struct {
	records    int
	done       *task.Result
	checkpoint string
	tokens     task.Tokens
	files      []string
	stderr     []byte // its end
}

// collect makes the result of a finished exec out of its records, and of its end
// where the supervisor did not come to say it.
func (t *Tasks) collect(ctx context.Context, x sandbox.Exec) (task.Result, error) {
	var g gathered
	for r, err := range records(g.hear(t.cfg.Journals.Read(ctx, x.Box, x.Seq, 0, false))) {
		if errs.KindOf(err) == errs.NotFound {
			break // it never ran
		}
		if err != nil {
			return task.Result{}, err
		}
		g.add(r)
	}
	r := task.Result{Checkpoint: g.checkpoint, Tokens: g.tokens, FilesChanged: g.files}
	if g.done != nil && x.Exit.Reason == sandbox.EndExited {
		r = *g.done
	}
	if g.records == 0 && x.Exit.Reason == sandbox.EndKilled {
		r.Status, r.FailureReason = task.Failed, task.ReasonInternal
		r.ErrorMessage = "its supervisor did not begin; a sandbox that runs since before an update of cubby has to be stopped and started first"
	}
	settle(&r, x, string(g.stderr))
	return r, nil
}

// hear passes entries on and keeps the end of standard error.
func (g *gathered) hear(entries iter.Seq2[journal.Entry, error]) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		for entry, err := range entries {
			if err == nil && entry.Exit == nil && entry.Output.Stream == sandbox.Stderr {
				g.stderr = append(g.stderr, entry.Output.Data...)
				g.stderr = g.stderr[max(0, len(g.stderr)-stderrEnd):]
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

func (g *gathered) add(r task.Record) {
	g.records++
	// A record that is not what its type says tells nothing.
	switch r.Type {
	case task.StatusType:
		var s task.Status
		if json.Unmarshal(r.Data, &s) == nil && s.Checkpoint != "" {
			g.checkpoint = s.Checkpoint
		}
	case task.UsageType:
		_ = json.Unmarshal(r.Data, &g.tokens)
	case task.DiffType:
		var d task.Diff
		if json.Unmarshal(r.Data, &d) == nil && len(g.files) < maxFiles {
			g.files = append(g.files, d.Path)
		}
	case task.DoneType:
		var done task.Result
		if json.Unmarshal(r.Data, &done) == nil {
			g.done = &done
		}
	}
}

// settle makes a result whole and true: what the host knows better replaces what
// the supervisor said, and texts are bounded.
func settle(r *task.Result, x sandbox.Exec, stderr string) {
	r.ID, r.CreatedAt, r.StartedAt, r.FinishedAt = string(x.UID), x.CreatedAt.UTC(), x.StartedAt.UTC(), x.FinishedAt.UTC()
	r.DurationMS = x.Took().Milliseconds()
	switch r.Status {
	case task.Succeeded, task.Cancelled, task.Failed:
	default:
		r.Status, r.FailureReason, r.ErrorMessage = ended(x, stderr)
	}
	if r.FilesChanged = r.FilesChanged[:min(len(r.FilesChanged), maxFiles)]; r.FilesChanged == nil {
		r.FilesChanged = []string{}
	}
	for i, name := range r.FilesChanged {
		r.FilesChanged[i], _ = shorten(name, maxName)
	}
	r.FinalMessage, _ = shorten(r.FinalMessage, maxFinal)
	for _, text := range []*string{&r.FailureReason, &r.ErrorMessage, &r.BuildMessage, &r.PreviewStatus, &r.PreviewMessage, &r.Checkpoint, &r.CheckpointMessage, &r.Session, &r.StopReason} {
		*text, _ = shorten(*text, maxText)
	}
	if p := r.Push; p != nil {
		p.Message, _ = shorten(p.Message, maxText)
	}
}

// ended is how a task ended whose supervisor did not say it.
func ended(x sandbox.Exec, stderr string) (status task.State, reason, message string) {
	exit := x.Exit
	if exit == nil {
		return task.Failed, task.ReasonInternal, "nobody knows how it ended"
	}
	switch exit.Reason {
	case sandbox.EndKilled:
		return task.Cancelled, task.ReasonCancelled, "it was killed"
	case sandbox.EndTimeout:
		return task.Failed, task.ReasonTimeout, "the time limit was over"
	case sandbox.EndOOM:
		return task.Failed, task.ReasonAgent, "out of memory: " + exit.Message
	case sandbox.EndStopped, sandbox.EndDestroyed, sandbox.EndDied, sandbox.EndLost:
		return task.Failed, task.ReasonUnavailable, exit.Message
	case sandbox.EndNotRun, sandbox.EndDiskFull:
		return task.Failed, task.ReasonInternal, exit.Message
	}
	message = "its supervisor ended without a result"
	if exit.Code != nil {
		message = fmt.Sprintf("its supervisor ended with exit code %d", *exit.Code)
	}
	if stderr != "" {
		message += ": " + stderr
	}
	return task.Failed, task.ReasonInternal, message
}

// records reads the lines of a supervisor's standard output. What is no record is
// left out, and so is a line that has no end yet.
func records(entries iter.Seq2[journal.Entry, error]) iter.Seq2[task.Record, error] {
	return func(yield func(task.Record, error) bool) {
		var line []byte
		long := false
		for entry, err := range entries {
			if err != nil {
				yield(task.Record{}, err)
				return
			}
			if entry.Exit != nil || entry.Output.Stream != sandbox.Stdout {
				continue
			}
			for rest := entry.Output.Data; len(rest) > 0; {
				piece, after, whole := bytes.Cut(rest, []byte("\n"))
				rest = after
				if long = long || len(line)+len(piece) > task.MaxRecord; !long {
					line = append(line, piece...)
				}
				if !whole {
					break
				}
				if r, ok := task.Read(line); ok && !long {
					if !yield(r, nil) {
						return
					}
				}
				line, long = line[:0], false
			}
		}
	}
}
