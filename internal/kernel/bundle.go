package kernel

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// AppendLine appends an output as one line of JSON, as encoding/json writes it, and
// "\n". Values that are [Valid] are copied as they are: to look at each of their bytes
// again is most of what a picture costs.
func (o Output) AppendLine(line []byte) ([]byte, error) {
	var err error
	switch {
	case o.Display != nil:
		line, err = o.Display.Data.appendTo(append(line, `{"display":{"data":`...))
		if err == nil && len(o.Display.Metadata) > 0 {
			line, err = appendValue(append(line, `,"metadata":`...), o.Display.Metadata)
		}
		if o.Display.ID != "" {
			line = append(append(line, `,"display_id":`...), Quote(o.Display.ID)...)
		}
		if o.Display.Update {
			line = append(line, `,"update":true`...)
		}
	case o.Result != nil:
		count, _ := json.Marshal(o.Result.Count)
		line = append(append(line, `{"result":{"execution_count":`...), count...)
		line, err = o.Result.Data.appendTo(append(line, `,"data":`...))
		if err == nil && len(o.Result.Metadata) > 0 {
			line, err = appendValue(append(line, `,"metadata":`...), o.Result.Metadata)
		}
	default:
		return appendJSON(line, o)
	}
	return append(line, "}}\n"...), err
}

func (b Bundle) appendTo(line []byte) (_ []byte, err error) {
	if b == nil {
		return append(line, "null"...), nil
	}
	line = append(line, '{')
	for i, name := range slices.Sorted(maps.Keys(b)) {
		if i > 0 {
			line = append(line, ',')
		}
		if line, err = appendValue(append(append(line, Quote(name)...), ':'), b[name]); err != nil {
			return line, err
		}
	}
	return append(line, '}'), nil
}

// appendValue appends JSON without line breaks.
func appendValue(line []byte, value json.RawMessage) ([]byte, error) {
	if len(value) == 0 {
		return append(line, "null"...), nil
	}
	if !bytes.ContainsAny(value, "\r\n") {
		return append(line, value...), nil
	}
	out := bytes.NewBuffer(line)
	err := json.Compact(out, value)
	return out.Bytes(), err
}

// Quote is text as JSON, with <, > and & as they are.
func Quote(text string) json.RawMessage {
	quoted, _ := appendJSON(nil, text) // no string fails
	return bytes.TrimSuffix(quoted, []byte("\n"))
}

// appendJSON appends a line, with <, > and & as they are.
func appendJSON(line []byte, v any) ([]byte, error) {
	out := bytes.NewBuffer(line)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return out.Bytes(), err
}
