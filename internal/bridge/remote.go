package bridge

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// remote is the connection to the daemon. It is made when it is needed.
type remote struct {
	cfg     Config
	options sdk.ClientOptions
	http    *http.Client

	mu   sync.Mutex
	open *sdk.ClientSession // nil: none; guarded by mu
}

func newRemote(c Config) *remote {
	return &remote{
		cfg: c, options: sdk.ClientOptions{Logger: c.Log, Capabilities: &sdk.ClientCapabilities{}},
		http: &http.Client{
			Transport: &authorized{c.Token, c.Thread, c.SixTools, http.DefaultTransport.(*http.Transport).Clone()},
			// The token must not travel to where a redirect leads.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// authorized says in every request who asks and for which conversation, and which
// tools are wanted.
type authorized struct {
	token, thread string
	six           bool
	next          *http.Transport
}

func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	r.Header.Set("Cubby-Thread", a.thread)
	if a.six {
		r.Header.Set("Cubby-Tools", "six")
	}
	return a.next.RoundTrip(r)
}

func (a *authorized) CloseIdleConnections() { a.next.CloseIdleConnections() }

// session returns the connection, a new one when the last was lost.
func (r *remote) session(ctx context.Context) (*sdk.ClientSession, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open != nil {
		return r.open, nil
	}
	url, err := r.cfg.Daemon(ctx)
	if err != nil {
		return nil, err
	}
	s, err := sdk.NewClient(&sdk.Implementation{Name: "cubby-bridge", Version: "1"}, &r.options).Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: strings.TrimRight(url, "/") + "/mcp", HTTPClient: r.http, DisableStandaloneSSE: true, MaxRetries: -1, MaxEventSize: maxMessage,
	}, nil)
	if err != nil {
		return nil, err
	}
	r.open = s
	return s, nil
}

// drop gives up a connection that failed.
func (r *remote) drop(s *sdk.ClientSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == s {
		r.open = nil
		go func() { _ = s.Close() }() // it failed before
	}
}

func (r *remote) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open != nil {
		_ = r.open.Close() // nothing is left to say
		r.open = nil
	}
	r.http.CloseIdleConnections()
}

// reserved reports whether the protocol itself keeps a key of _meta.
func reserved(key string) bool { return strings.HasPrefix(key, "io.modelcontextprotocol/") }

// failure is a failed call in the form that the daemon's tools have.
type failure struct {
	Success bool   `json:"success"`
	Error   string `json:"error"`
	Hint    string `json:"hint"`
}

func unreachable(err error) *sdk.CallToolResult {
	return result(failure{
		Error: "ConnectionError: the cubby daemon cannot be reached: " + err.Error(),
		Hint:  "Ask the user whether the daemon runs (cubby serve), and try again.",
	}, true)
}

func result(v any, failed bool) *sdk.CallToolResult {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // every v is made of strings, numbers and booleans
	}
	return &sdk.CallToolResult{
		Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text), IsError: failed,
	}
}
