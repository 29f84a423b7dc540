package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
)

// Runs is what goes on in threads.
type Runs struct{ s *Service }

// Runs returns the handle.
func (s *Service) Runs() *Runs { return &Runs{s} }

// NewRun is what a run is made from.
type NewRun struct {
	AssistantID string
	Request     conversation.RunRequest
	Metadata    map[string]json.RawMessage
	Multitask   conversation.Multitask
	// Make makes the thread when there is none.
	Make bool
	// Keep keeps the thread of a run that was asked for without one.
	Keep bool
}

// Create begins a run, or puts it behind the one that goes on. thread "" makes a
// thread that goes with the run, unless Keep. It is Conflict when another run goes on
// and this one was not to wait for it or to end it, and Unready when the caller has no
// model.
func (r *Runs) Create(ctx context.Context, thread string, n NewRun) (conversation.Run, conversation.Thread, error) {
	var none conversation.Run
	s := r.s
	if err := s.enter(ctx); err != nil {
		return none, conversation.Thread{}, err
	}
	if err := s.mayKeep(ctx); err != nil {
		return none, conversation.Thread{}, err
	}
	run, as, err := r.prepare(ctx, thread, n)
	if err != nil {
		return none, conversation.Thread{}, err
	}
	t, err := r.threadFor(ctx, thread, &run, n)
	if err != nil {
		return none, t, err
	}
	run, t, err = s.enqueue(ctx, t, run, as)
	if err != nil && thread == "" { // nobody has heard of it
		err = errors.Join(err, s.cfg.Store.RemoveConversation(context.WithoutCancel(ctx), t.UID))
	}
	return run, t, err
}

// prepare makes the run that is asked for, and refuses what can be refused beforehand.
func (r *Runs) prepare(ctx context.Context, thread string, n NewRun) (conversation.Run, conversation.Assistant, error) {
	var none conversation.Run
	s := r.s
	if n.AssistantID == "" {
		return none, conversation.Assistant{}, errs.E(errs.Invalid, "assistant_id: required").Hint("the graph's own assistant is %q", conversation.Graph)
	}
	as, err := s.Assistants().Get(ctx, n.AssistantID)
	if err != nil {
		return none, as, err
	}
	run := conversation.Run{
		ID: uuid.NewString(), AssistantID: as.ID, Status: conversation.RunPending, Metadata: n.Metadata, Multitask: n.Multitask, Request: n.Request,
	}
	if err := complete(&run, as); err != nil {
		return none, as, err
	}
	if err := s.checkWebhook(ctx, run.Request.Webhook); err != nil {
		return none, as, err
	}
	if _, err := s.cfg.Models.Choose(ctx, choiceOf(run.Request, run.Secret)); err != nil {
		return none, as, err
	}
	_, err = asksOf(run.Request, s.cfg.Hands.Tools(ctx, thread, said(run.Request, "sandbox_id")).List())
	return run, as, err
}

// maxRunMetadata bounds the metadata of a run, which each of its checkpoints has beside
// cubby's own.
const maxRunMetadata = 200

// complete reads what the request says, and takes its key out of it.
func complete(run *conversation.Run, as conversation.Assistant) error {
	q := &run.Request
	if q.Command = q.Command.Normal(); q.Command != nil {
		q.Input = nil // as LangGraph has it: a command that says something is all that the run gets
		if _, err := q.Command.Move(); err != nil {
			return err
		}
	}
	_, err := conversation.ParseInput(q.Input)
	switch {
	case err != nil:
		return err
	case len(run.Metadata) > maxRunMetadata:
		return errs.E(errs.Invalid, "metadata: %d names, at most %d are possible", len(run.Metadata), maxRunMetadata)
	case q.RecursionLimit < 0:
		return errs.E(errs.Invalid, "recursion_limit: less than 1")
	case conversation.Given(q.Context) && !isObject(q.Context):
		return errs.E(errs.Invalid, "context: not an object")
	}
	switch run.Multitask {
	case "", conversation.MultitaskReject, conversation.MultitaskInterrupt, conversation.MultitaskRollback, conversation.MultitaskEnqueue:
	default:
		return errs.E(errs.Invalid, "multitask_strategy: %.40q is none", run.Multitask).Hint("it is reject, interrupt, rollback or enqueue")
	}
	q.Temporary = false // see threadFor
	if !conversation.Given(q.Input) {
		q.Input = nil
	}
	var config struct {
		Configurable   map[string]json.RawMessage `json:"configurable"`
		RecursionLimit int                        `json:"recursion_limit"`
	}
	_ = json.Unmarshal(as.Config, &config) // it is an object, and the rest is as well not there
	var fromContext, asked map[string]json.RawMessage
	_ = json.Unmarshal(as.Context, &fromContext)
	_ = json.Unmarshal(q.Context, &asked)
	if q.RecursionLimit == 0 {
		q.RecursionLimit = max(config.RecursionLimit, 0)
	}
	q.Configurable = merged(merged(merged(config.Configurable, fromContext), q.Configurable), asked)
	_ = json.Unmarshal(q.Configurable[keyField], &run.Secret) // what is no text is no key
	delete(q.Configurable, keyField)
	if asked != nil {
		delete(asked, keyField)
		raw, err := json.Marshal(asked)
		if err != nil {
			return errs.E(errs.Internal, "context cannot be written").Because(err)
		}
		q.Context = raw
	}
	return nil
}

func isObject(raw json.RawMessage) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(raw, &object) == nil && object != nil
}

// threadFor returns the thread that a run is for.
func (r *Runs) threadFor(ctx context.Context, id string, run *conversation.Run, n NewRun) (conversation.Thread, error) {
	if id == "" {
		run.Request.Temporary = !n.Keep
		var marks map[string]json.RawMessage
		if run.Request.Temporary {
			marks = map[string]json.RawMessage{temporary: json.RawMessage("true")}
		}
		return r.s.Threads().create(ctx, NewThread{Metadata: marks})
	}
	t, err := r.s.Threads().find(ctx, id)
	if errors.Is(err, errs.NotFound) && n.Make {
		return r.s.Threads().Create(ctx, NewThread{ID: id, DoNothing: true})
	}
	return t, err
}

// find returns a run of a thread of the caller, without a long input.
func (r *Runs) find(ctx context.Context, thread, id string) (conversation.Run, conversation.Thread, error) {
	t, err := r.s.Threads().find(ctx, thread)
	if err != nil {
		return conversation.Run{}, t, err
	}
	size, err := r.s.cfg.Store.SizeOfRun(ctx, t.UID, id, conversation.Refs{})
	if err != nil {
		return conversation.Run{}, t, err
	}
	leave, err := r.s.reading.enter(ctx, t.Tenant, size)
	if err != nil {
		return conversation.Run{}, t, err
	}
	defer leave()
	run, err := r.read(ctx, t, id)
	if errors.Is(err, errs.NotFound) {
		err = errs.E(errs.NotFound, "Run with ID %.80s not found", id)
	}
	return run, t, err
}

// read reads a run without a long input: as many may follow it, and each would hold it.
func (r *Runs) read(ctx context.Context, t conversation.Thread, id string) (conversation.Run, error) {
	run, err := r.s.cfg.Store.ConversationRun(ctx, t.UID, id)
	if len(run.Request.Input) > store.LongInput {
		run.Request.Input = nil
	}
	return run, err
}

// Get returns a run.
func (r *Runs) Get(ctx context.Context, thread, id string) (conversation.Run, error) {
	run, _, err := r.find(ctx, thread, id)
	return run, err
}

// RunQuery is which runs are asked for; what is empty does not matter.
type RunQuery struct {
	Status        conversation.RunStatus
	Limit, Offset int
}

// List returns runs of a thread, newest first.
func (r *Runs) List(ctx context.Context, thread string, q RunQuery) (List[conversation.Run], error) {
	var none List[conversation.Run]
	t, err := r.s.Threads().find(ctx, thread)
	if err != nil {
		return none, err
	}
	keys, err := r.s.cfg.Store.RunKeys(ctx, t.UID, store.RunQuery{Status: q.Status, Limit: q.Limit, Offset: q.Offset})
	return List[conversation.Run]{len(keys), len(keys), each(ctx, r.s, keys, func(key store.Key) (conversation.Run, error) {
		return r.read(ctx, t, key.ID)
	})}, err
}

// IDs are those of the runs of a thread that have a status; "" is any that has not
// ended.
func (r *Runs) IDs(ctx context.Context, thread string, status conversation.RunStatus) (ids []string, err error) {
	t, err := r.s.Threads().find(ctx, thread)
	if err != nil {
		return nil, err
	}
	keys, err := r.s.cfg.Store.RunKeys(ctx, t.UID, store.RunQuery{Status: status, Unfinished: true, Limit: 1000})
	for _, key := range keys {
		ids = append(ids, key.ID)
	}
	return ids, err
}

// Coming is the number of the run with which those begin who want no old news of a
// thread: the first that has not ended, else the next.
func (r *Runs) Coming(ctx context.Context, thread string) (int64, error) {
	t, err := r.s.Threads().find(ctx, thread)
	if err != nil {
		return 0, err
	}
	newest, err := r.s.cfg.Store.Runs(ctx, t.UID, store.RunQuery{Limit: 1})
	if err != nil {
		return 0, err
	}
	unfinished, err := r.s.cfg.Store.Runs(ctx, t.UID, store.RunQuery{Unfinished: true, Oldest: true, Limit: 1})
	switch {
	case err != nil || len(newest) == 0:
		return 1, err
	case len(unfinished) > 0:
		return unfinished[0].Seq, nil
	}
	return newest[0].Seq + 1, nil
}

// Next returns the first run of a thread whose number is from or greater, when there
// is one to follow. NotFound when the thread has ended.
func (r *Runs) Next(ctx context.Context, thread string, from int64) (conversation.Run, error) {
	var none conversation.Run
	t, err := r.s.Threads().find(ctx, thread)
	if err != nil {
		return none, err
	}
	more, stop := r.s.cfg.Store.WatchRuns(t.UID)
	defer stop()
	for {
		runs, err := r.s.cfg.Store.Runs(ctx, t.UID, store.RunQuery{From: from, Oldest: true, Limit: 1})
		if err != nil {
			return none, err
		}
		if len(runs) > 0 {
			// Whoever made it holds the thread until it has a journal.
			unlock, err := r.s.threads.Lock(ctx, string(t.UID))
			if err != nil {
				return none, err
			}
			unlock()
			return runs[0], nil
		}
		// Also before the first wait: it may have gone before it was watched.
		if _, err := r.s.cfg.Store.ConversationOf(ctx, t.UID); err != nil {
			return none, noThread(thread, err)
		}
		select {
		case <-more:
		case <-r.s.ended:
			return none, errs.E(errs.Unready, "the daemon is stopping").RetryAfter(time.Second)
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
}

// Delete forgets a run that has ended, with what it told; its checkpoints stay.
// Conflict while it goes on.
func (r *Runs) Delete(ctx context.Context, thread, id string) error {
	run, t, err := r.find(ctx, thread, id)
	if err != nil {
		return err
	}
	if !run.Status.Ended() {
		return errs.E(errs.Conflict, "the run goes on").Hint("cancel it first")
	}
	if _, err := r.s.cfg.Journals.RemoveLog(t.UID, run.Seq); err != nil {
		return err
	}
	return r.s.cfg.Store.RemoveRun(ctx, t.UID, id, false)
}

// cancelPatience is how long a cancel that does not wait for the end of its run gives it
// to end, so that its answer has the status that the run has afterwards.
const cancelPatience = 5 * time.Second

// Cancel ends a run; with rollback its checkpoints are taken back and the run is
// forgotten. It returns the run as it has ended, unless that takes long: with wait it
// waits for it. One that has ended already is returned as it is.
func (r *Runs) Cancel(ctx context.Context, thread, id string, rollback, wait bool) (conversation.Run, error) {
	if err := r.s.enter(ctx); err != nil {
		return conversation.Run{}, err
	}
	run, t, err := r.find(ctx, thread, id)
	if err != nil || run.Status.Ended() && !rollback {
		return run, err
	}
	s := r.s
	unlock, err := s.threads.Lock(ctx, string(t.UID))
	if err != nil {
		return run, err
	}
	done, err := s.cancel(ctx, t, run, rollback)
	unlock()
	if err != nil {
		return run, err
	}
	patience := ctx
	if !wait {
		var stop context.CancelFunc
		patience, stop = context.WithTimeout(ctx, cancelPatience)
		defer stop()
	}
	select {
	case <-done:
	case <-patience.Done():
		if err := ctx.Err(); err != nil {
			return run, err
		}
	}
	now, err := s.cfg.Store.ConversationRun(ctx, t.UID, id)
	if errors.Is(err, errs.NotFound) { // rolled back
		run.Status = conversation.RunInterrupted
		return run, nil
	}
	if err == nil && wait && !now.Status.Ended() {
		err = s.stopping() // the next daemon goes on with it
	}
	return now, err
}

// Attach notes that somebody follows a run, until release. With cancelOnLeave the run
// is canceled when the last one who follows it leaves before its end, or does not come
// back to the next daemon.
func (r *Runs) Attach(ctx context.Context, thread, id string, cancelOnLeave bool) (release func(), err error) {
	run, t, err := r.find(ctx, thread, id)
	if err == nil && cancelOnLeave {
		err = r.s.noteCancelOnLeave(ctx, t, run)
	}
	if err != nil {
		return nil, err
	}
	return r.s.attach(t.UID, id, cancelOnLeave), nil
}

// Wait returns when a run has ended, with the state that it left.
func (r *Runs) Wait(ctx context.Context, thread, id string) (State, conversation.Run, error) {
	for rec, err := range r.Follow(ctx, thread, id, 0) {
		if err != nil {
			return State{}, conversation.Run{}, err
		}
		if rec.Event.Ended == nil {
			continue
		}
		run, t, err := r.find(ctx, thread, id)
		if err != nil {
			return State{}, run, err
		}
		state, err := r.left(ctx, t, run)
		return state, run, err
	}
	return State{}, conversation.Run{}, errs.E(errs.Unready, "the daemon is stopping, and the run goes on with the next one")
}

// left is the state that a run left, whatever came after it; that of the thread when it
// made none.
func (r *Runs) left(ctx context.Context, t conversation.Thread, run conversation.Run) (State, error) {
	newest, err := r.s.cfg.Store.Checkpoints(ctx, t.UID, store.CheckpointQuery{RunID: run.ID, Limit: 1})
	if err != nil {
		return State{}, err
	}
	checkpoint := ""
	if len(newest) > 0 {
		checkpoint = newest[0].ID
	}
	return r.s.Threads().load(ctx, t, checkpoint)
}

// as is a context in which the thread's owner acts.
func as(ctx context.Context, t conversation.Thread) context.Context {
	return auth.WithPrincipal(ctx, auth.Principal{Name: t.Owner, Tenant: t.Tenant})
}

// said is what a request configures; "" is nothing.
func said(q conversation.RunRequest, key string) string {
	var text string
	if raw := q.Configurable[key]; json.Unmarshal(raw, &text) != nil && conversation.Given(raw) {
		return strings.Trim(string(raw), `"`) // a number or a truth
	}
	return text
}

// choiceOf is what a request says of its model, in the words of sandbox-agent's clients.
func choiceOf(q conversation.RunRequest, key string) Choice {
	return Choice{
		Model: cmp.Or(said(q, "chat_model"), said(q, "model")), BaseURL: said(q, "chat_model_base_url"), Provider: said(q, "chat_model_provider"), Key: key,
		Vision: truth(said(q, "chat_model_supports_vision")),
	}
}

// config is what a run works with.
func (s *Service) config(ctx context.Context, t conversation.Thread, run conversation.Run) (loop.Config, error) {
	q := run.Request
	secret, err := s.cfg.Store.RunSecret(ctx, t.UID, run.ID)
	if err != nil {
		return loop.Config{}, err
	}
	chosen, err := s.cfg.Models.Choose(ctx, choiceOf(q, secret))
	if err != nil {
		return loop.Config{}, err
	}
	box := said(q, "sandbox_id")
	tools := s.cfg.Hands.Tools(ctx, t.ID, box)
	asked, err := asksOf(q, tools.List())
	if err != nil {
		return loop.Config{}, err
	}
	c := loop.Config{
		Model: chosen.Model, Provider: chosen.Provider, Name: chosen.Name, Sight: chosen.Sight,
		Tools: tools, Policy: asked.Stricter(chosen.Policy),
		MaxTurns: chosen.MaxTurns, MaxSteps: q.RecursionLimit, MaxTokens: chosen.MaxTokens,
		InterruptBefore: q.InterruptBefore, InterruptAfter: q.InterruptAfter, Now: s.cfg.Now,
	}
	c.System = s.system(ctx, t, box)
	return c, nil
}

// truth reads a truth as clients of sandbox-agent write one.
func truth(s string) string {
	switch strings.ToLower(s) {
	case "true", "1", "yes", "on":
		return "true"
	case "false", "0", "no", "off":
		return "false"
	}
	return ""
}
