// Package client is the Go SDK of cubby: it creates sandboxes, runs commands in
// them, follows their output, moves files, and does nothing else. It is what
// the cubby command itself uses.
//
//	c := client.New("http://127.0.0.1:9090", client.WithToken(token))
//	box, err := c.Create(ctx, client.CreateOptions{})
//	res, err := c.Exec(ctx, box.ID, client.Command("python3", "-c", "print(1+1)"))
//	fmt.Print(res.Stdout)
//
// Every error of the daemon is an [*Error]. Its [Code] is tested with
// errors.Is(err, client.NotFound); its Message and Hint are made for people.
//
// The package speaks the canonical /v1 of the REST API, keeps no state beyond
// HTTP connections, and imports nothing but the standard library and, for
// terminals, github.com/coder/websocket, which imports nothing else. It repeats
// a request by itself only where that is harmless by construction: output is
// resumed from its offset after a broken connection, and input is written
// again at its offset. Everything else is the caller's to retry; see
// [Error.Retryable].
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client/internal/transport"
)

// DefaultURL is where a daemon listens when nothing else was said.
const DefaultURL = "http://127.0.0.1:9090"

// Client talks to one daemon. It is safe for concurrent use. Make one with
// [New] or [FromEnv].
type Client struct {
	base   *url.URL
	bad    error // why base is not usable; every call returns it
	token  string
	http   *http.Client
	resume time.Duration
	onLoss func(id, lost string) // nil: nobody is told
}

// Option changes a client at its making.
type Option func(*Client)

// WithToken authenticates every request with a bearer token. Empty is none.
func WithToken(token string) Option { return func(c *Client) { c.token = token } }

// WithHTTPClient uses h for every request. It must not have a Timeout: that
// would cut streams and large transfers. Bound single calls by their context.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithResume sets how long a stream of output tries to reach the daemon again
// after its connection broke. The default is 60 seconds; 0 never tries.
func WithResume(d time.Duration) Option { return func(c *Client) { c.resume = d } }

// WithRestoreNotice has told called for every answer whose request woke a sandbox and
// found its memory lost: what is gone, and what is not. The id is "" where the request
// names the sandbox in its body alone, as that for a snapshot.
func WithRestoreNotice(told func(id, lost string)) Option { return func(c *Client) { c.onLoss = told } }

// New returns a client of the daemon at base, "http://host:port"; "" is
// [DefaultURL]. It connects to nothing: a base that is not a URL is reported
// by the first call.
func New(base string, opts ...Option) *Client {
	if base == "" {
		base = DefaultURL
	}
	c := &Client{resume: time.Minute}
	c.base, c.bad = parseBase(base)
	for _, o := range opts {
		o(c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: transport.New()}
	}
	c.http = transport.Noticing(c.http, c.onLoss)
	return c
}

// FromEnv returns a client of the daemon at CUBBY_URL, with the token of
// CUBBY_TOKEN. Options win over the environment.
func FromEnv(opts ...Option) *Client {
	return New(os.Getenv("CUBBY_URL"), append([]Option{WithToken(os.Getenv("CUBBY_TOKEN"))}, opts...)...)
}

// URL is the daemon's base URL, without a slash at its end.
func (c *Client) URL() string {
	if c.base == nil {
		return ""
	}
	return c.base.String()
}

// Close gives up idle connections. The client can still be used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func parseBase(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(s, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, &Error{
			Code:    InvalidRequest,
			Message: fmt.Sprintf("%q is not the URL of a daemon", s),
			Hint:    "write it as http://host:port",
			cause:   err,
		}
	}
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

// call is one request to the daemon.
type call struct {
	method string
	path   string // escaped, from the root: "/v1/sandboxes"
	query  url.Values
	header http.Header
	json   any       // a JSON body, or
	body   io.Reader // a raw one
	length int64     // of body; 0: unknown unless net/http can tell
}

// send returns the answer of a request that succeeded; the caller closes its
// body. Every other status is an *Error.
func (c *Client) send(ctx context.Context, r call) (*http.Response, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	body := r.body
	header := r.header
	if header == nil {
		header = http.Header{}
	}
	if r.json != nil {
		data, err := json.Marshal(r.json)
		if err != nil {
			return nil, &Error{Code: InvalidRequest, Message: "the request cannot be written as JSON: " + err.Error(), cause: err}
		}
		body = bytes.NewReader(data)
		header.Set("Content-Type", "application/json")
	}
	target := c.base.String() + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, &Error{Code: InvalidRequest, Message: err.Error(), cause: err}
	}
	req.Header = header
	if r.length > 0 {
		req.ContentLength = r.length
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.transportError(ctx, err)
	}
	if res.StatusCode >= 300 {
		defer res.Body.Close()
		return nil, errorOf(res)
	}
	return res, nil
}

// do sends r and decodes the JSON answer into out, which may be nil.
func (c *Client) do(ctx context.Context, r call, out any) error {
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil || res.StatusCode == http.StatusNoContent {
		_, err := io.Copy(io.Discard, res.Body)
		return c.readError(ctx, err)
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		if errors.As(err, &syntax) || errors.As(err, &kind) {
			return &Error{
				Code:    Internal,
				Message: fmt.Sprintf("what answers at %s is not a cubby daemon of this version", c.URL()),
				Hint:    "check CUBBY_URL, and `cubby version` on both sides",
				Status:  res.StatusCode, cause: err,
			}
		}
		return c.readError(ctx, err)
	}
	// What is left is a line break; read, it frees the connection for the
	// next request.
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10))
	return c.readError(ctx, err)
}

// readError classifies an error met while reading an answer.
func (c *Client) readError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return c.transportError(ctx, err)
}

// sandboxPath is the path of a sandbox or of something below it. Elements are
// escaped, so an id can never reach another resource.
func sandboxPath(id string, elems ...string) string {
	var b strings.Builder
	b.WriteString("/v1/sandboxes/")
	b.WriteString(url.PathEscape(id))
	for _, e := range elems {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(e))
	}
	return b.String()
}
