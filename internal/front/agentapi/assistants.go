package agentapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// Assistant is the graph with settings of its own.
type Assistant struct {
	ID          string          `json:"assistant_id"`
	GraphID     string          `json:"graph_id"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Version     int             `json:"version"`
	Config      json.RawMessage `json:"config"`
	Context     json.RawMessage `json:"context"`
	Metadata    object          `json:"metadata"`
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`
}

func assistantOf(a conversation.Assistant) Assistant {
	out := Assistant{
		ID: a.ID, GraphID: a.GraphID, Name: a.Name, Version: a.Version, Config: orEmpty(a.Config), Context: orEmpty(a.Context),
		Metadata: orNoFields(a.Metadata), CreatedAt: a.CreatedAt.UTC(), UpdatedAt: a.UpdatedAt.UTC(),
	}
	if a.Description != "" {
		out.Description = &a.Description
	}
	return out
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if !conversation.Given(raw) {
		return json.RawMessage(`{}`)
	}
	return raw
}

func orNoFields(o object) object {
	if o == nil {
		return object{}
	}
	return o
}

// AssistantCreate is what an assistant is made from.
type AssistantCreate struct {
	ID          string          `json:"assistant_id,omitempty"`
	GraphID     string          `json:"graph_id" doc:"agent"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Config      json.RawMessage `json:"config,omitempty"`
	Context     json.RawMessage `json:"context,omitempty"`
	Metadata    object          `json:"metadata,omitempty"`
	IfExists    string          `json:"if_exists,omitempty" doc:"raise, which is the default, or do_nothing"`
}

// doNothing reads what is to become of a thing that exists.
func doNothing(ifExists string) (bool, error) {
	switch ifExists {
	case "", "raise", "error":
		return false, nil
	case "do_nothing":
		return true, nil
	}
	return false, errs.E(errs.Invalid, "if_exists: %.40q is neither raise nor do_nothing", ifExists)
}

func (d *door) createAssistant(w http.ResponseWriter, r *http.Request) error {
	var in AssistantCreate
	if err := read(r, &in); err != nil {
		return err
	}
	keep, err := doNothing(in.IfExists)
	if err != nil {
		return err
	}
	if in.GraphID == "" {
		return unprocessable(errs.E(errs.Invalid, "graph_id is missing").Hint("the graph is %q", conversation.Graph))
	}
	made, err := d.Assistants.Create(r.Context(), agent.NewAssistant{
		ID: in.ID, GraphID: in.GraphID, Name: in.Name, Description: in.Description, Config: in.Config, Context: in.Context, Metadata: in.Metadata, DoNothing: keep,
	})
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, assistantOf(made))
	return nil
}

type assistantSearch struct {
	page

	GraphID  string `json:"graph_id"`
	Name     string `json:"name"`
	Metadata object `json:"metadata"`
}

func (s assistantSearch) query() agent.AssistantQuery {
	return agent.AssistantQuery{
		GraphID: s.GraphID, Name: s.Name, Metadata: s.Metadata, SortBy: s.SortBy, Descending: s.Order != "asc", Limit: *s.Limit, Offset: *s.Offset,
	}
}

func (d *door) searchAssistants(w http.ResponseWriter, r *http.Request) error {
	var in assistantSearch
	if err := read(r, &in); err != nil {
		return err
	}
	if err := in.check("assistant_id", "graph_id", "created_at", "updated_at", "name"); err != nil {
		return err
	}
	found, err := d.Assistants.Search(r.Context(), in.query())
	if err != nil {
		return err
	}
	return writePage(w, in.page, found.Total, found.Len, each(found, assistantOf))
}

func (d *door) countAssistants(w http.ResponseWriter, r *http.Request) error {
	var in assistantSearch
	if err := read(r, &in); err != nil {
		return err
	}
	in.page = page{}
	if err := in.check(); err != nil {
		return err
	}
	found, err := d.Assistants.Search(r.Context(), in.query())
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, found.Total)
	return nil
}

func (d *door) getAssistant(w http.ResponseWriter, r *http.Request) error {
	a, err := d.Assistants.Get(r.Context(), r.PathValue("assistant_id"))
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, assistantOf(a))
	return nil
}

func (d *door) updateAssistant(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		GraphID     *string         `json:"graph_id"`
		Name        *string         `json:"name"`
		Description *string         `json:"description"`
		Config      json.RawMessage `json:"config"`
		Context     json.RawMessage `json:"context"`
		Metadata    object          `json:"metadata"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	a, err := d.Assistants.Update(r.Context(), r.PathValue("assistant_id"), agent.AssistantPatch{
		GraphID: in.GraphID, Name: in.Name, Description: in.Description, Config: in.Config, Context: in.Context, Metadata: in.Metadata,
	})
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, assistantOf(a))
	return nil
}

func (d *door) deleteAssistant(w http.ResponseWriter, r *http.Request) error {
	a, err := d.Assistants.Get(r.Context(), r.PathValue("assistant_id"))
	if err != nil {
		return err
	}
	if err := d.Assistants.Delete(r.Context(), a.ID, yes(r.URL.Query().Get("delete_threads"))); err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, []string{a.ID})
	return nil
}
