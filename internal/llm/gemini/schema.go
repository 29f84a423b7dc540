package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

var errRecursive = errors.New("it refers to itself, which Gemini does not take")

const (
	maxDepth = 32
	maxNodes = 5000 // references can make a small schema huge
)

// schema is one as Gemini takes it: a part of OpenAPI's, without references.
type schema map[string]any

// taken has what is passed on as it is.
var taken = []string{
	"title", "description", "minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum", "maximum",
	"minProperties", "maxProperties", "default", "nullable",
}

// formats are those that Gemini knows, by type.
var formats = map[string][]string{"string": {"enum", "date-time"}, "number": {"float", "double"}, "integer": {"int32", "int64"}}

// parameters turns the schema of a tool's arguments into Gemini's. It is nil for
// a tool without any: Gemini refuses objects that have no properties there.
func parameters(raw json.RawMessage) (schema, error) {
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil {
		return nil, err
	}
	c := cutter{root: root}
	out, err := c.cut(root, 0)
	if err != nil {
		return nil, err
	}
	if properties, _ := out["properties"].(schema); len(properties) == 0 {
		return nil, nil
	}
	return out, nil
}

// cutter cuts the schemas of one document.
type cutter struct {
	root map[string]any
	open []string // the references that are being resolved
	cuts int
}

func (c *cutter) cut(in map[string]any, depth int) (schema, error) {
	if depth > maxDepth {
		return nil, errors.New("it is nested too deeply")
	}
	if c.cuts++; c.cuts > maxNodes {
		return nil, errors.New("it is too large")
	}
	if ref, ok := in["$ref"].(string); ok {
		return c.resolve(ref, in, depth)
	}
	in, err := c.merged(in, depth)
	if err != nil {
		return nil, err
	}
	out := schema{}
	for _, key := range taken {
		if v, ok := in[key]; ok {
			out[key] = v
		}
	}
	c.setType(in, out)
	if f, ok := in["format"].(string); ok {
		if t, _ := out["type"].(string); slices.Contains(formats[t], f) {
			out["format"] = f
		}
	}
	setEnum(in, out)
	if err := c.setProperties(in, out, depth); err != nil {
		return nil, err
	}
	if items, ok := in["items"].(map[string]any); ok {
		if out["items"], err = c.cut(items, depth+1); err != nil {
			return nil, err
		}
	} else if out["type"] == "array" {
		out["items"] = schema{"type": "string"} // Gemini demands some
	}
	return out, c.setAnyOf(in, out, depth)
}

// resolve cuts what a reference leads to. What stands beside it counts more.
func (c *cutter) resolve(ref string, beside map[string]any, depth int) (schema, error) {
	if slices.Contains(c.open, ref) {
		return nil, errRecursive
	}
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, fmt.Errorf("it refers to %s, which is not in it", ref)
	}
	var at any = c.root
	for name := range strings.SplitSeq(path, "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		object, ok := at.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("it refers to %s, which is not in it", ref)
		}
		at = object[name]
	}
	target, ok := at.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it refers to %s, which is not in it", ref)
	}
	whole := maps.Clone(target)
	for key, value := range beside {
		if key != "$ref" {
			whole[key] = value
		}
	}
	c.open = append(c.open, ref)
	defer func() { c.open = c.open[:len(c.open)-1] }()
	return c.cut(whole, depth+1)
}

// merged puts the members of allOf into the schema itself.
func (c *cutter) merged(in map[string]any, depth int) (map[string]any, error) {
	all, ok := in["allOf"].([]any)
	if !ok {
		return in, nil
	}
	out := maps.Clone(in)
	delete(out, "allOf")
	for _, one := range all {
		member, ok := one.(map[string]any)
		if !ok {
			continue
		}
		cut, err := c.cut(member, depth+1)
		if err != nil {
			return nil, err
		}
		for key, value := range cut {
			switch key {
			case "properties":
				joined, _ := out[key].(map[string]any)
				joined = maps.Clone(joined)
				if joined == nil {
					joined = map[string]any{}
				}
				for name, property := range value.(schema) {
					if _, there := joined[name]; !there {
						joined[name] = map[string]any(property.(schema))
					}
				}
				out[key] = joined
			case "required":
				required, _ := out[key].([]any)
				out[key] = append(slices.Clone(required), value.([]any)...)
			default:
				if _, there := out[key]; !there {
					out[key] = plain(value)
				}
			}
		}
	}
	return out, nil
}

// plain turns cut schemas into what can be cut again.
func plain(v any) any {
	switch v := v.(type) {
	case schema:
		return map[string]any(v)
	case []schema:
		out := make([]any, len(v))
		for i, s := range v {
			out[i] = map[string]any(s)
		}
		return out
	}
	return v
}

// setType sets the one type that Gemini takes: null makes it nullable, and more
// than one are alternatives.
func (c *cutter) setType(in map[string]any, out schema) {
	switch t := in["type"].(type) {
	case string:
		out["type"] = t
	case []any:
		var names []string
		for _, one := range t {
			switch name, _ := one.(string); name {
			case "null":
				out["nullable"] = true
			case "":
			default:
				names = append(names, name)
			}
		}
		if len(names) == 1 {
			out["type"] = names[0]
			return
		}
		var either []schema
		for _, name := range names {
			one := schema{"type": name}
			if name == "array" {
				one["items"] = schema{"type": "string"}
			}
			either = append(either, one)
		}
		if either != nil {
			out["anyOf"] = either
		}
	case nil:
		if _, ok := in["properties"]; ok {
			out["type"] = "object"
		}
	}
}

// setEnum passes values on where they are strings, which Gemini demands. Others are
// written into the description.
func setEnum(in map[string]any, out schema) {
	values, _ := in["enum"].([]any)
	if v, ok := in["const"]; ok {
		values = []any{v}
	}
	if values == nil {
		return
	}
	var names []any
	for _, v := range values {
		if v == nil {
			out["nullable"] = true
			continue
		}
		names = append(names, v)
	}
	strings := !slices.ContainsFunc(names, func(v any) bool { _, ok := v.(string); return !ok })
	if strings && (out["type"] == "string" || out["type"] == nil) && len(names) > 0 {
		out["type"], out["enum"] = "string", names
		return
	}
	if text, err := json.Marshal(values); err == nil {
		description, _ := out["description"].(string)
		if description != "" {
			description += " "
		}
		out["description"] = description + "One of " + string(text) + "."
	}
}

func (c *cutter) setProperties(in map[string]any, out schema, depth int) error {
	properties, ok := in["properties"].(map[string]any)
	if !ok {
		return nil
	}
	cut := schema{}
	for name, property := range properties {
		object, ok := property.(map[string]any)
		if !ok {
			object = map[string]any{"type": "string"} // true: anything goes
		}
		s, err := c.cut(object, depth+1)
		if err != nil {
			return err
		}
		cut[name] = s
	}
	out["properties"] = cut
	required, _ := in["required"].([]any)
	var there []any
	for _, name := range required {
		if key, ok := name.(string); ok && cut[key] != nil && !slices.Contains(there, name) {
			there = append(there, name)
		}
	}
	if there != nil {
		out["required"] = there
	}
	return nil
}

// setAnyOf passes alternatives on. One of them that is null makes it nullable, and
// a single one that is left is no alternative.
func (c *cutter) setAnyOf(in map[string]any, out schema, depth int) error {
	var all []any
	for _, key := range []string{"anyOf", "oneOf"} {
		some, _ := in[key].([]any)
		all = append(all, some...)
	}
	var cut []schema
	for _, one := range all {
		object, ok := one.(map[string]any)
		if !ok {
			continue
		}
		if object["type"] == "null" {
			out["nullable"] = true
			continue
		}
		s, err := c.cut(object, depth+1)
		if err != nil {
			return err
		}
		cut = append(cut, s)
	}
	switch len(cut) {
	case 0:
	case 1:
		for key, value := range cut[0] {
			if _, there := out[key]; !there {
				out[key] = value
			}
		}
	default:
		out["anyOf"] = cut
	}
	return nil
}
