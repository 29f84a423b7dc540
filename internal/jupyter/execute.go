package jupyter

import (
	"context"
	"encoding/json"
	"time"
)

// Bundle is one value in several MIME types. Values are JSON: a string for
// text and for base64 of binary data, any value for types that end in json.
type Bundle map[string]json.RawMessage

// Output is one thing that a cell shows; exactly one field is set.
type Output struct {
	Stream  *Stream
	Display *Display
	Result  *Result
	Error   *Error
	Clear   *Clear
	Input   *Input
}

// Stream is text on stdout or stderr.
type Stream struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Display is a value that was shown on purpose. One with an ID and Update
// replaces an earlier one.
type Display struct {
	Data     Bundle          `json:"data"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	ID       string          `json:"display_id,omitempty"`
	Update   bool            `json:"update,omitempty"`
}

// Result is the value of the cell's last expression.
type Result struct {
	Count    int             `json:"execution_count"`
	Data     Bundle          `json:"data"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Error is an exception that ended the cell.
type Error struct {
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// Clear asks that what was shown so far is removed, with Wait only when the
// next output comes.
type Clear struct {
	Wait bool `json:"wait"`
}

// Input is a question of the cell; it waits until [Client.Answer].
type Input struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password"`
}

// Cell is what to execute.
type Cell struct {
	Code string
	// Silent runs without output of the result and without a count.
	Silent bool
	// Stdin lets the cell ask for input; otherwise asking is an error in it.
	Stdin bool
}

// Reply is how a cell ended.
type Reply struct {
	Status string `json:"status"` // "ok", "error" or "aborted"
	Count  int    `json:"execution_count"`
	Error
}

// settle is how long output may come after the reply. Kernels send it before,
// on another connection.
const settle = 5 * time.Second

// Execute runs a cell and returns when the kernel has said how it ended and
// everything that it printed has been given to show, which is called in order
// and from one goroutine at a time. When ctx ends the cell goes on; see
// [Client.Interrupt]. show must not wait: a kernel drops what its connection
// cannot take.
func (c *Client) Execute(ctx context.Context, cell Cell, show func(Output)) (Reply, error) {
	x, forget, err := c.begin(c.shell, "execute_request", map[string]any{
		"code": cell.Code, "silent": cell.Silent, "store_history": !cell.Silent,
		"user_expressions": struct{}{}, "allow_stdin": cell.Stdin, "stop_on_error": false,
	}, func(m message) {
		if o, ok := outputOf(m); ok {
			show(o)
		}
	})
	if err != nil {
		return Reply{}, err
	}
	defer forget()
	m, err := c.await(ctx, x)
	if err != nil {
		return Reply{}, err
	}
	var r Reply
	if err := json.Unmarshal(m.Content, &r); err != nil {
		return Reply{}, errMalformed
	}
	t := time.NewTimer(settle)
	defer t.Stop()
	select {
	case <-x.idle:
	case <-t.C:
	case <-c.gone:
	}
	return r, nil
}

// outputOf reads what a cell shows.
func outputOf(m message) (Output, bool) {
	var o Output
	var into any
	switch m.Header.Type {
	case "stream":
		o.Stream = new(Stream)
		into = o.Stream
	case "execute_result":
		o.Result = new(Result)
		into = o.Result
	case "error":
		o.Error = new(Error)
		into = o.Error
	case "clear_output":
		o.Clear = new(Clear)
		into = o.Clear
	case "input_request":
		o.Input = new(Input)
		into = o.Input
	case "display_data", "update_display_data":
		var d struct {
			Display
			Transient struct {
				ID string `json:"display_id"`
			} `json:"transient"`
		}
		if json.Unmarshal(m.Content, &d) != nil {
			return o, false
		}
		d.Display.ID, d.Display.Update = d.Transient.ID, m.Header.Type == "update_display_data"
		o.Display = &d.Display
		return o, true
	default:
		return o, false
	}
	return o, json.Unmarshal(m.Content, into) == nil
}

// Answer gives the cell that asked what was typed.
func (c *Client) Answer(value string) error {
	_, frames, err := c.key.request(c.session, "input_reply", map[string]string{"value": value})
	if err != nil {
		return err
	}
	return c.stdin.send(frames)
}

// Interrupt asks the kernel by message to end the running cell, for kernels
// that want it so.
func (c *Client) Interrupt(ctx context.Context) error {
	return c.ask(ctx, "interrupt_request", struct{}{})
}

// Shutdown asks the kernel to end itself.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.ask(ctx, "shutdown_request", map[string]bool{"restart": false})
}

// ask sends a control request and waits for its reply.
func (c *Client) ask(ctx context.Context, kind string, content any) error {
	x, forget, err := c.begin(c.control, kind, content, nil)
	if err != nil {
		return err
	}
	defer forget()
	_, err = c.await(ctx, x)
	return err
}
