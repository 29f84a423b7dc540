package mcp

import (
	"encoding/json"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// object is the schema of a tool's arguments.
func object(required []string, properties map[string]*jsonschema.Schema) *jsonschema.Schema {
	if properties == nil {
		properties = map[string]*jsonschema.Schema{}
	}
	return &jsonschema.Schema{Type: "object", Properties: properties, Required: required}
}

func text(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Description: description}
}

// filled is text of at least one character.
func filled(description string) *jsonschema.Schema {
	one := 1
	return &jsonschema.Schema{Type: "string", MinLength: &one, Description: description}
}

func sessionID() *jsonschema.Schema { return filled("What create_session returned.") }

// whole is a whole number between bounds.
func number(absent, least, most int64, description string) *jsonschema.Schema {
	low, high := float64(least), float64(most)
	return &jsonschema.Schema{
		Type: "integer", Minimum: &low, Maximum: &high, Default: json.RawMessage(strconv.FormatInt(absent, 10)), Description: description,
	}
}

// list is a list of objects that is not empty.
func list(items *jsonschema.Schema, description string) *jsonschema.Schema {
	one := 1
	return &jsonschema.Schema{Type: "array", MinItems: &one, Items: items, Description: description}
}

// shape is the schema of what a tool answers. Fields may be added to it.
func shape[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // every T is a struct of this package
	}
	open(s)
	return s
}

// open lets objects have further fields.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		open(p)
	}
	open(s.Items)
}
