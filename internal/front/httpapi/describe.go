package httpapi

import (
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/front"
)

// newDocument is the document without operations.
func (s *Server) newDocument() *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:       "Cubby",
			Version:     s.Version,
			Description: "Sandboxes for AI agents: computers with a shell, files and a controlled network.",
			Contact:     &huma.Contact{Name: "Cubby", URL: "https://github.com/cubbyhq/cubby"},
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", s.schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"bearer": {Type: "http", Scheme: "bearer", Description: "A token of the daemon. Without configured tokens no authentication is needed, and only this machine is served."},
				"apiKey": {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "The same tokens."},
			},
		},
		Servers:  []*huma.Server{{URL: "/", Description: "The daemon that serves this document, http://127.0.0.1:9090 by default."}},
		Security: []map[string][]string{{"bearer": {}}, {"apiKey": {}}},
	}
}

// schemaName begins the names of a dialect's exported types with its prefix: the
// document has one space of names.
func (s *Server) schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := huma.DefaultSchemaNamer(t, hint)
	if t.Name() == name { // exported
		name = s.prefixes[t.PkgPath()] + name
	}
	return name
}

// Content is the body of a request or an answer by media type.
type Content = map[string]*huma.MediaType

// Media is a body of one media type; a nil schema is raw bytes.
func Media(mediaType string, schema *huma.Schema) Content {
	if schema == nil {
		schema = &huma.Schema{Type: huma.TypeString, Format: "binary"}
	}
	return Content{mediaType: {Schema: schema}}
}

// JSON is a body of v's type.
func (s *Server) JSON(v any) Content { return Media("application/json", s.Schema(v, "")) }

// JSONList is a body that is an array of v's type.
func (s *Server) JSONList(v any) Content {
	return Media("application/json", &huma.Schema{Type: huma.TypeArray, Items: s.Schema(v, "")})
}

// Schema registers v's type and returns a reference to it.
func (s *Server) Schema(v any, hint string) *huma.Schema {
	return s.OpenAPI.Components.Schemas.Schema(reflect.TypeOf(v), true, hint)
}

// ErrorResponse describes the canonical error.
func (s *Server) ErrorResponse() *huma.Response {
	return &huma.Response{Description: "Error", Content: s.JSON(front.Problem{})}
}

// Documented returns the registered operation, to add what cannot be derived.
func (s *Server) Documented(method, path string) *huma.Operation {
	item := s.OpenAPI.Paths[path]
	if item == nil {
		return nil
	}
	return operationsOf(item)[method]
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// describeRoute adds a route to the document. Of a pattern that a dialect before
// has too, it adds to that operation what this route takes and answers.
func (s *Server) describeRoute(d *Dialect, r Route) {
	method, path, _ := strings.Cut(r.Pattern, " ")
	op := s.Documented(method, path)
	if op == nil {
		op = &huma.Operation{
			OperationID: r.ID, Method: method, Path: path, Tags: []string{d.Name}, Summary: r.Summary,
			Responses: map[string]*huma.Response{"default": {Description: "Error", Content: s.JSON(d.ErrorShape)}},
		}
		for _, name := range pathParameter.FindAllStringSubmatch(path, -1) {
			op.Parameters = append(op.Parameters, &huma.Param{Name: name[1], In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
		}
		s.OpenAPI.AddOperation(op)
	}
	for _, q := range r.Query {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: q.Name, In: "query", Required: q.Required, Description: q.Doc, Schema: &huma.Schema{Type: q.Type},
		})
	}
	if r.Body != nil {
		if op.RequestBody == nil {
			op.RequestBody = new(huma.RequestBody)
		}
		op.RequestBody.Content = either(op.RequestBody.Content, r.Body)
	}
	for status, answer := range r.Answers {
		key := strconv.Itoa(status)
		if op.Responses[key] == nil {
			op.Responses[key] = &huma.Response{Description: http.StatusText(status)}
		}
		if answer == nil {
			op.Responses[key].Description = "OK"
			continue
		}
		op.Responses[key].Content = either(op.Responses[key].Content, answer)
	}
}

// describeSharedErrors adds the error of a dialect to the operations of those
// before it whose requests may speak it.
func (s *Server) describeSharedErrors() {
	for path, item := range s.OpenAPI.Paths {
		for _, op := range operationsOf(item) {
			owner := slices.IndexFunc(s.dialects, func(d *Dialect) bool { return d.Name == op.Tags[0] })
			if owner < 0 {
				continue
			}
			for _, d := range s.dialects[owner+1:] {
				if d.Below(path) {
					op.Responses["default"].Content = either(op.Responses["default"].Content, s.JSON(d.ErrorShape))
				}
			}
		}
	}
}

// either is a body of one description or the other.
func either(one, other Content) Content {
	out := Content{}
	for mediaType, m := range one {
		out[mediaType] = m
	}
	for mediaType, m := range other {
		before := out[mediaType]
		if before == nil {
			out[mediaType] = m
			continue
		}
		all := before.Schema.AnyOf
		if all == nil {
			all = []*huma.Schema{before.Schema}
		}
		out[mediaType] = &huma.MediaType{Schema: &huma.Schema{AnyOf: append(slices.Clone(all), m.Schema)}}
	}
	return out
}
