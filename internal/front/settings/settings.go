// Package settings is the door to the settings of the agent, below /v1/settings.
// Requests are read as strictly as the rest of /v1. It has no rule about settings
// and no answer with a key.
package settings

import (
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

type door struct {
	*httpapi.Server

	settings *settings.Settings
}

// Register returns what adds the routes to a server.
func Register(of *settings.Settings) func(*httpapi.Server) {
	return func(s *httpapi.Server) {
		d := &door{s, of}
		s.OpenAPI.Tags = append(s.OpenAPI.Tags, &huma.Tag{
			Name: "settings", Description: "Which models the agent asks, with whose keys, and what it may do.",
		})
		d.routes()
		d.describePatch()
	}
}

const (
	path = "/v1/settings"
	// whose ends the descriptions.
	whose = "A token of a tenant has the tenant's settings, any other one the operator's, which hold for tenants where they set none."
)

func (d *door) routes() {
	d.add(route{
		method: http.MethodGet, path: path, id: "get-settings", summary: "Read the settings of the agent, without keys",
		description: "500 when they cannot be opened: the daemon's key file is not the one that they were set with. " + whose,
		answer:      Settings{}, serve: d.get,
	})
	d.add(route{
		method: http.MethodPatch, path: path, id: "change-settings", summary: "Change some of the settings of the agent",
		description: "What is left out stays, null removes, and an empty key stays. " + whose,
		body:        SettingsPatch{}, answer: Settings{}, serve: d.set(d.settings.Set),
	})
	d.add(route{
		method: http.MethodPut, path: path, id: "replace-settings", summary: "Replace the settings of the agent",
		description: "What is left out is removed, but a provider that is named keeps its key unless it has another one. " + whose,
		body:        SettingsPatch{}, answer: Settings{}, serve: d.set(d.settings.Replace),
	})
	d.add(route{
		method: http.MethodDelete, path: path, id: "clear-settings", summary: "Remove all settings of the agent",
		description: "Also such as cannot be opened. " + whose, serve: d.clear,
	})
	d.add(route{
		method: http.MethodGet, path: path + "/models", id: "list-models", summary: "List the models of the providers that are set",
		description: "The providers are asked now, each for itself: errors has why one has no models.",
		query:       []*huma.Param{{Name: "provider", In: "query", Description: "Default: all.", Schema: &huma.Schema{Type: huma.TypeString}}},
		answer:      ModelList{}, serve: d.models,
	})
	d.add(route{
		method: http.MethodPost, path: path + "/test", id: "test-settings", summary: "Have a model answer something short",
		description: "200 says that it did; else the error is why not.",
		body:        ModelTest{}, answer: ModelTested{}, serve: d.test,
	})
}

// describePatch says that a provider of a patch may be null, for which the tags of a
// map have no word.
func (d *door) describePatch() {
	providers := d.OpenAPI.Components.Schemas.Map()["SettingsPatch"].Properties["providers"]
	one := providers.AdditionalProperties.(*huma.Schema)
	providers.AdditionalProperties = &huma.Schema{AnyOf: []*huma.Schema{{Ref: one.Ref}, {Type: "null"}}}
}

// route is an endpoint; serve answers, or returns why it could not and has written
// nothing.
type route struct {
	method, path, id, summary, description string
	query                                  []*huma.Param
	body, answer                           any // nil: none
	serve                                  func(w http.ResponseWriter, r *http.Request) error
}

func (d *door) add(r route) {
	op := &huma.Operation{
		OperationID: r.id, Method: r.method, Path: r.path, Tags: []string{"settings"}, Summary: r.summary, Description: r.description,
		Parameters: r.query,
		Responses:  map[string]*huma.Response{"default": d.ErrorResponse()},
	}
	if r.body != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: d.JSON(r.body)}
	}
	if r.answer == nil {
		op.Responses["204"] = &huma.Response{Description: "No Content"}
	} else {
		op.Responses["200"] = &huma.Response{Description: "OK", Content: d.JSON(r.answer)}
	}
	d.OpenAPI.AddOperation(op)
	d.Mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
		err := known(req.URL.RawQuery, r.query)
		if err == nil {
			err = r.serve(w, req)
		}
		if err != nil {
			d.Error(w, req, err)
		}
	})
}

// known refuses parameters of the query that a route does not have.
func known(query string, params []*huma.Param) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errs.E(errs.Invalid, "malformed query")
	}
	for name := range values {
		found := false
		for _, p := range params {
			found = found || p.Name == name
		}
		if !found {
			return errs.E(errs.Invalid, "unknown query parameter %.60q", name)
		}
	}
	return nil
}

// read decodes a body strictly.
func (d *door) read(r *http.Request, to any) error {
	text, err := front.ReadAtMost(r.Body, d.BodyLimit)
	if err != nil {
		return err
	}
	return front.DecodeStrict(text, to)
}

func (d *door) get(w http.ResponseWriter, r *http.Request) error {
	v, err := d.settings.Get(r.Context())
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, settingsOf(v))
	return nil
}
