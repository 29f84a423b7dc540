package settings

import (
	"context"
	"net/http"

	"github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/front"
)

func (d *door) set(change func(context.Context, settings.Patch) (settings.View, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var p settings.Patch
		if err := d.read(r, &p); err != nil {
			return err
		}
		v, err := change(r.Context(), p)
		if err != nil {
			return err
		}
		front.WriteJSON(w, http.StatusOK, settingsOf(v))
		return nil
	}
}

func (d *door) clear(w http.ResponseWriter, r *http.Request) error {
	if err := d.settings.Clear(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *door) models(w http.ResponseWriter, r *http.Request) error {
	list, err := d.settings.Models(r.Context(), r.URL.Query().Get("provider"))
	if err != nil {
		return err
	}
	out := ModelList{Models: []ModelInfo{}, Errors: map[string]string{}}
	for _, l := range list {
		if l.Err != nil {
			out.Errors[l.Provider] = d.Said(r.Context(), l.Err)
		}
		for _, m := range l.Models {
			out.Models = append(out.Models, ModelInfo{ID: l.Provider + "/" + m.ID, Provider: l.Provider, Name: m.Name, Context: m.Context})
		}
	}
	front.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (d *door) test(w http.ResponseWriter, r *http.Request) error {
	var t ModelTest
	if err := d.read(r, &t); err != nil {
		return err
	}
	model, err := d.settings.Test(r.Context(), t.Model)
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, ModelTested{OK: true, Model: model})
	return nil
}
