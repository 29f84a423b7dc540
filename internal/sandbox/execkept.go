package sandbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// KeptText is how much of a command's text its history keeps: of a shell string,
// of all arguments together, of code, and of each field of an operation.
const KeptText = 16 << 10

// Kept returns the spec as the history of a finished exec keeps it: long texts
// are cut and say so. ok is false when there was nothing to cut.
func (x ExecSpec) Kept() (kept ExecSpec, ok bool) {
	return x.cut(KeptText, func(n int, of string) string { return fmt.Sprintf("[%d %s are not kept]", n, of) })
}

// cut shortens each long text to about n bytes. note says that so many bytes or
// arguments are missing.
func (x ExecSpec) cut(n int, note func(n int, of string) string) (kept ExecSpec, ok bool) {
	kept = x
	if len(x.Shell) > n {
		kept.Shell, ok = cutText(x.Shell, n, note), true
	}
	room := n
	for i, arg := range x.Argv {
		if len(arg) > room {
			kept.Argv = append(append([]string{}, x.Argv[:i]...), cutText(arg, room, note))
			if left := len(x.Argv) - i - 1; left > 0 {
				kept.Argv = append(kept.Argv, strings.TrimSpace("… "+note(left, "arguments")))
			}
			ok = true
			break
		}
		room -= len(arg) + 1 // an empty one takes room too
	}
	if x.Cell != nil && len(x.Cell.Code) > max(n, listedCode+len("…")) {
		cell := *x.Cell
		cell.Code = cutText(cell.Code, n, note)
		kept.Cell, ok = &cell, true
	}
	if detail := cutDetail(x.Detail, note); len(detail) != len(x.Detail) {
		kept.Detail, ok = detail, true
	}
	return kept, ok
}

// KeptDetail cuts the long fields of an operation's JSON object.
func KeptDetail(detail json.RawMessage) json.RawMessage {
	kept, _ := ExecSpec{Detail: detail}.Kept()
	return kept.Detail
}

func cutDetail(detail json.RawMessage, note func(n int, of string) string) json.RawMessage {
	var fields map[string]json.RawMessage
	if len(detail) <= KeptText || json.Unmarshal(detail, &fields) != nil {
		return detail
	}
	for name, value := range fields {
		if len(value) > KeptText {
			// A string always has a JSON form.
			fields[name], _ = json.Marshal(cmp.Or(note(len(value), "bytes"), "…"))
		}
	}
	kept, err := json.Marshal(fields)
	if err != nil {
		return detail
	}
	return kept
}

// cutText keeps the first n bytes of text, less what would split a character.
func cutText(text string, n int, note func(n int, of string) string) string {
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.TrimSpace(text[:n] + "… " + note(len(text)-n, "bytes"))
}
