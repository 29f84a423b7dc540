package mcp

import (
	"encoding/json"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	// maxEvent bounds a result as it is sent: Python's SDK refuses events of
	// 1 MiB, and an event has some more than its result.
	maxEvent = 1<<20 - 32<<10
	// maxRepeated bounds what the text block repeats of one text, as it is sent:
	// more than this is in structuredContent alone.
	maxRepeated = 64 << 10
)

// repeated is what the text block says of a text that structuredContent has.
func repeated(s string) string {
	if len(tools.Head(s, maxRepeated)) == len(s) {
		return s
	}
	head, tail := tools.Head(s, maxRepeated/2), tools.Tail(s, maxRepeated/2)
	return fmt.Sprintf("%s\n\n... [%d more bytes are in structuredContent] ...\n\n%s", head, len(s)-len(head)-len(tail), tail)
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
	return result(answer{value: tools.Failure{
		Error: "ValueError: the answer is larger than a message may be, and what was asked for was done",
		Hint:  "Ask for less at once.",
	}}, true)
}
