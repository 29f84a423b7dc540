// Package node runs cells of JavaScript in a kernel of cubby's own, a script
// for Node 18 or newer that the agent carries. The kernel is code of the guest:
// what it sends is bounded and may be nonsense.
//
// It starts no process: that is the caller's, with [Script] as the program and
// three pipes as file descriptors 3 (cells go in), 4 (messages come out) and 5
// (interrupts go in).
package node

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cubbyhq/cubby/internal/kernel"
)

// Script is the kernel's source, a CommonJS module.
var Script = slices.Concat(kernelScript, askScript)

var (
	//go:embed kernel.cjs
	kernelScript []byte
	//go:embed ask.cjs
	askScript []byte
)

// maxLine bounds a message of the kernel, in bytes; of a longer one keptOfMore
// are looked at.
const (
	maxLine    = 24 << 20
	keptOfMore = 8 << 20
)

// Client is a connection to one running kernel. Cells run one after another.
type Client struct {
	in      io.WriteCloser
	stop    io.WriteCloser
	out     io.ReadCloser
	version string
	gone    chan struct{}
	turn    sync.Mutex // held by the cell that runs
	writing sync.Mutex // held by who writes to in
	late    kernel.Backlog

	mu    sync.Mutex
	err   error                  // why it ended; guarded by mu
	id    int64                  // of the cell that runs; guarded by mu
	reply chan kernel.Reply      // of the cell that runs; guarded by mu
	asked int64                  // number of the last question; guarded by mu
	asks  map[int64]chan message // what waits for an answer; guarded by mu
}

// message is one line of the kernel.
type message struct {
	ID     int64           `json:"id"`
	Output *kernel.Output  `json:"output"`
	Reply  *kernel.Reply   `json:"reply"`
	Asked  int64           `json:"asked"` // number of the question that Answer or Failed is for
	Answer json.RawMessage `json:"answer"`
	Failed string          `json:"failed"`
	Ready  *struct {
		Version string `json:"version"`
	} `json:"ready"`
}

// Open returns when the kernel at the other end of the pipes is ready: in takes
// cells, stop takes interrupts. The client closes them.
func Open(ctx context.Context, in, stop io.WriteCloser, out io.ReadCloser) (*Client, error) {
	c := &Client{in: in, stop: stop, out: out, gone: make(chan struct{}), asks: map[int64]chan message{}}
	defer context.AfterFunc(ctx, c.Close)()
	lines := bufio.NewReaderSize(out, 64<<10)
	m, err := next(lines)
	if err == nil && m.Ready == nil {
		err = errors.New("the kernel did not say that it is ready")
	}
	if err != nil {
		c.Close()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("connect to the kernel: %w", err)
	}
	c.version = m.Ready.Version
	go c.read(lines)
	return c, nil
}

// Version is Node's.
func (c *Client) Version() string { return c.version }

// Gone is closed when the connection has ended.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Close ends the connection, at which the kernel ends itself when it is idle.
func (c *Client) Close() {
	c.in.Close()
	c.stop.Close()
	c.out.Close()
}

// Interrupt ends a cell, whatever it does: SIGINT alone does not reach what an
// event calls. It does nothing to later cells, and returns at once.
func (c *Client) Interrupt(id int64) error {
	_, err := c.stop.Write(append(strconv.AppendInt(nil, id, 10), '\n'))
	return err
}

// next reads one message. Lines that are none are skipped: the descriptor is
// open to the cell's own code.
func next(lines *bufio.Reader) (message, error) {
	var line []byte
	var cut int64
	for {
		part, err := lines.ReadSlice('\n')
		switch {
		case cut > 0:
			cut += int64(len(part))
		case len(line)+len(part) > maxLine:
			cut = int64(len(line) + len(part) - keptOfMore)
			line = line[:keptOfMore:keptOfMore]
		default:
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return message{}, err
		}
		var m message
		switch {
		case cut > 0:
			if m, ok := begun(line, cut); ok {
				return m, nil
			}
		case json.Unmarshal(bytes.TrimSpace(line), &m) == nil:
			return m, nil
		}
		line, cut = line[:0], 0
	}
}

// What long messages begin with, behind the cell's number.
var beginnings = []struct {
	text string
	make func(rest []byte) kernel.Output
}{
	{`"output":{"stream":{"name":"stdout","text":"`, func(rest []byte) kernel.Output {
		return kernel.Output{Stream: &kernel.Stream{Name: "stdout", Text: text(rest)}}
	}},
	{`"output":{"stream":{"name":"stderr","text":"`, func(rest []byte) kernel.Output {
		return kernel.Output{Stream: &kernel.Stream{Name: "stderr", Text: text(rest)}}
	}},
	{`"output":{"display":`, func([]byte) kernel.Output { return kernel.Output{Display: &kernel.Display{}} }},
	{`"output":{"result":`, func([]byte) kernel.Output { return kernel.Output{Result: &kernel.Result{}} }},
	{`"output":{"error":`, func([]byte) kernel.Output { return kernel.Output{Error: &kernel.Error{}} }},
	{`"reply":{"status":"error",`, nil},
}

// begun makes a message out of the beginning of one.
func begun(line []byte, cut int64) (m message, ok bool) {
	head, rest, ok := bytes.Cut(line, []byte{','})
	if !ok || json.Unmarshal(append(bytes.Clone(head), '}'), &m) != nil {
		return m, false
	}
	for _, b := range beginnings {
		after, ok := bytes.CutPrefix(rest, []byte(b.text))
		switch {
		case !ok:
		case b.make == nil:
			m.Reply = &kernel.Reply{Status: "error"}
			return m, true
		default:
			o := b.make(after)
			if o.Cut = cut; o.Stream == nil {
				o.Cut += int64(len(line))
			}
			m.Output = &o
			return m, true
		}
	}
	return m, false
}

// text is the beginning of a JSON string, up to a character.
func text(begin []byte) (s string) {
	// The longest character is two escapes.
	for cut := range min(13, len(begin)) {
		whole := append(append([]byte{'"'}, begin[:len(begin)-cut]...), '"')
		if json.Unmarshal(whole, &s) == nil {
			return strings.TrimSuffix(s, "\uFFFD")
		}
	}
	return ""
}

func (c *Client) read(lines *bufio.Reader) {
	for {
		m, err := next(lines)
		if err != nil {
			c.mu.Lock()
			c.err = fmt.Errorf("%w: %w", kernel.ErrGone, err)
			c.mu.Unlock()
			close(c.gone)
			c.Close()
			return
		}
		c.mu.Lock()
		reply := c.reply
		mine := m.ID == c.id && reply != nil
		asker := c.asks[m.Asked]
		delete(c.asks, m.Asked)
		c.mu.Unlock()
		switch {
		case asker != nil:
			asker <- m // it holds one
		case mine && m.Reply != nil:
			select {
			case reply <- *m.Reply:
			default: // one reply is enough
			}
		case m.Output != nil:
			c.late.Add(*m.Output)
		}
	}
}

// Execute runs a cell and returns when it has ended and all that it showed has
// been given to show, in order and from one goroutine. When ctx ends the cell
// goes on, and what it shows is dropped. SIGINT to the process and
// [Client.Interrupt] end it.
func (c *Client) Execute(ctx context.Context, cell kernel.Cell, show func(kernel.Output)) (kernel.Reply, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	reply := make(chan kernel.Reply, 1)
	c.mu.Lock()
	c.id++
	request := struct {
		ID   int64  `json:"id"`
		Code string `json:"code"`
	}{c.id, cell.Code}
	c.reply = reply
	c.mu.Unlock()
	if cell.Began != nil {
		cell.Began(request.ID)
	}
	c.late.Begin(show)
	defer func() {
		c.late.End()
		c.mu.Lock()
		c.reply = nil
		c.mu.Unlock()
	}()
	line, err := json.Marshal(request)
	if err != nil {
		return kernel.Reply{}, err
	}
	if err := c.write(line); err != nil {
		return kernel.Reply{}, err
	}
	select {
	case r := <-reply:
		return r, nil
	case <-ctx.Done():
		return kernel.Reply{}, context.Cause(ctx)
	case <-c.gone:
	}
	// It may have come just before the end.
	select {
	case r := <-reply:
		return r, nil
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return kernel.Reply{}, c.err
}
