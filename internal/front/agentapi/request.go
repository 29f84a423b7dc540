package agentapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// maxBody bounds bodies: an image of 10 MB in base64 has room.
const maxBody = 20 << 20

// read decodes the body of a request, whatever its media type says: proxies change
// it. What it does not know is ignored, null is as if it were not there, and an empty
// body is an empty object. Some fields are known and refused, see [cannot].
func read(r *http.Request, v any, refused ...cannot) error {
	data, err := body(r)
	if err != nil || len(data) == 0 {
		return err
	}
	for _, fields := range refused {
		if err := fields.check(data); err != nil {
			return err
		}
	}
	return front.DecodeLoose(data, v)
}

func body(r *http.Request) ([]byte, error) {
	data, err := front.ReadAtMost(r.Body, maxBody)
	if errors.Is(err, errs.TooLarge) {
		err = errs.E(errs.TooLarge, "the request body is over %d MiB", maxBody>>20).
			Hint("send smaller images, or fewer at once: base64 makes them a third larger; upload other files to the thread")
	}
	return bytes.TrimSpace(data), err
}

// object is a JSON object whose fields are kept as they come.
type object = map[string]json.RawMessage

// texts is a list that may be written as its only element.
type texts []string

// UnmarshalJSON reads a string or an array of strings.
func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		if *t = nil; one != "" {
			*t = texts{one}
		}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// Schema describes both.
func (texts) Schema(huma.Registry) *huma.Schema {
	text := &huma.Schema{Type: huma.TypeString}
	return &huma.Schema{AnyOf: []*huma.Schema{text, {Type: huma.TypeArray, Items: text}}}
}

// page is the part of a list that a search is for.
type page struct {
	Limit  *int     `json:"limit"`
	Offset *int     `json:"offset"`
	SortBy string   `json:"sort_by"`
	Order  string   `json:"sort_order"`
	Select []string `json:"select"`
	// Extract is paths into each element, by the names that their values get.
	Extract map[string]path `json:"extract"`
}

// whole reports whether elements are shown as they are.
func (p page) whole() bool { return len(p.Select) == 0 && len(p.Extract) == 0 }

// shows reports whether a field is needed.
func (p page) shows(field string) bool {
	return len(p.Select) == 0 || slices.Contains(p.Select, field) || len(p.Extract) > 0
}

// check fills in what is left out.
func (p *page) check(sortBy ...string) error {
	limit, offset := 10, 0
	if p.Limit != nil {
		limit = *p.Limit
	}
	if p.Offset != nil {
		offset = *p.Offset
	}
	p.Limit, p.Offset = &limit, &offset
	switch {
	case limit < 1 || limit > 1000:
		return errs.E(errs.Invalid, "limit: %d is not between 1 and 1000", limit)
	case offset < 0:
		return errs.E(errs.Invalid, "offset: %d is negative", offset)
	case p.SortBy != "" && !slices.Contains(sortBy, p.SortBy):
		return errs.E(errs.Invalid, "sort_by: %.40q is not one of %s", p.SortBy, strings.Join(sortBy, ", "))
	case p.Order != "" && p.Order != "asc" && p.Order != "desc":
		return errs.E(errs.Invalid, "sort_order: %.40q is neither asc nor desc", p.Order)
	case len(p.Extract) > maxExtract:
		return unprocessable(errs.E(errs.Invalid, "extract: %d paths, at most %d are possible", len(p.Extract), maxExtract))
	}
	return nil
}

// writePage answers with a part of a list, of which there are so many, and says where
// the next one begins.
func writePage(w http.ResponseWriter, p page, total, n int, list iter.Seq2[any, error]) error {
	h := w.Header()
	h.Set("X-Pagination-Total", strconv.Itoa(total))
	if next := *p.Offset + n; next < total && n > 0 {
		h.Set("X-Pagination-Next", strconv.Itoa(next))
	}
	return writeSelected(w, p, list)
}

// writeSelected answers with a list of which each element has what p asks for.
func writeSelected(w http.ResponseWriter, p page, list iter.Seq2[any, error]) error {
	if p.whole() {
		return writeEach(w, list)
	}
	return writeEach(w, func(yield func(any, error) bool) {
		for v, err := range list {
			h, _ := v.(held)
			if err == nil {
				h.value, err = p.selected(h.value)
			}
			if !yield(h, err) {
				return
			}
		}
	})
}

// selected is an object with the fields alone that a search asks for.
func (p page) selected(v any) (object, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var some object
	if err := json.Unmarshal(raw, &some); err != nil {
		return nil, err
	}
	extracted := make(object, len(p.Extract))
	for name, path := range p.Extract {
		extracted[name] = path.in(some)
	}
	for key := range some {
		if len(p.Select) > 0 && !slices.Contains(p.Select, key) {
			delete(some, key)
		}
	}
	if len(p.Extract) > 0 {
		some["extracted"] = jsonOf(extracted)
	}
	return some, nil
}

// each is a list of the agent, in the form of the API.
func each[T, F any](list agent.List[T], form func(T) F) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for item, err := range list.All {
			if !yield(held{form(item.Value), item.Release}, err) {
				return
			}
		}
	}
}

// held is what takes room until it is encoded: whoever reads an answer may take long.
type held struct {
	value   any
	release func()
}

// writeHeld answers with one.
func writeHeld(w http.ResponseWriter, h held) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(h.value)
	h.release()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	_, _ = w.Write(b.Bytes()) // the client is gone: nobody is left to tell
	return nil
}

// writeEach answers with a list, one element after the other: all of them together may
// be larger than any memory. An error before the first one is the answer; a later one
// breaks the connection, because half a list must not be taken for a whole one.
func writeEach(w http.ResponseWriter, list iter.Seq2[any, error]) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	before := byte('[')
	for v, err := range list {
		release := func() {}
		if h, ok := v.(held); ok {
			v, release = h.value, h.release
		}
		if b.Cap() > largestKept {
			b = bytes.Buffer{}
		}
		b.Reset()
		b.WriteByte(before)
		if err == nil {
			err = enc.Encode(v)
		}
		release()
		switch {
		case err != nil && before == '[':
			return err
		case err != nil:
			panic(http.ErrAbortHandler)
		case before == '[':
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
		}
		before = ','
		if _, err := w.Write(b.Bytes()); err != nil || front.Refused(w) {
			return nil // the client is gone, or is told to come again
		}
	}
	if before == '[' {
		front.WriteJSON(w, http.StatusOK, []struct{}{})
		return nil
	}
	_, _ = io.WriteString(w, "]\n") // as above
	return nil
}

// largestKept bounds the buffer that is kept for the next element of a list while its
// client takes its time: larger writes are charged to the client.
const largestKept = 64 << 10

// listIn reads a list of a query: repeated, as a JSON list, or with commas.
func listIn(q url.Values, name string) (all []string) {
	for _, text := range q[name] {
		var list []string
		if json.Unmarshal([]byte(text), &list) != nil {
			list = strings.Split(text, ",")
		}
		for _, one := range list {
			if one != "" {
				all = append(all, one)
			}
		}
	}
	return all
}

// yes reads a boolean of a query as the platform does.
func yes(text string) bool {
	switch strings.ToLower(text) {
	case "1", "true", "yes":
		return true
	}
	return false
}

// number reads one of a query; "" is the default.
func number(q url.Values, name string, without int) (int, error) {
	text := q.Get(name)
	if text == "" || text == "null" {
		return without, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, errs.E(errs.Invalid, "%s: %.40q is not a number", name, text)
	}
	return n, nil
}
