package items

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// filter is what the fields of a value have to be: each is equal to what is asked for,
// or fulfils operators on it.
type filter map[string]any

// operators of a filter, by their names.
var operators = map[string]func(value, operand any) bool{
	"$eq":  equal,
	"$ne":  func(v, o any) bool { return !equal(v, o) },
	"$gt":  func(v, o any) bool { n, ok := compare(v, o); return ok && n > 0 },
	"$gte": func(v, o any) bool { n, ok := compare(v, o); return ok && n >= 0 },
	"$lt":  func(v, o any) bool { n, ok := compare(v, o); return ok && n < 0 },
	"$lte": func(v, o any) bool { n, ok := compare(v, o); return ok && n <= 0 },
	"$in":  contains,
	"$nin": func(v, o any) bool { return !contains(v, o) },
}

// parseFilter reads one. Invalid when it has an operator that there is none of.
func parseFilter(raw map[string]json.RawMessage) (filter, error) {
	f := filter{}
	for name, value := range raw {
		v, err := decode(value)
		if err == nil {
			err = check(v)
		}
		if err != nil {
			return nil, errs.E(errs.Invalid, "filter.%.60s: %s", name, errs.Public(err).Message).Hint("operators are $eq, $ne, $gt, $gte, $lt, $lte, $in and $nin")
		}
		f[name] = v
	}
	return f, nil
}

// check looks for operators that there are none of.
func check(v any) error {
	if list, ok := v.([]any); ok {
		for _, one := range list {
			if err := check(one); err != nil {
				return err
			}
		}
	}
	fields, _ := v.(map[string]any)
	for name, operand := range fields {
		switch operate := operators[name]; {
		case operate == nil && (strings.HasPrefix(name, "$") || hasOperator(fields)):
			return errs.E(errs.Invalid, "%.40q is no operator", name)
		case operate == nil:
			if err := check(operand); err != nil {
				return err
			}
		case name == "$in" || name == "$nin":
			if _, ok := operand.([]any); !ok {
				return errs.E(errs.Invalid, "%s needs a list", name)
			}
		}
	}
	return nil
}

func hasOperator(fields map[string]any) bool {
	for name := range fields {
		if strings.HasPrefix(name, "$") {
			return true
		}
	}
	return false
}

// matches reports whether a value is as the filter wants it.
func (f filter) matches(value map[string]any) bool {
	for name, want := range f {
		if !fulfils(value[name], want) {
			return false
		}
	}
	return true
}

func fulfils(value, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		if hasOperator(want) {
			for name, operand := range want {
				if !operators[name](value, operand) {
					return false
				}
			}
			return true
		}
		fields, ok := value.(map[string]any)
		if !ok {
			return false
		}
		return filter(want).matches(fields)
	case []any:
		list, ok := value.([]any)
		if !ok || len(list) != len(want) {
			return false
		}
		for i := range want {
			if !fulfils(list[i], want[i]) {
				return false
			}
		}
		return true
	}
	return equal(value, want)
}

func contains(value, list any) bool {
	all, _ := list.([]any)
	for _, one := range all {
		if equal(value, one) {
			return true
		}
	}
	return false
}

func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return reflect.DeepEqual(a, b)
}

// compare orders two numbers, one of which may be written as a text, or two texts.
func compare(a, b any) (n int, ok bool) {
	s, text := a.(string)
	t, both := b.(string)
	if text && both {
		return strings.Compare(s, t), true
	}
	x, okX := numeric(a)
	y, okY := numeric(b)
	switch {
	case !okX || !okY:
		return 0, false
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	}
	return 0, true
}

func numeric(v any) (float64, bool) {
	if text, ok := v.(string); ok {
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		return n, err == nil
	}
	return number(v)
}

func number(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

// decode reads JSON with its numbers as they are written.
func decode(raw json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, errs.E(errs.Invalid, "malformed JSON").Because(err)
	}
	return v, nil
}
