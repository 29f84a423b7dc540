package guest

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/proto"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	headerFile         = "Cubby-File"
	headerErrorMessage = "Cubby-Error-Message"
)

// Read opens a regular file at an offset; a length < 0 reads to its end. The
// reader reports Unavailable when the agent was lost in the middle.
func (c *Client) Read(ctx context.Context, name string, offset, length int64) (io.ReadCloser, sandbox.File, error) {
	return c.ReadWithin(ctx, "", name, offset, length)
}

// ReadWithin is Read of a name that does not lead out of a directory, whatever
// symbolic links are on its way: else it is Forbidden. "" is any directory.
func (c *Client) ReadWithin(ctx context.Context, dir, name string, offset, length int64) (io.ReadCloser, sandbox.File, error) {
	q := url.Values{"path": {name}, "offset": {strconv.FormatInt(offset, 10)}}
	if dir != "" {
		q.Set("within", dir)
	}
	if length >= 0 {
		q.Set("length", strconv.FormatInt(length, 10))
	}
	res, err := c.raw(ctx, http.MethodGet, "/v1/files", q, nil) //nolint:bodyclose // the reader closes it
	if err != nil {
		return nil, sandbox.File{}, err
	}
	return &bodyReader{ctx: ctx, res: res}, fileOf(res), nil
}

// Write stores what r gives as a file; see sandbox.FileWrite. An error of r is
// returned as it is, and nothing is stored then.
func (c *Client) Write(ctx context.Context, name string, r io.Reader, w sandbox.FileWrite) (sandbox.File, error) {
	q := url.Values{"path": {name}}
	if w.Mode != 0 {
		q.Set("mode", strconv.FormatUint(uint64(w.Mode.Perm()), 8))
	}
	if w.Append {
		q.Set("append", "true")
	}
	if w.Parents {
		q.Set("parents", "true")
	}
	if w.User != "" {
		q.Set("user", w.User)
	}
	if w.Maker != "" {
		q.Set("maker", w.Maker)
	}
	if w.Replaces != nil {
		q.Set("replaces", hex.EncodeToString(w.Replaces))
	}
	return c.upload(ctx, "/v1/files", q, r)
}

// Archive streams a directory's content, or one file, as tar.
func (c *Client) Archive(ctx context.Context, name string) (io.ReadCloser, error) {
	return c.ArchiveWithin(ctx, "", name)
}

// ArchiveWithin is Archive of a name that does not lead out of a directory, as
// [Client.ReadWithin].
func (c *Client) ArchiveWithin(ctx context.Context, dir, name string) (io.ReadCloser, error) {
	q := url.Values{"path": {name}}
	if dir != "" {
		q.Set("within", dir)
	}
	return c.archive(ctx, q)
}

// ArchiveSystem streams the root filesystem as tar, without what is mounted
// over it: see filetree's ArchiveSystem. What comes was written by the sandbox.
func (c *Client) ArchiveSystem(ctx context.Context) (io.ReadCloser, error) {
	return c.archive(ctx, url.Values{"system": {"true"}})
}

func (c *Client) archive(ctx context.Context, q url.Values) (io.ReadCloser, error) {
	res, err := c.raw(ctx, http.MethodGet, "/v1/archive", q, nil) //nolint:bodyclose // the reader closes it
	if err != nil {
		return nil, err
	}
	return &bodyReader{ctx: ctx, res: res}, nil
}

// Extract unpacks a tar stream into a directory, which is made when missing.
func (c *Client) Extract(ctx context.Context, name string, tar io.Reader, user string) error {
	q := url.Values{"path": {name}}
	if user != "" {
		q.Set("user", user)
	}
	_, err := c.upload(ctx, "/v1/archive", q, tar)
	return err
}

func (c *Client) upload(ctx context.Context, path string, q url.Values, r io.Reader) (sandbox.File, error) {
	body := &uploadBody{r: r, done: make(chan struct{})}
	res, err := c.raw(ctx, http.MethodPut, path, q, body)
	if err != nil {
		// The transport may still read from r; the caller gets it back.
		<-body.done
		if body.err != nil {
			return sandbox.File{}, body.err
		}
		return sandbox.File{}, err
	}
	defer res.Body.Close()
	<-body.done
	return fileOf(res), c.synced(ctx)
}

// raw sends a request and returns an answer of success, or the error.
func (c *Client) raw(ctx context.Context, method, path string, q url.Values, body io.Reader) (*http.Response, error) {
	unsent := func() {
		if body, ok := body.(io.Closer); ok {
			body.Close()
		}
	}
	if err := c.agent.Raw(ctx, c.calls, path, q); err != nil {
		unsent()
		return nil, fromWire(ctx, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, baseURL+path+"?"+q.Encode(), body)
	if err != nil {
		unsent()
		return nil, errs.E(errs.Invalid, "the path cannot be sent").Because(err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fromWire(ctx, err)
	}
	if res.StatusCode >= 300 {
		defer res.Body.Close()
		return nil, httpError(res)
	}
	return res, nil
}

// uploadBody hands a reader to the transport in large pieces, and keeps its
// error apart from those of the connection.
type uploadBody struct {
	r    io.Reader
	err  error         // r's; valid after done
	done chan struct{} // closed when the transport has let go of r
}

const pieceSize = 256 << 10

func (b *uploadBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// WriteTo is what the transport uses: every Write becomes one chunk.
func (b *uploadBody) WriteTo(w io.Writer) (n int64, err error) {
	buf := make([]byte, pieceSize)
	for {
		m, rerr := b.Read(buf)
		if m > 0 {
			m, err = w.Write(buf[:m])
			n += int64(m)
			if err != nil {
				return n, err
			}
		}
		if rerr == io.EOF { //nolint:errorlint // an error that wraps io.EOF is not the end
			return n, nil
		}
		if rerr != nil {
			return n, rerr
		}
	}
}

func (b *uploadBody) Close() error {
	select {
	case <-b.done:
	default:
		close(b.done)
	}
	return nil
}

// bodyReader is the content of an answer with classified errors.
type bodyReader struct {
	ctx context.Context
	res *http.Response
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.res.Body.Read(p)
	return n, b.explain(err)
}

// WriteTo copies in large pieces.
func (b *bodyReader) WriteTo(w io.Writer) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{b}, make([]byte, pieceSize))
}

func (b *bodyReader) Close() error { return b.res.Body.Close() }

func (b *bodyReader) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		kind := b.res.Trailer.Get(headerErrorKind)
		if kind == "" {
			return io.EOF
		}
		text, _ := base64.StdEncoding.DecodeString(b.res.Trailer.Get(headerErrorMessage))
		return wireError(kind, string(text), "")
	}
	return fromWire(b.ctx, err)
}

func fileOf(res *http.Response) sandbox.File {
	var f guestv1.File
	if b, err := base64.StdEncoding.DecodeString(res.Header.Get(headerFile)); err == nil {
		_ = proto.Unmarshal(b, &f)
	}
	return fromWireFile(&f)
}
