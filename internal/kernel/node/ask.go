package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cubbyhq/cubby/internal/kernel"
)

// question is about code that is not run. The kernel answers it between cells.
type question struct {
	Asked    int64  `json:"asked"`
	Question string `json:"question"`
	Code     string `json:"code"`
	Cursor   int    `json:"cursor"`
	Detail   int    `json:"detail"`
	// Changes are values of environment variables, of before and from now on.
	Changes map[string][2]*string `json:"changes,omitempty"`
}

// Complete asks how code can go on at the cursor, which is counted in Unicode
// code points.
func (c *Client) Complete(ctx context.Context, code string, cursor int) (kernel.Completion, error) {
	var r kernel.Completion
	err := c.ask(ctx, question{Question: "complete", Code: code, Cursor: cursor}, &r)
	if err == nil && !r.Valid(code) {
		err = kernel.ErrNonsense
	}
	return r, err
}

// Inspect asks what the kernel knows about the name at the cursor; with detail
// 1 instead of 0 that is more, as the whole source.
func (c *Client) Inspect(ctx context.Context, code string, cursor, detail int) (r kernel.Inspection, err error) {
	err = c.ask(ctx, question{Question: "inspect", Code: code, Cursor: cursor, Detail: detail}, &r)
	return r, err
}

// Check asks whether code can be run as it stands.
func (c *Client) Check(ctx context.Context, code string) (kernel.Completeness, error) {
	var r kernel.Completeness
	err := c.ask(ctx, question{Question: "check", Code: code}, &r)
	return r.Bounded(), err
}

// Environ changes the kernel's environment, between cells.
func (c *Client) Environ(ctx context.Context, changes map[string]kernel.Variable) error {
	pairs := map[string][2]*string{}
	for name, v := range changes {
		pairs[name] = [2]*string{v.Old, v.New}
	}
	var done bool
	return c.ask(ctx, question{Question: "environ", Changes: pairs}, &done)
}

func (c *Client) ask(ctx context.Context, q question, into any) error {
	answer := make(chan message, 1)
	c.mu.Lock()
	c.asked++
	q.Asked = c.asked
	c.asks[q.Asked] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asks, q.Asked)
	}()
	line, err := json.Marshal(q)
	if err != nil {
		return err
	}
	if err := c.write(line); err != nil {
		return err
	}
	var m message
	select {
	case m = <-answer:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.gone:
		return kernel.ErrGone
	}
	if m.Failed != "" {
		return errors.New("the kernel could not answer: " + fmt.Sprintf("%.200s", m.Failed))
	}
	if json.Unmarshal(m.Answer, into) != nil {
		return kernel.ErrNonsense
	}
	return nil
}

// write gives the kernel a line, whole: what one writer begins no other breaks.
func (c *Client) write(line []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%w: %w", kernel.ErrGone, err)
	}
	return nil
}
