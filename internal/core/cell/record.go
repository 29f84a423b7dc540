package cell

import (
	"encoding/json"

	"github.com/cubbyhq/cubby/internal/kernel"
)

// record is a [kernel.Output] whose larger parts are still to be looked at.
type record struct {
	Display *shownValue
	Result  *shownValue
	Error   *struct {
		Name      string          `json:"ename"`
		Value     string          `json:"evalue"`
		Traceback json.RawMessage `json:"traceback"`
	}
	Clear  *kernel.Clear
	Kernel *kernel.Notice
	Done   *kernel.Done
}

// shownValue is a [kernel.Display] or a [kernel.Result].
type shownValue struct {
	Data, Metadata json.RawMessage
	ID             string
	Update         bool
	Count          int
}

// readRecord reads a line; nil when it is no record. A value can be 16 MiB in one
// string: that is looked at as seldom as can be.
func readRecord(line []byte) *record {
	if !kernel.Valid(line, kernel.MaxNesting) {
		return nil
	}
	var r record
	fits := true
	object := kernel.Members(line, func(name string, v json.RawMessage) bool {
		switch name {
		case "display":
			r.Display, fits = readValue(v)
		case "result":
			r.Result, fits = readValue(v)
		case "error":
			fits = json.Unmarshal(v, &r.Error) == nil
		case "clear":
			fits = json.Unmarshal(v, &r.Clear) == nil
		case "kernel":
			fits = json.Unmarshal(v, &r.Kernel) == nil
		case "done":
			fits = json.Unmarshal(v, &r.Done) == nil
		}
		return fits
	})
	if !object || !fits {
		return nil
	}
	return &r
}

func readValue(text json.RawMessage) (s *shownValue, fits bool) {
	if string(text) == "null" {
		return nil, true
	}
	s, fits = new(shownValue), true
	object := kernel.Members(text, func(name string, v json.RawMessage) bool {
		switch name {
		case "data":
			s.Data = v
		case "metadata":
			s.Metadata = v
		case "display_id":
			fits = json.Unmarshal(v, &s.ID) == nil
		case "update":
			fits = json.Unmarshal(v, &s.Update) == nil
		case "execution_count":
			fits = json.Unmarshal(v, &s.Count) == nil
		}
		return fits
	})
	return s, object && fits
}
