package mcp

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	// updateEvery is the least time between two notifications of one output.
	updateEvery = 250 * time.Millisecond
	// mostFollowed bounds how many outputs a principal follows at once.
	mostFollowed = 64
)

// subscriptions follow the outputs of running commands for the clients of one server.
// The protocol tells that a resource has changed and not how: clients read it again.
type subscriptions struct {
	door   *Door
	server *sdk.Server

	mu       sync.Mutex
	followed map[string]*followed        // by URI; guarded by mu
	watched  map[*sdk.ServerSession]bool // clients whose end is waited for; guarded by mu
}

func newSubscriptions(d *Door) *subscriptions {
	return &subscriptions{door: d, followed: make(map[string]*followed), watched: make(map[*sdk.ServerSession]bool)}
}

// followed is an output that clients follow.
type followed struct {
	clients map[*sdk.ServerSession]bool
	end     context.CancelFunc
}

// output reads the URI of stdout or stderr of a command.
func output(uri string) (id string, seq int64, stream sandbox.Stream, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != outputScheme {
		return "", 0, 0, false
	}
	number, name, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if seq, err = strconv.ParseInt(number, 10, 64); err != nil {
		return "", 0, 0, false
	}
	for _, s := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
		if s.String() == name {
			return u.Host, seq, s, true
		}
	}
	return "", 0, 0, false
}

func (s *subscriptions) subscribe(ctx context.Context, req *sdk.SubscribeRequest) error {
	uri := req.Params.URI
	id, seq, stream, ok := output(uri)
	if !ok {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "only stdout and stderr of a command can be subscribed to, as in " + outputScheme + "://SESSION_ID/COMMAND_ID/stdout"}
	}
	if _, err := tools.FindSession(ctx, s.door.core, id, thread(ctx, req.Extra)); err != nil {
		return s.door.resourceError(ctx, uri, err)
	}
	x, err := s.door.core.Execs().Get(ctx, id, seq)
	if err != nil {
		return s.door.resourceError(ctx, uri, err)
	}
	if x.Status.Finished() {
		return nil // it does not change any more
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.followed[uri]
	if f == nil {
		if len(s.followed) >= mostFollowed {
			return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "too many subscriptions: this client has the maximum of " + strconv.Itoa(mostFollowed)}
		}
		// It outlives the request, as the caller who asks.
		following, end := context.WithCancel(context.WithoutCancel(ctx))
		f = &followed{clients: map[*sdk.ServerSession]bool{}, end: end}
		s.followed[uri] = f
		go s.follow(following, f, uri, id, seq, stream)
	}
	f.clients[req.Session] = true
	if !s.watched[req.Session] {
		s.watched[req.Session] = true
		go s.forget(req.Session)
	}
	return nil
}

func (s *subscriptions) unsubscribe(_ context.Context, req *sdk.UnsubscribeRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(req.Params.URI, req.Session)
	return nil
}

// forget ends the subscriptions of a client that goes away without ending them.
func (s *subscriptions) forget(session *sdk.ServerSession) {
	_ = session.Wait() // however it ended
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watched, session)
	for uri := range s.followed {
		s.leave(uri, session)
	}
}

// leave ends the following of an output with the last client that wants it. The caller
// holds mu.
func (s *subscriptions) leave(uri string, session *sdk.ServerSession) {
	f := s.followed[uri]
	if f == nil || !f.clients[session] {
		return
	}
	if delete(f.clients, session); len(f.clients) == 0 {
		f.end()
		delete(s.followed, uri)
	}
}

// follow tells of new output until the command has ended.
func (s *subscriptions) follow(ctx context.Context, f *followed, uri, id string, seq int64, stream sandbox.Stream) {
	defer context.AfterFunc(s.door.life, f.end)()
	defer s.drop(uri, f)
	changed := make(chan struct{}, 1)
	go func() {
		defer close(changed)
		for entry, err := range s.door.core.Execs().Output(ctx, id, seq, 0, true) {
			if err != nil {
				return
			}
			if entry.Exit != nil || entry.Output.Stream == stream {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}
	}()
	pause := time.NewTicker(updateEvery)
	defer pause.Stop()
	for range changed {
		select {
		case <-pause.C:
		case <-ctx.Done():
			continue // until the reader has ended
		}
		_ = s.server.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: uri}) // clients may be gone
	}
}

// drop ends the following of an output for all its clients.
func (s *subscriptions) drop(uri string, f *followed) {
	f.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followed[uri] == f {
		delete(s.followed, uri)
	}
}
