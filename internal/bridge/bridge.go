// Package bridge brings MCP on a program's standard streams to a daemon's
// /mcp. It offers the tools and resources that the daemon offers and passes
// calls, their progress and their cancellation on, so that it knows none of
// them but one: the files of this machine that import_files names are read
// here, where whoever runs the bridge allows it, and sent along.
//
// It keeps nothing. A daemon that was restarted, or another one at the same
// address, is found again by the next call.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage bounds a message of either side, in bytes.
const maxMessage = 64 << 20

// Config is what a bridge needs.
type Config struct {
	// Daemon returns where a daemon answers, as "http://host:port". It is
	// asked before the first call and again after the connection was lost.
	Daemon func(ctx context.Context) (url string, err error)
	Token  string // "": none
	// Thread is the conversation that the sessions belong to.
	Thread string
	// SixTools offers sandbox-agent's six tools and no others.
	SixTools bool
	// ImportDirs are directories of this machine whose files import_files may
	// read, beside the working directory and the client's roots; NeverImport are
	// those that it may not, wherever they are.
	ImportDirs, NeverImport []string
	Stdin                   io.Reader
	Stdout                  io.Writer
	Log                     *slog.Logger
}

// Run serves until the input or ctx ends. Calls that run then, and do not end
// within moments of the end of the input, are canceled.
func Run(ctx context.Context, c Config) error {
	b := &bridge{life: ctx, remote: newRemote(c), log: c.Log, importable: newImportable(c.ImportDirs, c.NeverImport), progress: make(map[string]*sdk.CallToolRequest)}
	b.remote.options.ProgressNotificationHandler = b.progressed
	b.remote.options.ResourceUpdatedHandler = b.updated
	defer b.remote.close()
	server, err := b.mirror(ctx)
	if err != nil {
		return err
	}
	b.server.Store(server)
	in := &lingering{ReadCloser: io.NopCloser(c.Stdin), life: ctx}
	if closer, ok := c.Stdin.(io.ReadCloser); ok {
		in.ReadCloser = closer // so that a read that waits ends
	}
	server.AddReceivingMiddleware(in.count, conform)
	err = server.Run(ctx, &sdk.IOTransport{Reader: in, Writer: writer{c.Stdout}, MaxLineLength: maxMessage})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// untilEnd keeps what the SDK tells of a bridge that was asked to end out of the
// log: that is no error.
type untilEnd struct {
	slog.Handler
	life context.Context //nolint:containedctx // as in bridge
}

func (u untilEnd) Enabled(ctx context.Context, level slog.Level) bool {
	return u.life.Err() == nil && u.Handler.Enabled(ctx, level)
}

// writer is what is written to and not closed.
type writer struct{ io.Writer }

func (writer) Close() error { return nil }

type bridge struct {
	life   context.Context //nolint:containedctx // calls end with it
	remote *remote
	server atomic.Pointer[sdk.Server] // of this side; nil: not yet
	log    *slog.Logger
	tokens atomic.Int64
	importable

	mu       sync.Mutex
	progress map[string]*sdk.CallToolRequest // calls that want progress, by the token of the remote side; guarded by mu
}

// mirror makes a server that offers what the daemon offers.
func (b *bridge) mirror(ctx context.Context) (*sdk.Server, error) {
	s, err := b.remote.session(ctx)
	if err != nil {
		return nil, err
	}
	tools, err := s.ListTools(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the daemon's tools: %w", err)
	}
	templates, err := s.ListResourceTemplates(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the daemon's resources: %w", err)
	}
	about := s.InitializeResult()
	if about.ServerInfo == nil {
		about.ServerInfo = &sdk.Implementation{Name: "cubby"}
	}
	server := sdk.NewServer(about.ServerInfo, &sdk.ServerOptions{
		Instructions: about.Instructions, Logger: slog.New(untilEnd{b.log.Handler(), b.life}),
		Capabilities:      &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
		CompletionHandler: b.complete, SubscribeHandler: b.subscribe, UnsubscribeHandler: b.unsubscribe,
	})
	for _, t := range tools.Tools {
		call := b.call
		if t.Name == importFiles {
			call = b.callImport
		}
		server.AddTool(t, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return call(ctx, req, req.Params.Arguments)
		})
	}
	for _, t := range templates.ResourceTemplates {
		server.AddResourceTemplate(t, b.read)
	}
	return server, nil
}

// call passes a call on. Trouble on the way is a result that a model can read;
// an error is one of the protocol, from the daemon.
func (b *bridge) call(ctx context.Context, req *sdk.CallToolRequest, args any) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	s, err := b.remote.session(ctx)
	if err != nil {
		return unreachable(err), nil
	}
	params := &sdk.CallToolParams{Meta: maps.Clone(req.Params.Meta), Name: req.Params.Name, Arguments: args}
	delete(params.Meta, "progressToken")
	for key := range params.Meta {
		if reserved(key) { // of the connection to this side
			delete(params.Meta, key)
		}
	}
	if req.Params.GetProgressToken() != nil {
		token := fmt.Sprint("call-", b.tokens.Add(1))
		params.SetProgressToken(token)
		b.note(token, req)
		defer b.note(token, nil)
	}
	res, err := s.CallTool(ctx, params)
	switch {
	case err == nil:
		return res, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	if said := fromDaemon(err); said != nil {
		return nil, said
	}
	b.remote.drop(s)
	return unreachable(err), nil
}

// rejected is the code of the SDK's own error for a request that did not
// arrive.
const rejected = -32005

// fromDaemon returns the error that the daemon answered with; nil when it did
// not answer.
func fromDaemon(err error) error {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) && wire.Code != rejected {
		return wire
	}
	return nil
}

func (b *bridge) note(token string, req *sdk.CallToolRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if req == nil {
		delete(b.progress, token)
		return
	}
	b.progress[token] = req
}

// progressed passes on what the daemon tells of a call.
func (b *bridge) progressed(ctx context.Context, n *sdk.ProgressNotificationClientRequest) {
	token, _ := n.Params.ProgressToken.(string)
	b.mu.Lock()
	req := b.progress[token]
	b.mu.Unlock()
	if req == nil {
		return
	}
	_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ // the client may be gone
		ProgressToken: req.Params.GetProgressToken(), Progress: n.Params.Progress, Total: n.Params.Total, Message: n.Params.Message,
	})
}

// read passes the reading of a resource on.
func (b *bridge) read(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	s, err := b.remote.session(ctx)
	if err != nil {
		return nil, err
	}
	res, err := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: req.Params.URI})
	if res != nil {
		res.TTLMs, res.CacheScope = 0, "private"
	}
	return res, b.lost(ctx, s, err)
}
