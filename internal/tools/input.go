package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/front"
)

// arguments reads what a tool was given and collects everything that is wrong
// with it, in the form that clients of sandbox-agent know. Fields that a tool
// does not have are ignored: some clients add their own to every call.
type arguments struct {
	fields map[string]json.RawMessage
	at     []Step // where this object is
	wrong  *[]Detail
	long   *front.Documents // nil: nothing was set aside
}

// Detail is one mistake.
type Detail struct {
	Type string `json:"type" jsonschema:"what kind of mistake"`
	Loc  []Step `json:"loc" jsonschema:"the path to it"`
	Msg  string `json:"msg"`
}

// Step is the name of a field or a place in a list.
type Step any

// invalidInput is the error of arguments that a tool cannot take.
type invalidInput struct{ details []Detail }

func (e *invalidInput) Error() string { return "invalid input" }

func parseArguments(raw json.RawMessage) *arguments {
	a := &arguments{wrong: new([]Detail)}
	if len(raw) == 0 || string(raw) == "null" {
		return a
	}
	if json.Unmarshal(raw, &a.fields) != nil {
		a.add("dict_type", nil, "Input should be a valid dictionary")
	}
	return a
}

// check returns what was wrong with all that was read.
func (a *arguments) check() error {
	if len(*a.wrong) == 0 {
		return nil
	}
	return &invalidInput{*a.wrong}
}

func (a *arguments) add(kind string, name any, msg string) {
	loc := slices.Clone(a.at)
	if name != nil {
		loc = append(loc, name)
	}
	if loc == nil {
		loc = []Step{}
	}
	*a.wrong = append(*a.wrong, Detail{kind, loc, msg})
}

// has reports whether a field is there and not null.
func (a *arguments) has(name string) bool {
	raw, ok := a.fields[name]
	return ok && string(raw) != "null"
}

// text is a required string of at least one character.
func (a *arguments) text(name string) string {
	if _, ok := a.fields[name]; !ok {
		a.add("missing", name, "Field required")
		return ""
	}
	s, ok := a.str(name)
	if ok && s == "" {
		a.add("string_too_short", name, "String should have at least 1 character")
	}
	return s
}

// textOr is a string that may be absent.
func (a *arguments) textOr(name, absent string) string {
	if !a.has(name) {
		return absent
	}
	s, _ := a.str(name)
	return s
}

func (a *arguments) str(name string) (string, bool) {
	var s string
	raw := a.fields[name]
	if string(raw) == "null" || json.Unmarshal(raw, &s) != nil {
		a.add("string_type", name, "Input should be a valid string")
		return "", false
	}
	return s, true
}

// oneOf is a string that may be absent and is one of some.
func (a *arguments) oneOf(name string, options ...string) string {
	s := a.textOr(name, options[0])
	if a.has(name) && !slices.Contains(options, s) {
		quoted := make([]string, len(options))
		for i, o := range options {
			quoted[i] = "'" + o + "'"
		}
		last := len(quoted) - 1
		a.add("literal_error", name, "Input should be "+strings.Join(quoted[:last], ", ")+" or "+quoted[last])
	}
	return s
}

// number is a whole number between bounds that may be absent.
func (a *arguments) number(name string, absent, least, most int64) int64 {
	if !a.has(name) {
		return absent
	}
	n, ok := whole(a.fields[name])
	switch {
	case !ok:
		a.add("int_type", name, "Input should be a valid integer")
		return absent
	case n < least:
		a.add("greater_than_equal", name, "Input should be greater than or equal to "+strconv.FormatInt(least, 10))
	case n > most:
		a.add("less_than_equal", name, "Input should be less than or equal to "+strconv.FormatInt(most, 10))
	}
	return n
}

// whole reads 30, 30.0 and "30".
func whole(raw json.RawMessage) (int64, bool) {
	s := string(raw)
	if json.Unmarshal(raw, &s) != nil {
		s = string(raw)
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// truth is a boolean that may be absent, which is false.
func (a *arguments) truth(name string) bool {
	var b bool
	if a.has(name) && json.Unmarshal(a.fields[name], &b) != nil {
		a.add("bool_type", name, "Input should be a valid boolean")
	}
	return b
}

// versions is an object of strings that may be absent. Numbers are taken as
// they are written, and null is no version.
func (a *arguments) versions(name string) map[string]string {
	versions := map[string]string{}
	if !a.has(name) {
		return versions
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(a.fields[name], &given) != nil {
		a.add("dict_type", name, "Input should be a valid dictionary")
		return versions
	}
	for key, raw := range given {
		var s string
		var n json.Number
		switch {
		case string(raw) == "null":
		case json.Unmarshal(raw, &s) == nil:
		case json.Unmarshal(raw, &n) == nil:
			s = n.String()
		default:
			in := &arguments{at: append(slices.Clone(a.at), name), wrong: a.wrong}
			in.add("string_type", key, "Input should be a valid string")
		}
		versions[key] = s
	}
	return versions
}

// list is a required list of objects that is not empty.
func (a *arguments) list(name string) []*arguments {
	raw, ok := a.fields[name]
	if !ok {
		a.add("missing", name, "Field required")
		return nil
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil || string(raw) == "null" {
		a.add("list_type", name, "Input should be a valid list")
		return nil
	}
	if len(items) == 0 {
		a.add("too_short", name, "List should have at least 1 item after validation, not 0")
	}
	list := make([]*arguments, len(items))
	for i, item := range items {
		list[i] = &arguments{at: append(slices.Clone(a.at), name, i), wrong: a.wrong, long: a.long}
		if string(item) == "null" || json.Unmarshal(item, &list[i].fields) != nil {
			list[i].add("dict_type", nil, "Input should be a valid dictionary")
		}
	}
	return list
}

// IsText reports whether bytes can be shown as text: UTF-8 without NUL.
func IsText(b []byte) bool { return utf8.Valid(b) && !bytes.ContainsRune(b, 0) }

// AtMost reads all of r; ok is false when that is more than limit bytes.
func AtMost(r io.Reader, limit int64) (b []byte, ok bool, err error) {
	b, err = io.ReadAll(io.LimitReader(r, limit+1))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, int64(len(b)) <= limit, err
}
