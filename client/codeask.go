package client

import (
	"context"
	"fmt"
	"net/http"
)

// CodePosition is a place in code that a kernel is asked about. Nothing of it
// is run.
type CodePosition struct {
	Code string `json:"code"`
	// Cursor is in Unicode code points; nil is the end of the code.
	Cursor *int `json:"cursor_pos,omitempty"`
}

// CodeCompletion is how code can go on.
type CodeCompletion struct {
	// Matches may stand from CursorStart to CursorEnd, which are in Unicode code
	// points. Truncated: there are more.
	Matches     []string `json:"matches"`
	CursorStart int      `json:"cursor_start"`
	CursorEnd   int      `json:"cursor_end"`
	Truncated   bool     `json:"truncated"`
}

// CodeInspection is what a kernel knows about a name, as texts by MIME type.
type CodeInspection struct {
	Found bool              `json:"found"`
	Data  map[string]string `json:"data"`
}

// String is short, for logs: whether there is something, and how much.
func (i CodeInspection) String() string {
	if !i.Found {
		return "nothing is known"
	}
	return fmt.Sprintf("known, in %d bytes of text", len(i.Text()))
}

// Text is the plain text.
func (i CodeInspection) Text() string { return i.Data["text/plain"] }

// CodeCompleteness is whether code can be run as it stands.
type CodeCompleteness struct {
	// Status is "complete", "incomplete" when more lines belong to it, "invalid"
	// when no line can mend it, or "unknown" when the kernel cannot say.
	Status string `json:"status"`
	Indent string `json:"indent"` // of the next line of incomplete code
}

// CompleteCode asks a kernel how code can go on. This and the other questions
// are [WrongState] while it runs a cell.
func (c *Client) CompleteCode(ctx context.Context, id, kernel string, at CodePosition) (CodeCompletion, error) {
	var r CodeCompletion
	return r, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "kernels", kernel, "complete"), json: at}, &r)
}

// InspectCode asks a kernel what the name at a position is; with detail 1
// instead of 0 the answer has more, as the source.
func (c *Client) InspectCode(ctx context.Context, id, kernel string, at CodePosition, detail int) (CodeInspection, error) {
	body := struct {
		CodePosition
		Detail int `json:"detail_level,omitempty"`
	}{at, detail}
	var r CodeInspection
	return r, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "kernels", kernel, "inspect"), json: body}, &r)
}

// CheckCode asks a kernel whether code can be run as it stands.
func (c *Client) CheckCode(ctx context.Context, id, kernel, code string) (CodeCompleteness, error) {
	body := struct {
		Code string `json:"code"`
	}{code}
	var r CodeCompleteness
	return r, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "kernels", kernel, "is-complete"), json: body}, &r)
}
