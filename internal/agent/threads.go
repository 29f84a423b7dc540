package agent

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// Threads is the conversations of the callers' tenants.
type Threads struct{ s *Service }

// Threads returns the handle.
func (s *Service) Threads() *Threads { return &Threads{s} }

// ThreadView is a thread with its newest state.
type ThreadView struct {
	conversation.Thread

	Messages   []conversation.Message // nil: it has no state, or nobody asked for it
	Interrupts map[string][]conversation.Interrupt

	state State
}

// Release is [State.Release].
func (v ThreadView) Release() { v.state.Release() }

// NewThread is what a thread is made from.
type NewThread struct {
	ID        string // "" is a new one
	Metadata  map[string]json.RawMessage
	DoNothing bool // one that exists is returned, and is no error
}

// Create makes a thread. Conflict when it exists.
func (t *Threads) Create(ctx context.Context, n NewThread) (conversation.Thread, error) {
	if err := t.s.mayKeep(ctx); err != nil {
		return conversation.Thread{}, err
	}
	n.Metadata = unmarked(n.Metadata)
	return t.create(ctx, n)
}

func (t *Threads) create(ctx context.Context, n NewThread) (conversation.Thread, error) {
	if n.ID == "" {
		n.ID = uuid.NewString()
	}
	if err := sandbox.ValidateThread(n.ID); err != nil {
		return conversation.Thread{}, err
	}
	now := t.s.cfg.Now()
	made := conversation.Thread{
		UID: sandbox.NewUID(), ID: n.ID, Tenant: owner(ctx), Owner: auth.From(ctx).Name, Metadata: n.Metadata,
		Config: json.RawMessage(`{}`), Status: conversation.ThreadIdle, CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now,
	}
	err := t.s.cfg.Store.CreateConversation(ctx, made)
	switch {
	case errors.Is(err, errs.Conflict) && n.DoNothing:
		return t.find(ctx, n.ID)
	case errors.Is(err, errs.Conflict):
		return made, errs.E(errs.Conflict, "Thread already exists")
	}
	return made, err
}

// find returns a thread of the caller.
func (t *Threads) find(ctx context.Context, id string) (conversation.Thread, error) {
	found, err := t.s.cfg.Store.Conversation(ctx, owner(ctx), id)
	return found, noThread(id, err)
}

// Get returns a thread with its newest state.
func (t *Threads) Get(ctx context.Context, id string) (ThreadView, error) {
	found, err := t.find(ctx, id)
	if err != nil {
		return ThreadView{}, err
	}
	return t.view(ctx, found)
}

// view adds the state of a thread. It takes room for both.
func (t *Threads) view(ctx context.Context, th conversation.Thread) (ThreadView, error) {
	v := ThreadView{Thread: th, Interrupts: map[string][]conversation.Interrupt{}}
	if th.Head == "" {
		var err error
		v.state.release, err = t.room(ctx, th, 0)
		return v, err
	}
	at, err := t.load(ctx, th, "")
	if err != nil {
		return v, err
	}
	v.Thread, v.Messages, v.state = at.Thread, at.Messages, at
	for _, task := range at.Checkpoint.Tasks {
		if len(task.Interrupts) > 0 {
			v.Interrupts[task.ID] = task.Interrupts
		}
	}
	return v, nil
}

// ThreadQuery is a search; what is empty does not matter.
type ThreadQuery struct {
	IDs           []string
	Metadata      map[string]json.RawMessage
	Status        conversation.ThreadStatus
	SortBy        string
	Descending    bool
	Limit, Offset int
}

// Search returns a page of the caller's threads, with their states if those are asked
// for.
func (t *Threads) Search(ctx context.Context, q ThreadQuery, withState bool) (List[ThreadView], error) {
	keys, total, err := t.keys(ctx, q)
	return List[ThreadView]{total, len(keys), each(ctx, t.s, keys, func(key store.Key) (ThreadView, error) {
		th, err := t.s.cfg.Store.ConversationOf(ctx, key.UID)
		if err != nil {
			return ThreadView{}, err
		}
		if !withState {
			th.Head = ""
		}
		v, err := t.view(ctx, th)
		if errors.Is(err, errs.NotFound) { // its state has just gone
			return v, nil
		}
		return v, err
	})}, err
}

// IDs returns the ids of a page of the caller's threads, and how many there are in all.
func (t *Threads) IDs(ctx context.Context, q ThreadQuery) (ids []string, total int, err error) {
	keys, total, err := t.keys(ctx, q)
	for _, key := range keys {
		ids = append(ids, key.ID)
	}
	return ids, total, err
}

func (t *Threads) keys(ctx context.Context, q ThreadQuery) ([]store.Key, int, error) {
	return t.s.cfg.Store.Conversations(ctx, store.ConversationQuery{
		Tenant: ownerOf(ctx), IDs: q.IDs, Metadata: q.Metadata, Status: q.Status,
		SortBy: q.SortBy, Descending: q.Descending, Limit: q.Limit, Offset: q.Offset,
	})
}

// Update merges metadata into a thread's.
func (t *Threads) Update(ctx context.Context, id string, metadata map[string]json.RawMessage) (ThreadView, error) {
	found, err := t.find(ctx, id)
	if err != nil {
		return ThreadView{}, err
	}
	if err := t.s.mayKeep(ctx); err != nil {
		return ThreadView{}, err
	}
	found, err = t.s.cfg.Store.ChangeConversation(ctx, found.UID, func(th *conversation.Thread) error {
		th.Metadata, th.UpdatedAt = merged(th.Metadata, unmarked(metadata)), t.s.cfg.Now()
		return nil
	})
	if err != nil {
		return ThreadView{}, noThread(id, err)
	}
	return t.view(ctx, found)
}

// Delete ends a thread: its runs, its sandboxes and files, and all that it was.
func (t *Threads) Delete(ctx context.Context, id string) error {
	if err := t.s.enter(ctx); err != nil {
		return err
	}
	found, err := t.find(ctx, id)
	if err != nil {
		return err
	}
	return t.remove(ctx, found, nil)
}

// Ended forgets the conversation of a thread whose sandboxes are ended by other means;
// one that there is none of is no error.
func (t *Threads) Ended(ctx context.Context, id string) error {
	err := t.Delete(ctx, id)
	if errors.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// remove ends a thread; when only is not nil, only if that is true of the thread as it
// is once nobody can begin a run.
func (t *Threads) remove(ctx context.Context, th conversation.Thread, only func(conversation.Thread) bool) error {
	s := t.s
	unlock, err := s.threads.Lock(ctx, string(th.UID))
	if err != nil {
		return err
	}
	defer unlock()
	// While it has a row no other thread has its name, and so its sandboxes.
	now, err := s.cfg.Store.ConversationOf(ctx, th.UID)
	if err != nil {
		return noThread(th.ID, err)
	}
	if only != nil && !only(now) {
		return nil
	}
	if err := s.evict(ctx, th.UID, false); err != nil {
		return err
	}
	// What has a row can be found and removed again: that goes last.
	as := auth.WithPrincipal(ctx, auth.Principal{Name: th.Owner, Tenant: th.Tenant})
	if err := s.cfg.Hands.End(as, th.ID); err != nil {
		return err
	}
	if err := s.cfg.Journals.Remove(th.UID); err != nil {
		return err
	}
	return noThread(th.ID, s.cfg.Store.RemoveConversation(ctx, th.UID))
}

// Copy makes a thread with all that another one was.
func (t *Threads) Copy(ctx context.Context, id string) (conversation.Thread, error) {
	from, err := t.find(ctx, id)
	if err != nil {
		return from, err
	}
	made, err := t.Create(ctx, NewThread{Metadata: from.Metadata})
	if err != nil {
		return made, err
	}
	if err := t.copyStates(ctx, from, made); err != nil {
		return made, errors.Join(err, t.s.cfg.Store.RemoveConversation(context.WithoutCancel(ctx), made.UID))
	}
	return t.find(ctx, made.ID)
}

func (t *Threads) copyStates(ctx context.Context, from, to conversation.Thread) error {
	var all []store.Key // newest first
	for before := ""; ; {
		page, err := t.s.cfg.Store.Checkpoints(ctx, from.UID, store.CheckpointQuery{Before: before, Limit: 100})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		all, before = append(all, page...), page[len(page)-1].ID
	}
	places := map[int64]int64{}
	for i := len(all) - 1; i >= 0; i-- {
		c, err := t.s.cfg.Store.Checkpoint(ctx, from.UID, all[i].ID)
		if err != nil {
			return err
		}
		state, err := t.s.messages(ctx, from, c)
		if err != nil {
			return err
		}
		was := make([]int64, len(state))
		for k := range state {
			was[k] = state[k].Place
			state[k].Place = places[was[k]]
		}
		c.Metadata = merged(c.Metadata, map[string]json.RawMessage{"thread_id": conversation.Text(to.ID)})
		_, placed, err := t.s.cfg.Store.Commit(ctx, store.CommitRequest{
			Thread: to.UID, Checkpoint: c, State: state, Head: c.ID == from.Head, Durable: i == 0,
			Change: func(th *conversation.Thread) error {
				if th.Status = from.Status; th.Status == conversation.ThreadBusy {
					th.Status = statusOf(c.Next) // nothing runs in the copy
				}
				return nil
			},
		})
		if err != nil {
			return err
		}
		for k := range placed {
			places[was[k]] = placed[k].Place
		}
	}
	return nil
}
