package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// TerminalOptions say which terminal, and what it is when it has to be made.
type TerminalOptions struct {
	Name string // "": "main"
	// Seq, when not 0, means exactly that one, open or ended.
	Seq int64
	// Size is the terminal's from now on; nil leaves the one that it has.
	Size *WindowSize

	// What a new one runs. Cmd "" is an interactive shell.
	Cmd, User, Cwd string
}

// TerminalInfo is a terminal that is open.
type TerminalInfo struct {
	Name      string    `json:"name"`
	Seq       int64     `json:"seq"` // of the command that runs in it
	Cmd       string    `json:"cmd"` // "": an interactive shell
	User      string    `json:"user"`
	Cols      int       `json:"cols"`
	Rows      int       `json:"rows"`
	CreatedAt time.Time `json:"created_at"`
	Viewers   int       `json:"viewers"` // who looks at it now
}

// TerminalExit is how the program of a terminal ended.
type TerminalExit struct {
	// ExitCode is nil when nobody can know.
	ExitCode *int   `json:"exit_code"`
	Reason   string `json:"reason"`            // as in [Exec]
	Message  string `json:"message,omitempty"` // for people
}

// Terminals lists the open terminals of a sandbox.
func (c *Client) Terminals(ctx context.Context, id string) ([]TerminalInfo, error) {
	var answer struct {
		Terminals []TerminalInfo `json:"terminals"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "terminals")}, &answer)
	return answer.Terminals, err
}

// CloseTerminal kills the program of a terminal and everything that descends
// from it.
func (c *Client) CloseTerminal(ctx context.Context, id, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sandboxPath(id, "terminals", name)}, nil)
}

// Terminal is a look at a terminal of a sandbox. Reads give what it shows,
// first the end of what it showed before. A broken connection and a restart of
// the daemon are bridged: reading goes on where it was. Read is for one
// goroutine, the other methods for any.
type Terminal struct {
	Box  string // the sandbox's id
	Name string
	Seq  int64
	New  bool // it was made just now

	c      *Client
	ctx    context.Context //nolint:containedctx // an io.Reader has no other place for it
	cancel context.CancelFunc

	mu     sync.Mutex
	conn   *websocket.Conn // nil while there is none; guarded by mu
	closed bool            // guarded by mu
	size   *WindowSize     // the last that was asked for; guarded by mu
	exit   *TerminalExit   // guarded by mu
	offset int64           // of the next byte; of the reader alone
	rest   []byte          // read and not given yet; of the reader alone
}

const (
	// terminalMessage bounds a message of the daemon, terminalWrite one to it.
	terminalMessage = 1 << 20
	terminalWrite   = 64 << 10
	terminalPing    = 20 * time.Second
)

// OpenTerminal attaches to a terminal and makes it when none has the name. The
// look ends with ctx or [Terminal.Close]; the terminal goes on.
func (c *Client) OpenTerminal(ctx context.Context, id string, o TerminalOptions) (*Terminal, error) {
	q := url.Values{}
	for name, value := range map[string]string{"name": o.Name, "cmd": o.Cmd, "user": o.User, "cwd": o.Cwd} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.Seq != 0 {
		q.Set("seq", strconv.FormatInt(o.Seq, 10))
	}
	t := &Terminal{Box: id, c: c, size: o.Size}
	t.ctx, t.cancel = context.WithCancel(ctx)
	if err := t.dial(q); err != nil {
		t.cancel()
		return nil, err
	}
	return t, nil
}

// attached is the daemon's first message.
type attached struct {
	Type   string `json:"type"`
	Name   string `json:"name"`
	Seq    int64  `json:"seq"`
	Offset int64  `json:"offset"`
	New    bool   `json:"new"`
}

// dial connects and reads the first message.
func (t *Terminal) dial(q url.Values) error {
	if t.c.bad != nil {
		return t.c.bad
	}
	t.mu.Lock()
	size := t.size
	t.mu.Unlock()
	if size != nil {
		q.Set("cols", strconv.Itoa(size.Cols))
		q.Set("rows", strconv.Itoa(size.Rows))
	}
	header := http.Header{}
	if t.c.token != "" {
		header.Set("Authorization", "Bearer "+t.c.token)
	}
	conn, res, err := websocket.Dial(t.ctx, t.c.base.String()+sandboxPath(t.Box, "terminal")+"?"+q.Encode(), &websocket.DialOptions{
		HTTPClient: t.c.http, HTTPHeader: header, Subprotocols: []string{"cubby.terminal.v1"}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if res != nil && res.StatusCode >= 300 {
			defer res.Body.Close()
			return errorOf(res)
		}
		return t.c.transportError(t.ctx, err)
	}
	conn.SetReadLimit(terminalMessage)
	_, data, err := conn.Read(t.ctx)
	if err != nil {
		return t.c.transportError(t.ctx, err)
	}
	var first attached
	if json.Unmarshal(data, &first) != nil || first.Type != "attached" {
		_ = conn.CloseNow() // it is not ours
		return &Error{Code: Internal, Message: "what answers is not a terminal of this version"}
	}
	t.Name, t.Seq, t.New, t.offset = first.Name, first.Seq, first.New, first.Offset
	t.mu.Lock()
	t.conn = conn
	t.mu.Unlock()
	go t.ping(conn)
	return nil
}

// ping breaks a connection that is dead without a word.
func (t *Terminal) ping(conn *websocket.Conn) {
	tick := time.NewTicker(terminalPing)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(t.ctx, terminalPing)
		err := conn.Ping(ctx)
		cancel()
		if err != nil {
			_ = conn.CloseNow() // the reader sees it
			return
		}
	}
}

func (t *Terminal) current() *websocket.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn
}

// Read gives what the terminal shows. io.EOF is the end of its program; see
// [Terminal.Exit].
func (t *Terminal) Read(p []byte) (int, error) {
	again := t.c.newBackoff()
	for len(t.rest) == 0 {
		if t.Exit() != nil {
			return 0, io.EOF
		}
		err := t.receive()
		if err == nil {
			again.Reset()
			continue
		}
		t.drop()
		for {
			if t.isClosed() {
				return 0, &Error{Code: Canceled, Message: "the terminal was left", cause: context.Canceled}
			}
			if !again.worthwhile(t.ctx, err) {
				if t.ctx.Err() != nil {
					return 0, t.c.transportError(t.ctx, t.ctx.Err())
				}
				return 0, err
			}
			q := url.Values{"seq": {strconv.FormatInt(t.Seq, 10)}, "after": {strconv.FormatInt(t.offset, 10)}}
			if err = t.dial(q); err == nil {
				break
			}
		}
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// receive takes one message.
func (t *Terminal) receive() error {
	kind, data, err := t.current().Read(t.ctx)
	if err != nil {
		switch websocket.CloseStatus(err) {
		case websocket.StatusPolicyViolation, websocket.StatusInvalidFramePayloadData, websocket.StatusMessageTooBig:
			var closed websocket.CloseError
			_ = errors.As(err, &closed) // it has a status
			return &Error{Code: InvalidRequest, Message: closed.Reason, cause: err}
		}
		return &Error{Code: Unavailable, Message: "the connection to the terminal broke", Retryable: true, cause: err}
	}
	if kind == websocket.MessageBinary {
		t.rest = data
		t.offset += int64(len(data))
		return nil
	}
	var m struct {
		Type   string `json:"type"`
		Offset int64  `json:"offset"`
		TerminalExit
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return badEvent(err)
	}
	switch m.Type {
	case "skipped":
		t.offset = m.Offset
	case "exit":
		t.mu.Lock()
		t.exit = &m.TerminalExit
		t.mu.Unlock()
		t.drop()
	}
	return nil
}

// drop gives up the connection.
func (t *Terminal) drop() {
	t.mu.Lock()
	conn := t.conn
	t.conn = nil
	t.mu.Unlock()
	if conn != nil {
		_ = conn.CloseNow() // nothing of it is wanted any more
	}
}

// Exit is how the terminal's program ended, nil before the end was read.
func (t *Terminal) Exit() *TerminalExit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exit
}

// Write types. While the connection is broken it is [Unavailable] and what was
// typed is lost: nobody wants it to be carried out later.
func (t *Terminal) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		chunk := p[written:min(len(p), written+terminalWrite)]
		if err := t.send(t.ctx, websocket.MessageBinary, chunk); err != nil {
			return written, err
		}
		written += len(chunk)
	}
	return written, nil
}

// Resize changes the size of the terminal for all who look at it. While the
// connection is broken the size is kept for when it is back.
func (t *Terminal) Resize(ctx context.Context, size WindowSize) error {
	t.mu.Lock()
	t.size = &size
	t.mu.Unlock()
	m, err := json.Marshal(struct {
		Type string `json:"type"`
		WindowSize
	}{"resize", size})
	if err != nil {
		return err
	}
	return t.send(ctx, websocket.MessageText, m)
}

func (t *Terminal) send(ctx context.Context, kind websocket.MessageType, data []byte) error {
	conn := t.current()
	if conn == nil {
		return &Error{Code: Unavailable, Message: "the terminal is not connected", Retryable: true}
	}
	if err := conn.Write(ctx, kind, data); err != nil {
		return &Error{Code: Unavailable, Message: "the connection to the terminal broke", Retryable: true, cause: err}
	}
	return nil
}

// Close ends the look. The terminal goes on.
func (t *Terminal) Close() error {
	t.mu.Lock()
	conn := t.conn
	t.closed = true
	t.mu.Unlock()
	if conn != nil {
		_ = conn.Close(websocket.StatusNormalClosure, "") // so that it is not counted any more
	}
	t.cancel()
	return nil
}

func (t *Terminal) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}
