package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/kernel"
)

// Kernels send output before the reply, but on another connection. So it may
// come later: settle is how long nothing may come of it, settleMost how long
// it may take in all.
const (
	settle     = 15 * time.Second
	settleMost = 10 * time.Minute
	// replyLate is how long a reply may come after the kernel said that it is
	// idle again: it is sent before.
	replyLate = 3 * time.Second
)

// Execute runs a cell and returns when the kernel has said how it ended and
// everything that it printed has been given to show, which is called in order,
// from one goroutine at a time, and not after the return; what earlier cells showed after their end
// comes first. When ctx ends the cell goes on; see
// [Client.Interrupt]. show must not wait: a kernel drops what its connection
// cannot take.
func (c *Client) Execute(ctx context.Context, cell kernel.Cell, show func(kernel.Output)) (kernel.Reply, error) {
	// What is on its way when the cell ends comes to the next one, as what comes
	// later does.
	shown := &c.late
	if cell.Silent {
		shown = new(kernel.Backlog)
	}
	shown.Begin(show)
	defer shown.End()
	// A kernel repeats the code that it is about to run, except silently; what it shows
	// says as much.
	began := sync.OnceFunc(func() {
		if cell.Began != nil {
			cell.Began(0)
		}
	})
	x, forget, err := c.begin(c.shell, "execute_request", map[string]any{
		"code": cell.Code, "silent": cell.Silent, "store_history": !cell.Silent,
		"user_expressions": struct{}{}, "allow_stdin": cell.Stdin, "stop_on_error": false,
	}, func(m message) {
		began()
		if o, ok := outputOf(m); ok {
			shown.Add(o)
		}
	})
	if err != nil {
		return kernel.Reply{}, err
	}
	defer forget()
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-x.idle:
		case <-waiting.Done():
			return
		}
		late, t := c.uptime.After(replyLate)
		defer t.Stop()
		select {
		case <-late:
			stop(errNoReply)
		case <-waiting.Done():
		}
	}()
	m, err := c.await(waiting, x)
	if errors.Is(err, errNoReply) {
		// An interrupt that comes before the cell itself runs ends the request
		// and not the cell: ipykernel goes on without a word about it.
		return kernel.Reply{Status: "aborted", Error: kernel.Error{Name: "KeyboardInterrupt"}}, nil
	}
	if err != nil {
		return kernel.Reply{}, err
	}
	var r struct {
		kernel.Reply
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(m.Content, &r); err != nil {
		return kernel.Reply{}, errMalformed
	}
	r.Leaves = leaves(r.Payload)
	c.settle(x)
	for _, page := range pages(r.Payload) {
		shown.Add(page)
	}
	return r.Reply, nil
}

// pages are what a kernel wants to be shown in a pager, as the help of
// IPython's ?name. It comes with the reply, and is shown as a display. A
// payload that is not what the protocol says shows nothing.
func pages(payload json.RawMessage) []kernel.Output {
	var asked []struct {
		Source string        `json:"source"`
		Data   kernel.Bundle `json:"data"`
	}
	_ = json.Unmarshal(payload, &asked)
	var all []kernel.Output
	for _, p := range asked {
		if p.Source == "page" && len(p.Data) > 0 {
			all = append(all, kernel.Output{Display: &kernel.Display{Data: p.Data}})
		}
	}
	return all
}

// leaves reports whether a cell asked for the kernel's end. A payload that is
// not what the protocol says asks for nothing.
func leaves(payload json.RawMessage) bool {
	var asked []struct {
		Source string `json:"source"`
		Keep   bool   `json:"keepkernel"`
	}
	_ = json.Unmarshal(payload, &asked)
	for _, a := range asked {
		if a.Source == "ask_exit" && !a.Keep {
			return true
		}
	}
	return false
}

// errNoReply: the kernel is idle again and has not said how a cell ended.
var errNoReply = errors.New("the kernel did not reply")

// settle returns when all output of a request has come, or no more does.
func (c *Client) settle(x *exchange) {
	most, t := c.uptime.After(settleMost)
	defer t.Stop()
	for {
		before := c.iopub.came.Load()
		quiet, t := c.uptime.After(settle)
		select {
		case <-x.idle:
		case <-most:
		case <-c.gone:
		case <-quiet:
			if c.iopub.came.Load() != before {
				continue
			}
		}
		t.Stop()
		return
	}
}

// outputOf reads what a cell shows.
func outputOf(m message) (kernel.Output, bool) {
	o := kernel.Output{Cut: m.Cut}
	if o.Cut > 0 && m.Header.Type != "stream" {
		o.Cut += keptOfMore
	}
	var into any
	switch m.Header.Type {
	case "stream":
		o.Stream = new(kernel.Stream)
		into = o.Stream
	case "execute_result":
		o.Result = new(kernel.Result)
		return o, readResult(m.Content, o.Result)
	case "error":
		o.Error = new(kernel.Error)
		into = o.Error
	case "clear_output":
		o.Clear = new(kernel.Clear)
		into = o.Clear
	case "input_request":
		o.Input = new(kernel.Input)
		into = o.Input
	case "display_data", "update_display_data":
		o.Display = new(kernel.Display)
		o.Display.Update = m.Header.Type == "update_display_data"
		return o, readDisplay(m.Content, o.Display)
	default:
		return o, false
	}
	return o, json.Unmarshal(m.Content, into) == nil
}

// What a cell shows can be many megabytes in one string, which is looked at once.
func readDisplay(content []byte, d *kernel.Display) bool {
	return kernel.Members(content, func(name string, v json.RawMessage) bool {
		switch name {
		case "data":
			return readBundle(v, &d.Data)
		case "metadata":
			d.Metadata = v
		case "transient":
			var transient struct {
				ID string `json:"display_id"`
			}
			err := json.Unmarshal(v, &transient)
			d.ID = transient.ID
			return err == nil
		}
		return true
	})
}

func readResult(content []byte, r *kernel.Result) bool {
	return kernel.Members(content, func(name string, v json.RawMessage) bool {
		switch name {
		case "data":
			return readBundle(v, &r.Data)
		case "metadata":
			r.Metadata = v
		case "execution_count":
			return json.Unmarshal(v, &r.Count) == nil
		}
		return true
	})
}

func readBundle(text json.RawMessage, b *kernel.Bundle) bool {
	if string(text) == "null" {
		return true
	}
	*b = make(kernel.Bundle)
	return kernel.Members(text, func(name string, v json.RawMessage) bool {
		(*b)[name] = v
		return true
	})
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
