package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
)

// Request is a request to a path of the daemon for which this package has no
// method. The packages below this one are made of it.
type Request struct {
	Method string
	Path   string // escaped, from the root: "/agent/threads"
	Query  url.Values
	Header http.Header
	JSON   any // the body; nil: none
}

// Send returns the answer of a request that succeeded; the caller closes its body.
// Any other status is an [*Error], and so is what cuts the body short but
// [io.ErrUnexpectedEOF].
func (c *Client) Send(ctx context.Context, r Request) (*http.Response, error) {
	res, err := c.send(ctx, call{method: r.Method, path: r.Path, query: r.Query, header: r.Header.Clone(), json: r.JSON})
	if err == nil {
		res.Body = answerBody{res.Body, ctx, c}
	}
	return res, err
}

// answerBody classifies the errors of a body.
type answerBody struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // of the request
	c   *Client
}

func (b answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = b.c.readError(b.ctx, err)
	}
	return n, err
}

// Do is [Client.Send] that decodes the JSON answer into out, which may be nil.
func (c *Client) Do(ctx context.Context, r Request, out any) error {
	return c.do(ctx, call{method: r.Method, path: r.Path, query: r.Query, header: r.Header.Clone(), json: r.JSON}, out)
}

// Resuming returns the rule by which the streams of this client come back, see
// [WithResume]: again waits before the next attempt and reports whether there
// should be one after err, and progressed says that an attempt got further.
func (c *Client) Resuming() (again func(ctx context.Context, err error) bool, progressed func()) {
	b := c.newBackoff()
	return b.worthwhile, b.Reset
}
