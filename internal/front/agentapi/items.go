package agentapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/agent/items"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// itemEndpoints are those of the store.
func (d *door) itemEndpoints() []endpoint {
	named := []httpapi.Query{
		{Name: "namespace", Type: huma.TypeString, Doc: "Labels with periods between them"}, {Name: "key", Type: huma.TypeString},
		{Name: "refresh_ttl", Type: huma.TypeBoolean, Doc: "false: the item expires when it would have without this request"},
	}
	return []endpoint{
		{pattern: "PUT /store/items", summary: "Store an item", serve: d.putItem, body: ItemPut{}, status: http.StatusNoContent},
		{pattern: "GET /store/items", summary: "Show an item; null when there is none", serve: d.getItem, query: named, answer: Item{}},
		{pattern: "DELETE /store/items", summary: "Remove an item", serve: d.deleteItem, body: ItemDelete{}, status: http.StatusNoContent},
		{pattern: "POST /store/items/search", summary: "Search items below a namespace", serve: d.searchItems, body: ItemSearch{}, answer: ItemList{}},
		{pattern: "POST /store/namespaces", summary: "List namespaces", serve: d.listNamespaces, body: NamespaceSearch{}, answer: NamespaceList{}},
	}
}

// Item is an object that the store keeps.
type Item struct {
	Namespace []string        `json:"namespace"`
	Key       string          `json:"key"`
	Value     json.RawMessage `json:"value"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
	Score     *float64        `json:"score,omitempty" doc:"The share of the query's words that it has."`
}

func itemOf(i conversation.Item) Item {
	return Item{Namespace: i.Namespace, Key: i.Key, Value: i.Value, CreatedAt: i.CreatedAt.UTC(), UpdatedAt: i.UpdatedAt.UTC()}
}

// ItemPut is what an item is made from.
type ItemPut struct {
	Namespace []string        `json:"namespace"`
	Key       string          `json:"key"`
	Value     json.RawMessage `json:"value"`
	Index     json.RawMessage `json:"index,omitempty" doc:"What of the value is searched: false is nothing, a list of paths these, left out everything."`
	TTL       *float64        `json:"ttl,omitempty" doc:"Minutes"`
}

// ItemDelete names an item.
type ItemDelete struct {
	Namespace []string `json:"namespace,omitempty"`
	Key       string   `json:"key"`
}

// ItemSearch selects items.
type ItemSearch struct {
	Prefix     []string `json:"namespace_prefix,omitempty"`
	Filter     object   `json:"filter,omitempty" doc:"Fields of the value: equal to what is given, or with $eq, $ne, $gt, $gte, $lt, $lte, $in or $nin"`
	Query      string   `json:"query,omitempty" doc:"Words, of which an item has one at least: there is no embedding"`
	Limit      *int     `json:"limit,omitempty" doc:"1 to 1000; default: 10"`
	Offset     *int     `json:"offset,omitempty"`
	RefreshTTL *bool    `json:"refresh_ttl,omitempty"`
}

// ItemList is what a search found.
type ItemList struct {
	Items []Item `json:"items"`
}

// NamespaceSearch selects namespaces; the label * stands for any.
type NamespaceSearch struct {
	Prefix   []string `json:"prefix,omitempty"`
	Suffix   []string `json:"suffix,omitempty"`
	MaxDepth *int     `json:"max_depth,omitempty" doc:"Longer namespaces are cut to it."`
	Limit    *int     `json:"limit,omitempty" doc:"1 to 1000; default: 100"`
	Offset   *int     `json:"offset,omitempty"`
}

// NamespaceList is what a search found.
type NamespaceList struct {
	Namespaces [][]string `json:"namespaces"`
}

// refusedItem is the error of a request about items, with a status that clients do not
// try again with.
func refusedItem(err error) error {
	switch errs.KindOf(err) {
	case errs.Invalid, errs.TooLarge:
		return unprocessable(err)
	case errs.OverQuota:
		return &answered{err, http.StatusForbidden}
	}
	return err
}

func (d *door) putItem(w http.ResponseWriter, r *http.Request) error {
	var in ItemPut
	if err := read(r, &in); err != nil {
		return err
	}
	if err := d.Items.Put(r.Context(), items.NewItem{Namespace: in.Namespace, Key: in.Key, Value: in.Value, Index: in.Index, TTL: in.TTL}); err != nil {
		return refusedItem(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *door) getItem(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	refresh := q.Get("refresh_ttl")
	found, err := d.Items.Get(r.Context(), strings.Split(q.Get("namespace"), "."), q.Get("key"), refresh == "" || yes(refresh))
	if errors.Is(err, errs.NotFound) {
		front.WriteJSON(w, http.StatusOK, nil)
		return nil
	}
	if err != nil {
		return refusedItem(err)
	}
	return writeHeld(w, held{itemOf(found.Item), found.Release})
}

func (d *door) deleteItem(w http.ResponseWriter, r *http.Request) error {
	var in ItemDelete
	if err := read(r, &in); err != nil {
		return err
	}
	if err := d.Items.Delete(r.Context(), in.Namespace, in.Key); err != nil {
		return refusedItem(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// searchKind names the header that says how texts are compared.
const searchKind = "X-Cubby-Search"

func (d *door) searchItems(w http.ResponseWriter, r *http.Request) error {
	var in ItemSearch
	if err := read(r, &in); err != nil {
		return err
	}
	p := page{Limit: in.Limit, Offset: in.Offset}
	if err := p.check(); err != nil {
		return err
	}
	list, err := d.Items.Search(r.Context(), items.Search{
		Prefix: in.Prefix, Filter: in.Filter, Query: in.Query, Limit: *p.Limit, Offset: *p.Offset, Renew: in.RefreshTTL == nil || *in.RefreshTTL,
	})
	if err != nil {
		return refusedItem(err)
	}
	if in.Query != "" {
		w.Header().Set(searchKind, "text")
	}
	return writeNamed(w, "items", func(yield func(any, error) bool) {
		for found, err := range list {
			shown := itemOf(found.Item)
			shown.Score = found.Score
			if !yield(held{shown, found.Release}, err) {
				return
			}
		}
	})
}

func (d *door) listNamespaces(w http.ResponseWriter, r *http.Request) error {
	var in NamespaceSearch
	if err := read(r, &in); err != nil {
		return err
	}
	p := page{Limit: in.Limit, Offset: in.Offset}
	if err := p.check(); err != nil {
		return err
	}
	q := items.Namespaces{Prefix: in.Prefix, Suffix: in.Suffix, Limit: *p.Limit, Offset: *p.Offset}
	if in.Limit == nil {
		q.Limit = 100
	}
	if in.MaxDepth != nil {
		if q.MaxDepth = *in.MaxDepth; q.MaxDepth < 1 {
			return unprocessable(errs.E(errs.Invalid, "max_depth: less than 1"))
		}
	}
	return writeNamed(w, "namespaces", func(yield func(any, error) bool) {
		for labels, err := range d.Items.Namespaces(r.Context(), q) {
			if !yield(labels, refusedItem(err)) {
				return
			}
		}
	})
}

// writeNamed is [writeEach] for a list that is the only field of an object.
func writeNamed(w http.ResponseWriter, name string, list iter.Seq2[any, error]) error {
	before := `{"` + name + `":[`
	var b bytes.Buffer
	begun := false
	for v, err := range list {
		release := func() {}
		if h, ok := v.(held); ok {
			if v = h.value; h.release != nil {
				release = h.release
			}
		}
		b.Reset()
		b.WriteString(before)
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err == nil {
			err = enc.Encode(v)
		}
		release()
		switch {
		case err != nil && !begun:
			return err
		case err != nil:
			panic(http.ErrAbortHandler) // half a list must not be taken for a whole one
		case !begun:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
		}
		begun, before = true, ","
		if _, err := w.Write(b.Bytes()); err != nil || front.Refused(w) {
			return nil // the client is gone, or is told to come again
		}
	}
	if !begun {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, before) // the client is gone: nobody is left to tell
	}
	_, _ = io.WriteString(w, "]}\n") // as above
	return nil
}
