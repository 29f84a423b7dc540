package agentapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/front/sse"
)

// waitRun begins a run and answers with the state that it leaves.
func (d *door) waitRun(w http.ResponseWriter, r *http.Request) error {
	b, err := d.begin(r, true)
	if err != nil {
		return err
	}
	return d.wait(w, r, b.thread.ID, b.run.ID, b.cancels())
}

// joinRun waits for a run that was begun before.
func (d *door) joinRun(w http.ResponseWriter, r *http.Request) error {
	thread, run := r.PathValue("thread_id"), r.PathValue("run_id")
	if _, err := d.Runs.Get(r.Context(), thread, run); err != nil {
		return err
	}
	return d.wait(w, r, thread, run, yes(r.URL.Query().Get("cancel_on_disconnect")))
}

// outcome is what a run has left.
type outcome struct {
	state agent.State
	run   conversation.Run
}

// wait answers when a run has ended. The status goes first, because the wait may take
// long: clients that lose the connection are told where to come back to. Until the
// answer is there lines without text keep the connection.
func (d *door) wait(w http.ResponseWriter, r *http.Request, thread, run string, cancelOnDisconnect bool) error {
	ctx := r.Context()
	release, err := d.attach(ctx, thread, run, cancelOnDisconnect)
	if err != nil {
		return err
	}
	defer release()
	place(w.Header(), thread, run, "/join")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	if control.Flush() != nil {
		return nil // the client is gone
	}
	source := func(ctx context.Context) iter.Seq2[outcome, error] {
		return func(yield func(outcome, error) bool) {
			state, ended, err := d.Runs.Wait(ctx, thread, run)
			yield(outcome{state, ended}, err)
		}
	}
	var answer []byte
	err = sse.Pump(ctx, d.Life.Done(), source, d.heartbeat, func(o outcome) error {
		var err error
		answer, err = json.Marshal(answerOf(o))
		o.state.Release()
		return err
	}, func() error {
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		return control.Flush()
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, sse.ErrDraining):
		panic(http.ErrAbortHandler)
	case err != nil:
		d.LogInternal(ctx, err)
		e := bodyOf(err)
		answer, _ = json.Marshal(failed{failure{e.Error, e.Message}}) // texts
	}
	_, _ = w.Write(append(answer, '\n')) // the client is gone: nobody is left to tell
	return nil
}

// failed is the answer of a run that failed.
type failed struct {
	Error any `json:"__error__"`
}

// paused is the answer of one that waits.
type paused struct {
	values

	Interrupts []conversation.Interrupt `json:"__interrupt__"`
}

func answerOf(o outcome) any {
	if o.run.Status == conversation.RunFailed || o.run.Status == conversation.RunTimeout {
		if conversation.Given(o.run.Error) {
			return failed{o.run.Error}
		}
		return failed{failure{"Error", "the run ended with the status " + string(o.run.Status)}}
	}
	if o.state.Checkpoint.ID == "" {
		return nil
	}
	v := valuesOf(o.state.Messages)
	if o.run.Status == conversation.RunSuccess && len(o.state.Checkpoint.Next) > 0 && o.state.Checkpoint.RunID == o.run.ID {
		why := []conversation.Interrupt{}
		for _, t := range o.state.Checkpoint.Tasks {
			why = append(why, t.Interrupts...)
		}
		return paused{v, why}
	}
	return v
}
