package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/cubbyhq/cubby/internal/task"
)

// maxGarbage bounds what an agent prints that is not of the protocol, in bytes.
const maxGarbage = 1 << 20

// openLimit is how long an agent has to start and to give a session.
const openLimit = 3 * time.Minute

// turn is how an agent's work ended.
type turn struct {
	session    string
	stopReason string
	err        error // why it failed
	stderr     string
}

// client speaks the Agent Client Protocol with one agent. Updates of the session
// are read here and not by the connection, which would drop what comes too fast.
type client struct {
	order   task.Order
	tell    *narrator
	replies *replies
	conn    *acp.Connection
	// session is the one that is worked in; "" before there is one.
	session atomic.Pointer[string]
	// quiet: updates are of an earlier turn, that the agent repeats.
	quiet   atomic.Bool
	updates atomic.Int64 // so far

	// codex: the agent is the adapter of Codex; broken: its turn failed.
	codex, broken atomic.Bool
	mu            sync.Mutex
	fault         string // what the adapter said of that; guarded by mu

	garbage     int
	garbageTail tailWriter
	unreadable  atomic.Bool
}

// connect begins to read what the agent prints; ctx ends the waiting for
// permissions.
func (c *client) connect(ctx context.Context, in io.Writer, out io.Reader) {
	fromAgent, toConn := io.Pipe()
	c.garbageTail.limit = 1 << 10
	c.conn = acp.NewConnection(func(_ context.Context, method string, params json.RawMessage) (any, *acp.RequestError) {
		return c.serve(ctx, method, params)
	}, in, fromAgent)
	c.conn.SetLogger(slog.New(slog.DiscardHandler))
	go func() {
		readLines(out, func(line []byte) bool { return c.read(line, toConn) })
		toConn.CloseWithError(io.EOF)
	}()
}

// converse does the whole order. It ends when the agent answered the prompt, ended
// or failed.
func (c *client) converse() turn {
	t := turn{}
	t.session, t.err = c.open()
	if t.err != nil {
		return t
	}
	c.quiet.Store(false)
	answer, err := acp.SendRequest[promptAnswer](c.conn, context.Background(), acp.AgentMethodSessionPrompt, acp.PromptRequest{
		SessionId: acp.SessionId(t.session),
		Prompt:    []acp.ContentBlock{acp.TextBlock(c.order.Prompt)},
	})
	if err == nil && answer.StopReason != "cancelled" {
		c.settle() // OpenCode answers before its last updates
	}
	c.tell.pause()
	if err != nil {
		t.err = c.failure(err)
		return t
	}
	answer.usage(c.tell)
	if c.broken.Load() && answer.StopReason != "cancelled" {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.err = errors.New("codex: " + errorMessage(c.fault))
	}
	t.stopReason = answer.StopReason
	return t
}

// read takes a line of the agent: an update, or something for the connection.
func (c *client) read(line []byte, conn io.Writer) bool {
	var head struct {
		Version string           `json:"jsonrpc"`
		ID      *json.RawMessage `json:"id"`
		Method  string           `json:"method"`
	}
	if json.Unmarshal(line, &head) != nil || head.Version == "" && head.Method == "" && head.ID == nil {
		c.garbage += len(line)
		_, _ = c.garbageTail.Write(append(line[:len(line):len(line)], '\n'))
		if c.garbage > maxGarbage {
			c.unreadable.Store(true)
			return false
		}
		return true
	}
	if head.Method == acp.ClientMethodSessionUpdate && head.ID == nil {
		c.updates.Add(1)
		var note struct {
			Params struct {
				Update json.RawMessage `json:"update"`
			} `json:"params"`
		}
		if !c.quiet.Load() && json.Unmarshal(line, &note) == nil {
			c.update(note.Params.Update)
		}
		return true
	}
	_, err := conn.Write(append(line[:len(line):len(line)], '\n'))
	return err == nil
}

// open begins or resumes a session and sets it up.
func (c *client) open() (session string, err error) {
	c.quiet.Store(true)
	ctx, cancel := within(context.Background(), openLimit, errTimeLimit)
	defer cancel()
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errTimeLimit) {
			err = fmt.Errorf("the agent gave no session within %s", openLimit)
		}
	}()
	hello, err := acp.SendRequest[greeting](c.conn, ctx, acp.AgentMethodInitialize, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber,
		// Agents that are offered neither files nor terminals use their own.
		ClientCapabilities: acp.ClientCapabilities{},
		ClientInfo:         &acp.Implementation{Name: "cubby", Version: "1"},
	})
	if err != nil {
		return "", c.failure(err)
	}
	c.codex.Store(strings.HasSuffix(hello.Agent.Name, "codex-acp"))
	if method := c.order.Agent.Auth; method != "" {
		_, err := acp.SendRequest[json.RawMessage](c.conn, ctx, acp.AgentMethodAuthenticate, acp.AuthenticateRequest{MethodId: method})
		if err != nil {
			return "", fmt.Errorf("authenticate: %w", c.failure(err))
		}
	}
	state, err := c.begin(ctx, hello)
	if err != nil {
		return "", err
	}
	c.session.Store(&state.SessionID)
	if err := c.choose(ctx, state); err != nil {
		return state.SessionID, err
	}
	return state.SessionID, nil
}

// begin makes a session, or takes up the one of the order.
func (c *client) begin(ctx context.Context, hello greeting) (session, error) {
	servers := []acp.McpServer{}
	id := acp.SessionId(c.order.Session)
	var state session
	var err error
	switch {
	case id == "":
		state, err = acp.SendRequest[session](c.conn, ctx, acp.AgentMethodSessionNew, acp.NewSessionRequest{Cwd: c.order.Cwd, McpServers: servers})
		if err == nil && state.SessionID == "" {
			err = errors.New("the agent gave no session")
		}
	case hello.Capabilities.Session.Resume != nil:
		state, err = acp.SendRequest[session](c.conn, ctx, acp.AgentMethodSessionResume, acp.ResumeSessionRequest{SessionId: id, Cwd: c.order.Cwd, McpServers: servers})
	case hello.Capabilities.LoadSession:
		// It repeats what was said before.
		state, err = acp.SendRequest[session](c.conn, ctx, acp.AgentMethodSessionLoad, acp.LoadSessionRequest{SessionId: id, Cwd: c.order.Cwd, McpServers: servers})
	default:
		return session{}, fmt.Errorf("%s cannot resume a session", c.order.Agent.Name)
	}
	if err != nil {
		return session{}, fmt.Errorf("session: %w", c.failure(err))
	}
	if id != "" {
		state.SessionID = string(id)
	}
	if id != "" && hello.Capabilities.Session.Resume == nil {
		c.settle()
	}
	return state, nil
}

const (
	// settleGap is how long an agent is silent when it has sent all updates that belong
	// to an answer: some answer first. settleLimit is how long it is waited for.
	settleGap   = 300 * time.Millisecond
	settleLimit = 10 * time.Second
)

// settle waits for the updates that follow an answer: what was said in a session that
// is taken up (Gemini), or the last words of a turn.
func (c *client) settle() {
	for begun := time.Now(); time.Since(begun) < settleLimit; {
		seen := c.updates.Load()
		select {
		case <-time.After(settleGap):
		case <-c.conn.Done():
			return
		}
		if c.updates.Load() == seen {
			return
		}
	}
}

// choose sets the model and the mode of a session.
func (c *client) choose(ctx context.Context, s session) error {
	id := acp.SessionId(s.SessionID)
	if model := c.order.Agent.Model; model != "" {
		var err error
		if option := s.modelOption(); option != "" {
			_, err = acp.SendRequest[json.RawMessage](c.conn, ctx, acp.AgentMethodSessionSetConfigOption,
				map[string]any{"sessionId": id, "configId": option, "value": model})
		} else {
			_, err = acp.SendRequest[json.RawMessage](c.conn, ctx, acp.AgentMethodSessionSetModel,
				map[string]any{"sessionId": id, "modelId": model})
		}
		if err != nil {
			return fmt.Errorf("model %.100q: %w", model, c.failure(err))
		}
	}
	mode := c.order.Agent.AllowMode
	if c.order.Permissions == task.Ask {
		mode = c.order.Agent.AskMode
	}
	if s.hasMode(mode) {
		_, err := acp.SendRequest[json.RawMessage](c.conn, ctx, acp.AgentMethodSessionSetMode, acp.SetSessionModeRequest{SessionId: id, ModeId: acp.SessionModeId(mode)})
		if err != nil {
			return fmt.Errorf("mode %.100q: %w", mode, c.failure(err))
		}
	}
	return nil
}

// cancel asks the agent to stop its turn.
func (c *client) cancel() {
	c.replies.dismiss()
	if id := c.session.Load(); id != nil {
		_ = c.conn.SendNotification(context.Background(), acp.AgentMethodSessionCancel, acp.CancelNotification{SessionId: acp.SessionId(*id)})
	}
}

// serve answers what the agent asks.
func (c *client) serve(ctx context.Context, method string, params json.RawMessage) (any, *acp.RequestError) {
	if method != acp.ClientMethodSessionRequestPermission {
		return nil, acp.NewMethodNotFound(method)
	}
	var question permissionQuestion
	if err := json.Unmarshal(params, &question); err != nil {
		return nil, acp.NewInvalidParams(map[string]any{"error": err.Error()})
	}
	outcome := map[string]string{"outcome": outcomeCancelled}
	if option := c.permit(ctx, question); option != outcomeCancelled {
		outcome = map[string]string{"outcome": "selected", "optionId": option}
	}
	return map[string]any{"outcome": outcome}, nil
}

const maxOptions = 20

func (c *client) permit(ctx context.Context, q permissionQuestion) string {
	// Gemini says nothing else of a call before it has ended.
	tool := q.ToolCall.tool()
	tool.Output = ""
	if c.tell.known(tool.ID).ID == "" || tool.Status != "" {
		c.tell.tool(tool)
	} else {
		c.tell.learn(tool)
	}
	if c.order.Permissions != task.Ask {
		for _, kind := range []acp.PermissionOptionKind{acp.PermissionOptionKindAllowOnce, acp.PermissionOptionKindAllowAlways} {
			for _, o := range q.Options {
				if o.Kind == string(kind) {
					return o.OptionID
				}
			}
		}
		return outcomeCancelled
	}
	c.tell.pause()
	var options []task.Option
	for _, o := range q.Options[:min(len(q.Options), maxOptions)] {
		options = append(options, task.Option{ID: o.OptionID, Name: runes(o.Name, maxToolField), Kind: o.Kind})
	}
	return c.replies.ask(ctx, c.tell.known(tool.ID), options)
}

// failure is what an agent's answer says that went wrong.
func (c *client) failure(err error) error {
	if c.unreadable.Load() {
		return fmt.Errorf("the agent does not speak its protocol: %s", strings.TrimSpace(tail(c.garbageTail.String(), 300)))
	}
	var answer *acp.RequestError
	if !errors.As(err, &answer) {
		return err
	}
	text := answer.Message
	switch data := answer.Data.(type) {
	case string:
		text += ": " + data
	case map[string]any:
		if own, _ := data["error"].(string); strings.HasPrefix(own, "peer disconnected") || strings.HasPrefix(own, "write ") {
			return errAgentEnded // the connection's own words
		}
		for _, key := range []string{"details", "message", "error"} {
			if s, ok := data[key].(string); ok && s != "" {
				text += ": " + s
				break
			}
		}
	}
	return errors.New(errorMessage(text))
}

// errAgentEnded is the end of an agent before its answer.
var errAgentEnded = errors.New("the agent ended before it answered")
