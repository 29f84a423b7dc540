package jupyter

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cubbyhq/cubby/internal/kernel"
)

// Questions about code that is not run. A kernel answers them between its
// cells. When ctx ends it may still be at work on one.

// Complete asks how code can go on at the cursor, which is counted in Unicode
// code points.
func (c *Client) Complete(ctx context.Context, code string, cursor int) (kernel.Completion, error) {
	var r kernel.Completion
	err := c.question(ctx, "complete_request", map[string]any{"code": code, "cursor_pos": cursor}, &r)
	if err == nil && !r.Valid(code) {
		err = kernel.ErrNonsense
	}
	return r, err
}

// Inspect asks what the kernel knows about the name at the cursor; with detail
// 1 instead of 0 that is more, as the source.
func (c *Client) Inspect(ctx context.Context, code string, cursor, detail int) (r kernel.Inspection, err error) {
	err = c.question(ctx, "inspect_request", map[string]any{"code": code, "cursor_pos": cursor, "detail_level": detail}, &r)
	if c.info.Language.Name == "R" {
		r = known(r)
	}
	return r, err
}

// noHelp begin what IRkernel says, last, of a name that has no page of help. It
// does so of names that there are not, too.
var noHelp = map[string]string{
	"text/plain": "# Help document:\nNo documentation for ",
	"text/html":  "<h1>Help document:</h1>",
}

// known is what R knows about a name beside that it has no help.
func known(r kernel.Inspection) kernel.Inspection {
	if !strings.Contains(r.Data["text/plain"], noHelp["text/plain"]) {
		return r
	}
	left := kernel.Texts{}
	for mime, text := range r.Data {
		text, _, _ = strings.Cut(text, noHelp[mime])
		if text = strings.TrimSpace(text); text != "" {
			left[mime] = text + "\n"
		}
	}
	r.Data, r.Found = left, len(left) > 0
	return r
}

// Check asks whether code can be run as it stands.
func (c *Client) Check(ctx context.Context, code string) (kernel.Completeness, error) {
	var r kernel.Completeness
	err := c.question(ctx, "is_complete_request", map[string]any{"code": code}, &r)
	return r.Bounded(), err
}

func (c *Client) question(ctx context.Context, kind string, content, into any) error {
	x, forget, err := c.begin(c.shell, kind, content, nil)
	if err != nil {
		return err
	}
	defer forget()
	m, err := c.await(ctx, x)
	if err != nil {
		return err
	}
	var r struct {
		Status string `json:"status"`
		Name   string `json:"ename"`
		Value  string `json:"evalue"`
	}
	switch {
	case m.Cut > 0, json.Unmarshal(m.Content, &r) != nil:
		return kernel.ErrNonsense
	case r.Status == "error", r.Status == "aborted":
		return fmt.Errorf("the kernel could not answer: %.100s: %.200s", r.Name, r.Value)
	case json.Unmarshal(m.Content, into) != nil:
		return kernel.ErrNonsense
	}
	return nil
}
