package cell

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/kernel"
)

// bundle reads a value in its MIME types, those that make sense. It is never
// nil.
func bundle(raw json.RawMessage) kernel.Bundle {
	b := make(kernel.Bundle)
	kernel.Members(raw, func(mime string, v json.RawMessage) bool {
		if isMIME(mime) {
			b[mime] = slices.Clone(valueOf(mime, v)) // of a line that is read over
		}
		return len(b) < maxTypes
	})
	return b
}

// isMIME reports whether a name could be that of a MIME type.
func isMIME(name string) bool {
	if name == "" || len(name) > maxMIME {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// valueOf makes a value what its type says: a string, or any JSON.
func valueOf(mime string, v json.RawMessage) json.RawMessage {
	if strings.HasSuffix(mime, "json") {
		return v
	}
	var text string
	switch {
	case v[0] == '"' && !bytes.Contains(v, []byte(`\ud`)) && !bytes.Contains(v, []byte(`\uD`)):
		return v
	case v[0] == '"':
		// Half a surrogate pair is no text; decoding replaces it.
		if json.Unmarshal(v, &text) != nil {
			return kernel.Quote("")
		}
	case v[0] == '[':
		text = strings.Join(texts(v), "")
	default:
		text = string(v)
	}
	return kernel.Quote(text)
}

// texts reads a list of strings.
func texts(raw json.RawMessage) []string {
	var all []string
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil
	}
	for dec.More() && len(all) < maxTexts {
		var v any
		if dec.Decode(&v) != nil {
			break
		}
		if s, ok := v.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// metadata is what is said about a value, nil when that is nothing.
func metadata(raw json.RawMessage) json.RawMessage {
	if len(raw) <= len("{}") || raw[0] != '{' || len(raw) > maxMetadata {
		return nil
	}
	return slices.Clone(raw)
}

// capResult bounds the texts of a result; other values are whole.
func capResult(b kernel.Bundle, limit int, truncated map[string]int64) kernel.Bundle {
	for mime, value := range b {
		if !strings.HasPrefix(mime, "text/") || limit <= 0 || len(value) <= limit {
			continue
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			continue // JSON of a text type
		}
		b[mime] = kernel.Quote(capText(text, limit, "result."+mime, truncated))
	}
	return b
}
