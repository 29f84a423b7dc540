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
	if !kernel.Members(line, func(name string, v json.RawMessage) bool {
		switch name {
		case "display":
			return readValue(v, &r.Display)
		case "result":
			return readValue(v, &r.Result)
		case "error":
			return json.Unmarshal(v, &r.Error) == nil
		case "clear":
			return json.Unmarshal(v, &r.Clear) == nil
		case "kernel":
			return json.Unmarshal(v, &r.Kernel) == nil
		case "done":
			return json.Unmarshal(v, &r.Done) == nil
		}
		return true
	}) {
		return nil
	}
	return &r
}

// readValue reports whether a text is a value, which into has then, or null.
func readValue(text json.RawMessage, into **shownValue) bool {
	if string(text) == "null" {
		return true
	}
	s := new(shownValue)
	*into = s
	return kernel.Members(text, func(name string, v json.RawMessage) bool {
		switch name {
		case "data":
			s.Data = v
		case "metadata":
			s.Metadata = v
		case "display_id":
			return json.Unmarshal(v, &s.ID) == nil
		case "update":
			return json.Unmarshal(v, &s.Update) == nil
		case "execution_count":
			return json.Unmarshal(v, &s.Count) == nil
		}
		return true
	})
}
