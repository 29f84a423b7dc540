package agentapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// AssistantVersion is an assistant as it was.
type AssistantVersion struct {
	ID          string          `json:"assistant_id"`
	GraphID     string          `json:"graph_id"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Version     int             `json:"version"`
	Config      json.RawMessage `json:"config"`
	Context     json.RawMessage `json:"context"`
	Metadata    object          `json:"metadata"`
	CreatedAt   time.Time       `json:"created_at"`
}

func versionOf(a conversation.Assistant) AssistantVersion {
	v := assistantOf(a)
	return AssistantVersion{v.ID, v.GraphID, v.Name, v.Description, v.Version, v.Config, v.Context, v.Metadata, v.CreatedAt}
}

func (d *door) assistantVersions(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		page

		Metadata object `json:"metadata"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	list, err := d.Assistants.Versions(r.Context(), r.PathValue("assistant_id"), in.Metadata, *in.Offset, *in.Limit)
	if err != nil {
		return err
	}
	return writeEach(w, each(list, versionOf))
}

// VersionChoice is the version of an assistant that is to be used.
type VersionChoice struct {
	Version int `json:"version"`
}

func (d *door) latestAssistant(w http.ResponseWriter, r *http.Request) error {
	var in VersionChoice
	if err := read(r, &in); err != nil {
		return err
	}
	if in.Version < 1 {
		return unprocessable(errs.E(errs.Invalid, "version: not a number from 1 on"))
	}
	a, err := d.Assistants.Use(r.Context(), r.PathValue("assistant_id"), in.Version)
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, assistantOf(a))
	return nil
}
