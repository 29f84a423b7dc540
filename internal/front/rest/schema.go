package rest

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// schema registers v's type and returns a reference to it.
func (d *Door) schema(v any, hint string) *huma.Schema {
	return d.api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, hint)
}

// content is a response body of a media type; a nil schema is raw bytes.
func content(mediaType string, s *huma.Schema) map[string]*huma.MediaType {
	if s == nil {
		s = &huma.Schema{Type: huma.TypeString, Format: "binary"}
	}
	return map[string]*huma.MediaType{mediaType: {Schema: s}}
}

// dropErrorsOfHuma takes out what huma registers for its own error format, which
// no answer has.
func dropErrorsOfHuma(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
}
