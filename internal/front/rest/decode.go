package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// decodeStrict reads one JSON object and refuses unknown fields.
func decodeStrict(data []byte, v any) error { return decode(data, v, true) }

// decodeLoose reads one JSON object and ignores what it does not know, as
// sandboxed does. Wrong types are errors all the same.
func decodeLoose(data []byte, v any) error { return decode(data, v, false) }

func decode(data []byte, v any, strict bool) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(v); err != nil {
		return errs.E(errs.Invalid, "invalid json: %s", jsonFault(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errs.E(errs.Invalid, "invalid json: text after the object")
	}
	return nil
}

// jsonFault says what is wrong without repeating values.
func jsonFault(err error) string {
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed) && typed.Field != "":
		return typed.Field + " is not a " + typed.Type.String()
	case errors.As(err, &typed):
		return "a " + typed.Value + " where an object belongs"
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return strings.TrimPrefix(err.Error(), "json: ")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends early"
	}
	return "syntax error"
}
