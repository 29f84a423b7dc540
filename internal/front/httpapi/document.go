package httpapi

import (
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// refusals are the client's errors that operations declare by reference. Which
// codes stand behind a status is in front.Table.
var refusals = map[int]struct{ name, description string }{
	http.StatusBadRequest:            {"BadRequest", "The request is not valid"},
	http.StatusUnauthorized:          {"Unauthorized", "The token is missing or unknown"},
	http.StatusForbidden:             {"Forbidden", "The token does not allow it"},
	http.StatusNotFound:              {"NotFound", "There is no such thing"},
	http.StatusConflict:              {"Conflict", "The state of a thing does not allow it, or the host, the image or the isolation cannot do it"},
	http.StatusRequestEntityTooLarge: {"TooLarge", "The request body is too large"},
	http.StatusTooManyRequests:       {"QuotaExceeded", "A limit is reached; Retry-After says when to try again"},
}

// completeDocument adds what the routes leave to derive: the client's errors of
// every operation, and null where an answer can be null.
func (s *Server) completeDocument() {
	s.describeSharedErrors()
	doc := s.OpenAPI
	doc.Components.Responses = map[string]*huma.Response{}
	problem := s.ErrorResponse().Content
	for _, r := range refusals {
		doc.Components.Responses[r.name] = &huma.Response{Description: r.description, Content: problem}
	}
	for path, item := range doc.Paths {
		for method, op := range operationsOf(item) {
			declareRefusals(path, method, op)
		}
	}
	nullablePointers(doc.Components.Schemas)
	dropErrorsOfHuma(doc)
}

// declareRefusals lists the 4xx answers that an operation can give. The shapes
// of dialects are those of their default response.
func declareRefusals(path, method string, op *huma.Operation) {
	fallback := op.Responses["default"]
	if fallback == nil {
		return // an answer to "are you there", which refuses nobody
	}
	if !strings.HasPrefix(path, "/v1/") && path != "/metrics" {
		op.Responses["4XX"] = &huma.Response{Description: "The request is refused", Content: fallback.Content}
		return
	}
	statuses := []int{http.StatusUnauthorized, http.StatusForbidden}
	if path != "/metrics" {
		statuses = append(statuses, http.StatusBadRequest, http.StatusTooManyRequests)
	}
	if strings.Contains(path, "{") || method == http.MethodPost {
		statuses = append(statuses, http.StatusNotFound)
	}
	if method != http.MethodGet {
		statuses = append(statuses, http.StatusConflict)
	}
	if op.RequestBody != nil {
		statuses = append(statuses, http.StatusRequestEntityTooLarge)
	}
	for _, status := range statuses {
		if code := strconv.Itoa(status); op.Responses[code] == nil {
			op.Responses[code] = &huma.Response{Ref: "#/components/responses/" + refusals[status].name}
		}
	}
}

func operationsOf(item *huma.PathItem) map[string]*huma.Operation {
	out := map[string]*huma.Operation{}
	for method, op := range map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post, http.MethodDelete: item.Delete, http.MethodPatch: item.Patch,
	} {
		if op != nil {
			out[method] = op
		}
	}
	return out
}

// nullablePointers lets null be where Go writes it: a pointer to a struct that
// is not left out when it is nil. Huma knows this of other types only, because
// a reference has no room for a second type.
func nullablePointers(schemas huma.Registry) {
	for name, s := range schemas.Map() {
		t := schemas.TypeFromRef("#/components/schemas/" + name)
		if t == nil || t.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			if f.Type.Kind() != reflect.Pointer {
				continue
			}
			key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if p := s.Properties[key]; p != nil && p.Ref != "" && !strings.Contains(options, "omitempty") {
				s.Properties[key] = &huma.Schema{
					Description: p.Description,
					AnyOf:       []*huma.Schema{{Ref: p.Ref}, {Type: "null"}},
				}
			}
		}
	}
}

// dropErrorsOfHuma takes out what huma registers for its own error format, which
// no answer has.
func dropErrorsOfHuma(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
}
