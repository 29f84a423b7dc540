package mcp

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxEvent bounds a result as it is sent: Python's SDK refuses events of
	// 1 MiB, and an event has some more than its result.
	maxEvent = 1<<20 - 32<<10
	// maxRepeated bounds what the text block repeats of one text, as it is sent:
	// more than this is in structuredContent alone.
	maxRepeated = 64 << 10
)

// weight is how many bytes a text takes in a JSON string within a JSON string,
// which is the most that it takes anywhere in a result.
func weight(s string) int {
	n := 0
	for i := 0; i < len(s); {
		w, size := runeWeight(s[i:])
		n, i = n+w, i+size
	}
	return n
}

func runeWeight(s string) (weight, size int) {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == '"' || r == '\\':
		return 4, size
	case r == '\n' || r == '\r' || r == '\t':
		return 3, size
	case r < ' ' || r == 0x7f || r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029':
		return 7, size
	case r == utf8.RuneError:
		return 7, size
	}
	return size, size
}

// head returns the longest beginning of a text whose weight is within a limit.
func head(s string, limit int) string {
	for i := 0; i < len(s); {
		w, size := runeWeight(s[i:])
		if limit -= w; limit < 0 {
			return s[:i]
		}
		i += size
	}
	return s
}

// bounded is a text within a limit, which says what it lacks; cut reports
// whether it does.
func bounded(s string, limit int) (text string, cut bool) {
	h := head(s, limit)
	if len(h) == len(s) {
		return s, false
	}
	return fmt.Sprintf("%s\n\n... [truncated — %d bytes total, showing first %d]", h, len(s), len(h)), true
}

// repeated is what the text block says of a text that structuredContent has.
func repeated(s string) string {
	h := head(s, maxRepeated)
	if len(h) == len(s) {
		return s
	}
	return fmt.Sprintf("%s\n\n... [%d more bytes are in structuredContent]", h, len(s)-len(h))
}

// size is how many bytes a result takes.
func size(r *sdk.CallToolResult) int {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // every part of it is a struct of this package or of the SDK
	}
	return len(b)
}

// sendable leaves out of a result what makes it larger than a message may be:
// what the text repeats, and links.
func sendable(r *sdk.CallToolResult) *sdk.CallToolResult {
	if size(r) <= maxEvent {
		return r
	}
	r.Content = []sdk.Content{&sdk.TextContent{Text: string(encode(struct {
		Note string `json:"note"`
	}{"The answer is long: it is in structuredContent."}))}}
	if size(r) <= maxEvent {
		return r
	}
	return result(answer{value: failure{
		Error: "ValueError: the answer is larger than a message may be, and what was asked for was done",
		Hint:  "Ask for less at once.",
	}}, true)
}
