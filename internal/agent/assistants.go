package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
)

// Assistants is the graph under the names and with the settings of callers.
type Assistants struct{ s *Service }

// Assistants returns the handle.
func (s *Service) Assistants() *Assistants { return &Assistants{s} }

// AssistantQuery is a search; what is empty does not matter.
type AssistantQuery struct {
	GraphID, Name string
	Metadata      map[string]json.RawMessage
	SortBy        string
	Descending    bool
	Limit, Offset int
}

// graphs are the names of the graph. Each has an assistant that is always there.
var graphs = []string{conversation.Graph, conversation.GraphAlias}

// seed makes the assistants that are always there.
func (a *Assistants) seed(ctx context.Context) error {
	for _, graph := range graphs {
		_, err := a.s.cfg.Store.Assistant(ctx, owner(ctx), conversation.GraphAssistant(graph))
		if !errors.Is(err, errs.NotFound) {
			if err != nil {
				return err
			}
			continue
		}
		err = a.s.cfg.Store.CreateAssistant(ctx, conversation.Assistant{
			ID: conversation.GraphAssistant(graph), Tenant: owner(ctx), GraphID: graph, Name: graph, Version: 1,
			Config: json.RawMessage(`{}`), Context: json.RawMessage(`{}`),
			Metadata: map[string]json.RawMessage{"created_by": conversation.Text("system")},
		})
		if err != nil && !errors.Is(err, errs.Conflict) {
			return err
		}
	}
	return nil
}

// Search returns a page of the caller's assistants.
func (a *Assistants) Search(ctx context.Context, q AssistantQuery) (List[conversation.Assistant], error) {
	if err := a.seed(ctx); err != nil {
		return List[conversation.Assistant]{}, err
	}
	keys, total, err := a.s.cfg.Store.Assistants(ctx, store.AssistantQuery{
		Tenant: owner(ctx), GraphID: q.GraphID, Name: q.Name, Metadata: q.Metadata,
		SortBy: q.SortBy, Descending: q.Descending, Limit: q.Limit, Offset: q.Offset,
	})
	return List[conversation.Assistant]{total, len(keys), each(ctx, a.s, keys, func(key store.Key) (conversation.Assistant, error) {
		return a.s.cfg.Store.Assistant(ctx, owner(ctx), key.ID)
	})}, err
}

// Get returns an assistant by its id or by the name of its graph.
func (a *Assistants) Get(ctx context.Context, id string) (conversation.Assistant, error) {
	if slices.Contains(graphs, id) {
		id = conversation.GraphAssistant(id)
	}
	found, err := a.s.cfg.Store.Assistant(ctx, owner(ctx), id)
	if errors.Is(err, errs.NotFound) && isGraphs(id) {
		if err = a.seed(ctx); err == nil {
			found, err = a.s.cfg.Store.Assistant(ctx, owner(ctx), id)
		}
	}
	if errors.Is(err, errs.NotFound) {
		return found, errs.E(errs.NotFound, "Assistant with ID %.80s not found", id).Hint("the graph's own assistant is %q", conversation.Graph)
	}
	return found, err
}

// isGraphs reports whether an id is that of an assistant which is always there.
func isGraphs(id string) bool {
	return slices.ContainsFunc(graphs, func(g string) bool { return id == conversation.GraphAssistant(g) })
}

// NewAssistant is what an assistant is made from.
type NewAssistant struct {
	ID, GraphID, Name, Description string
	Config, Context                json.RawMessage
	Metadata                       map[string]json.RawMessage
	// DoNothing: one that exists is returned, and is no error.
	DoNothing bool
}

// Create makes an assistant. Conflict when it exists.
func (a *Assistants) Create(ctx context.Context, n NewAssistant) (conversation.Assistant, error) {
	if !slices.Contains(graphs, n.GraphID) {
		return conversation.Assistant{}, errs.E(errs.NotFound, "No graph %.80q", n.GraphID).Hint("the graph is %q", conversation.Graph)
	}
	if n.ID == "" {
		n.ID = uuid.NewString()
	} else if _, err := uuid.Parse(n.ID); err != nil {
		return conversation.Assistant{}, errs.E(errs.Invalid, "assistant_id: not a UUID")
	}
	if err := errors.Join(a.seed(ctx), a.s.mayKeep(ctx), checkConfig(n.Config), checkConfig(n.Context)); err != nil {
		return conversation.Assistant{}, err
	}
	if n.Name == "" {
		n.Name = n.GraphID
	}
	made := conversation.Assistant{
		ID: n.ID, Tenant: owner(ctx), GraphID: n.GraphID, Name: n.Name, Description: n.Description, Version: 1,
		Config: objectOr(n.Config), Context: objectOr(n.Context), Metadata: n.Metadata,
	}
	err := a.s.cfg.Store.CreateAssistant(ctx, made)
	if errors.Is(err, errs.Conflict) && n.DoNothing {
		return a.Get(ctx, n.ID)
	}
	if errors.Is(err, errs.Conflict) {
		return made, errs.E(errs.Conflict, "Assistant already exists")
	}
	if err != nil {
		return made, err
	}
	return a.Get(ctx, n.ID)
}

// AssistantPatch is what is to change; nil stays.
type AssistantPatch struct {
	GraphID, Name, Description *string
	Config, Context            json.RawMessage
	Metadata                   map[string]json.RawMessage // is merged
}

// Update changes an assistant, which gets the next version.
func (a *Assistants) Update(ctx context.Context, id string, p AssistantPatch) (conversation.Assistant, error) {
	was, err := a.Get(ctx, id)
	if err != nil {
		return was, err
	}
	if p.GraphID != nil && !slices.Contains(graphs, *p.GraphID) {
		return was, errs.E(errs.NotFound, "No graph %.80q", *p.GraphID)
	}
	if err := errors.Join(a.s.mayKeep(ctx), checkConfig(p.Config), checkConfig(p.Context)); err != nil {
		return was, err
	}
	return a.s.cfg.Store.ChangeAssistant(ctx, was.Tenant, was.ID, func(as *conversation.Assistant) error {
		for _, f := range []struct {
			to   *string
			from *string
		}{{&as.GraphID, p.GraphID}, {&as.Name, p.Name}, {&as.Description, p.Description}} {
			if f.from != nil {
				*f.to = *f.from
			}
		}
		if conversation.Given(p.Config) {
			as.Config = p.Config
		}
		if conversation.Given(p.Context) {
			as.Context = p.Context
		}
		as.Metadata = merged(as.Metadata, p.Metadata)
		return nil
	})
}

// Delete removes an assistant with its runs, which are canceled if they go on, and its
// threads if that is asked for. Those of the graphs stay.
func (a *Assistants) Delete(ctx context.Context, id string, withThreads bool) error {
	was, err := a.Get(ctx, id)
	if err != nil {
		return err
	}
	if isGraphs(was.ID) {
		return errs.E(errs.Conflict, "the assistant of a graph is always there")
	}
	if withThreads {
		of := map[string]json.RawMessage{"assistant_id": conversation.Text(was.ID)}
		for {
			page, _, err := a.s.cfg.Store.Conversations(ctx, store.ConversationQuery{Tenant: ownerOf(ctx), Metadata: of, Limit: 100})
			if err != nil {
				return err
			}
			for _, t := range page {
				if err := a.s.Threads().Delete(ctx, t.ID); err != nil && !errors.Is(err, errs.NotFound) {
					return err
				}
			}
			if len(page) == 0 {
				break
			}
		}
	}
	if err := a.deleteRuns(ctx, was); err != nil {
		return err
	}
	if err := a.s.cfg.Store.RemoveAssistant(ctx, was.Tenant, was.ID); err != nil {
		return err
	}
	return a.deleteRuns(ctx, was) // that began meanwhile
}

// deleteRuns ends and forgets the runs of an assistant. What they did to their threads
// stays.
func (a *Assistants) deleteRuns(ctx context.Context, as conversation.Assistant) error {
	for {
		runs, err := a.s.cfg.Store.RunsOfAssistant(ctx, as.Tenant, as.ID, 100)
		if err != nil || len(runs) == 0 {
			return err
		}
		for _, run := range runs {
			t, err := a.s.cfg.Store.ConversationOf(ctx, run.Thread)
			if err == nil && !run.Status.Ended() {
				_, err = a.s.Runs().Cancel(ctx, t.ID, run.ID, false, true)
			}
			if err == nil {
				err = a.s.Runs().Delete(ctx, t.ID, run.ID)
			}
			if err != nil && !errors.Is(err, errs.NotFound) { // its thread went
				return err
			}
		}
	}
}

// keyField is how requests bring the key of a provider, see [Choice].
const keyField = "chat_model_api_key"

// checkConfig refuses what is no object, and keys: what clients read back holds none.
func checkConfig(raw json.RawMessage) error {
	if !conversation.Given(raw) {
		return nil
	}
	var config map[string]json.RawMessage
	if json.Unmarshal(raw, &config) != nil {
		return errs.E(errs.Invalid, "config and context are objects")
	}
	var inner map[string]json.RawMessage
	_ = json.Unmarshal(config["configurable"], &inner) // what is none has no key
	if _, has := inner[keyField]; has || config[keyField] != nil {
		return errs.E(errs.Invalid, "%s cannot be kept in an assistant", keyField).Hint("set the key with cubby settings, or send it with each run")
	}
	return nil
}

func objectOr(raw json.RawMessage) json.RawMessage {
	if !conversation.Given(raw) {
		return json.RawMessage(`{}`)
	}
	return raw
}

// merged is a with what b has beside it or in its place.
func merged(a, b map[string]json.RawMessage) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(a)+len(b))
	for _, m := range []map[string]json.RawMessage{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}
