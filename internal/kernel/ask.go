package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of what a kernel answers about code that is not run.
const (
	MaxMatches    = 1000
	MaxMatch      = 1000      // bytes of one match
	MaxInspection = 256 << 10 // bytes of all its texts
	MaxIndent     = 100       // bytes
)

// ErrNonsense is for answers that are not what the protocol says.
var ErrNonsense = errors.New("the kernel answered nonsense")

// Completion is what may stand in the place of a part of the code, from Start
// to End, which are counted in Unicode code points.
type Completion struct {
	Matches Matches `json:"matches"`
	Start   int     `json:"cursor_start"`
	End     int     `json:"cursor_end"`
}

// Valid reports whether the part is one of the code.
func (c Completion) Valid(code string) bool {
	return c.Start >= 0 && c.Start <= c.End && c.End <= utf8.RuneCountInString(code)
}

// Matches are at most [MaxMatches] texts. There are more when some were left
// out: too many, or longer than [MaxMatch].
type Matches struct {
	Texts []string
	More  bool
}

// UnmarshalJSON implements [json.Unmarshaler] for an array of strings. It makes
// no more of a long one than it keeps.
func (m *Matches) UnmarshalJSON(text []byte) error {
	*m = Matches{}
	d := json.NewDecoder(bytes.NewReader(text))
	switch t, err := d.Token(); {
	case err != nil || t == nil: // null is no matches
		return err
	case t != json.Delim('['):
		return ErrNonsense
	}
	for d.More() {
		var match string
		if err := d.Decode(&match); err != nil {
			return err
		}
		if len(m.Texts) == MaxMatches {
			m.More = true
			return nil
		}
		m.Add(match)
	}
	return nil
}

// Add appends a match if there is room for it.
func (m *Matches) Add(match string) {
	if len(m.Texts) >= MaxMatches || len(match) > MaxMatch {
		m.More = true
		return
	}
	m.Texts = append(m.Texts, strings.ToValidUTF8(match, "\uFFFD"))
}

// Inspection is what a kernel knows about a name, as texts by their MIME type.
type Inspection struct {
	Found bool  `json:"found"`
	Data  Texts `json:"data"`
}

// Texts are texts by MIME type, together no longer than [MaxInspection]: plain
// text is cut to that, and others are left out where there is no room for them.
type Texts map[string]string

const plainText = "text/plain"

// UnmarshalJSON implements [json.Unmarshaler] for an object, of which it keeps
// the strings of types that are text.
func (t *Texts) UnmarshalJSON(text []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*t = Texts{}
	texts := map[string]string{}
	for mime, raw := range all {
		var value string
		if json.Unmarshal(raw, &value) == nil {
			texts[mime] = value
		}
	}
	t.AddAll(texts)
	return nil
}

// AddAll adds the texts that there is room for, plain text first.
func (t Texts) AddAll(texts map[string]string) {
	if value, ok := texts[plainText]; ok {
		t.add(plainText, value)
	}
	for _, mime := range slices.Sorted(maps.Keys(texts)) {
		if mime != plainText {
			t.add(mime, texts[mime])
		}
	}
}

func (t Texts) add(mime, value string) {
	room := MaxInspection
	for m, v := range t {
		room -= len(m) + len(v)
	}
	value = strings.ToValidUTF8(value, "\uFFFD")
	if mime == plainText && len(value) > room-len(mime) && room > len(mime) {
		value = strings.ToValidUTF8(value[:room-len(mime)], "")
	}
	if strings.HasPrefix(mime, "text/") && utf8.ValidString(mime) && len(mime)+len(value) <= room {
		t[mime] = value
	}
}

// Completeness is whether code can be run as it stands.
type Completeness struct {
	// Status is "complete", "incomplete" when more lines belong to it, "invalid"
	// when no line can mend it, or "unknown".
	Status string `json:"status"`
	// Indent is what the next line of incomplete code begins with.
	Indent string `json:"indent"`
}

// Bounded is the same without what the protocol does not know.
func (c Completeness) Bounded() Completeness {
	switch c.Status {
	case "incomplete":
		if len(c.Indent) > MaxIndent || strings.Trim(c.Indent, " \t") != "" {
			c.Indent = ""
		}
		return c
	case "complete", "invalid":
		return Completeness{Status: c.Status}
	}
	return Completeness{Status: "unknown"}
}
