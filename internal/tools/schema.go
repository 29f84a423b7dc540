package tools

import (
	"encoding/json"
	"reflect"
	"slices"
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

// anyOfThem is the values of an enumeration.
func anyOfThem(values []string) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// withOwnSession is the schema of a tool whose session may be left out.
func withOwnSession(input *jsonschema.Schema) *jsonschema.Schema {
	if input.Properties["session_id"] == nil {
		return input
	}
	input.Required = slices.DeleteFunc(slices.Clone(input.Required), func(name string) bool { return name == "session_id" })
	input.Properties["session_id"] = filled("What create_session returned. Leave it out for the conversation's own session of the language, which is made when it is first needed.")
	if input.Properties["language"] == nil {
		input.Properties["language"] = &jsonschema.Schema{
			Type: "string", Enum: anyOfThem(languages), Default: json.RawMessage(`"python"`), Description: "Which own session is meant, where session_id is left out.",
		}
	}
	return input
}

// commandID is a required number, which has no default.
func commandID() *jsonschema.Schema {
	s := number(0, 1, 1<<53, "What start_command returned.")
	s.Default = nil
	return s
}

// number is a whole number between bounds.
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

// shape is the schema of what a tool answers.
func shape[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		// A step of a path to a mistake.
		reflect.TypeFor[Step](): anyOf(&jsonschema.Schema{Type: "string"}, &jsonschema.Schema{Type: "integer"}),
	}})
	if err != nil {
		panic(err) // every T is a struct of this package
	}
	plain(s)
	return s
}

// plain turns what is made from a Go type into what is true and what simple
// clients can read: objects may have further fields, lists are never null, and
// a schema has one type.
func plain(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		plain(p)
	}
	plain(s.Items)
	plain(s.AdditionalProperties)
	if len(s.Types) != 2 || s.Types[0] != "null" {
		return
	}
	kind := s.Types[1]
	s.Types, s.Type = nil, kind
	if kind == "array" {
		return
	}
	description, value := s.Description, *s
	value.Description = ""
	*s = *anyOf(&value, &jsonschema.Schema{Type: "null"})
	s.Description = description
}

func anyOf(schemas ...*jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: schemas}
}
