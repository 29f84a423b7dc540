package openai

import (
	"encoding/json"
	"strings"
)

// maxDetails bounds those of one thought: each piece looks for its own among them.
const maxDetails = 1000

// detail is one of OpenRouter's, which keep what the models' own providers want
// back: it comes in pieces and goes back whole.
type detail struct {
	fields map[string]json.RawMessage
	texts  map[string]*strings.Builder // of the fields that grow
}

// addDetail adds a piece to the detail of the same type and index, or as a new one.
func addDetail(details []detail, raw json.RawMessage) []detail {
	var piece map[string]json.RawMessage
	if json.Unmarshal(raw, &piece) != nil || piece == nil {
		return details
	}
	for _, d := range details {
		if piece["index"] != nil && string(d.fields["type"]) == string(piece["type"]) && string(d.fields["index"]) == string(piece["index"]) {
			d.add(piece)
			return details
		}
	}
	d := detail{map[string]json.RawMessage{}, map[string]*strings.Builder{}}
	d.add(piece)
	return append(details, d)
}

func (d detail) add(piece map[string]json.RawMessage) {
	for name, value := range piece {
		var text string
		switch {
		case string(value) == "null":
		case (name == "text" || name == "summary" || name == "data") && json.Unmarshal(value, &text) == nil:
			if d.texts[name] == nil {
				d.texts[name] = new(strings.Builder)
			}
			d.texts[name].WriteString(text)
		default:
			d.fields[name] = value
		}
	}
}

// MarshalJSON writes the detail as it is so far.
func (d detail) MarshalJSON() ([]byte, error) {
	all := map[string]any{}
	for name, value := range d.fields {
		all[name] = value
	}
	for name, text := range d.texts {
		all[name] = text.String()
	}
	return json.Marshal(all)
}
