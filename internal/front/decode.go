package front

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// DecodeStrict reads one JSON object and refuses unknown fields.
func DecodeStrict(data []byte, v any) error { return decode(data, v, true) }

// DecodeLoose reads one JSON object and ignores what it does not know, as
// dialects of other systems do. Wrong types are errors all the same.
func DecodeLoose(data []byte, v any) error { return decode(data, v, false) }

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

// ReadAtMost reads a body of at most limit bytes.
func ReadAtMost(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, errs.E(errs.Canceled, "the request body ended early").Because(err)
	}
	if int64(len(data)) > limit {
		return nil, errs.E(errs.TooLarge, "the request body is over %d bytes", limit)
	}
	return data, nil
}

// Upload reads a body. What goes wrong with the client's end is classified, so
// that it is not taken for a fault of the sandbox.
func Upload(r io.Reader) io.Reader { return &upload{r} }

type upload struct{ r io.Reader }

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = errs.E(errs.Canceled, "the request body ended early").Because(err)
	}
	return n, err
}

// maxSeconds is the longest time that a request can name: a year.
const maxSeconds = 366 * 24 * 3600

// Seconds is the time that a field names.
func Seconds(field string, s float64) (time.Duration, error) {
	if s != s || s < 0 || s > maxSeconds {
		return 0, errs.E(errs.Invalid, "%s: not a number of seconds between 0 and %d", field, maxSeconds)
	}
	return time.Duration(s * float64(time.Second)), nil
}
