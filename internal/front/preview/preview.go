// Package preview is the door to the ports of sandboxes. It has a listener of its
// own, on which every port has a host name: s-{id}-{port}.{domain} and
// {port}-{id}.{domain}. So each is an origin of its own, none of them is the
// API's, and nothing of the API is served there. Requests are passed on over
// HTTP/1.1 as if the visitor were on the sandbox's localhost, and answers as they
// come.
//
// Who may see a port is decided before anything else happens, by core. What the
// visitor presents for that (a link's token in the address or a cookie, a token
// in X-Cubby-Preview-Token) never reaches the app, and Authorization is the
// app's alone.
package preview

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/preview"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// keptFor is how long a connection to an app is kept for the next request.
	// Servers close theirs after some seconds, and a request on one that closes
	// just then is lost.
	keptFor = time.Second
	// keptConns bounds the kept ones of a port.
	keptConns = 8
	// dialTime bounds a connection to a port; the agent gives up earlier.
	dialTime = 10 * time.Second
	// maxAnswerHeader bounds the header of an answer, and maxAnswerFields its fields:
	// it is in memory for as long as the answer lasts, and each field takes many times
	// its bytes.
	maxAnswerHeader = 16 << 10
	maxAnswerFields = 256
	// maxHints bounds the answers before the answer, each of which is passed on.
	maxHints   = 16
	copyBuffer = 32 << 10
)

// Config is what a Door needs.
type Config struct {
	Core  *core.Service
	Names Names
	// Behind: a proxy stands in front, whose X-Forwarded-For is believed.
	Behind bool
	// Auth knows the tokens of the API; nil: there are none.
	Auth *auth.Authenticator
	// Guesses counts wrong tokens.
	Guesses *front.Guesses
	Log     *slog.Logger
	// Life ends when the daemon begins to stop; connections that changed their
	// protocol, and waits for sandboxes, end with it.
	Life context.Context //nolint:containedctx // it outlives every request
}

// Door serves previews. It expects to stand behind a [front.Handler] that passes
// on.
type Door struct {
	cfg       Config
	proxy     *httputil.ReverseProxy
	transport *http.Transport
	visits    sync.WaitGroup
	// waits has, for each sandbox that wakes, the cancel function of the last wait whose
	// visitor got a page.
	waits sync.Map
}

// New returns a door.
func New(c Config) *Door {
	d := &Door{cfg: c}
	d.transport = &http.Transport{
		DialContext:            d.dial,
		DisableCompression:     true, // what the visitor accepts is the app's to know
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    keptConns,
		IdleConnTimeout:        keptFor,
		MaxResponseHeaderBytes: maxAnswerHeader,
		ExpectContinueTimeout:  time.Second,
		ReadBufferSize:         copyBuffer,
		WriteBufferSize:        copyBuffer,
	}
	d.proxy = &httputil.ReverseProxy{
		Rewrite: d.rewrite, ModifyResponse: d.answer, Transport: d.transport, BufferPool: newBuffers(),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { d.Refuse(w, r, unanswered(r.Context(), err)) },
		ErrorLog:     slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return d
}

// Wait returns when no request is left, also of those whose connections are not
// the server's any more, or when ctx ends.
func (d *Door) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		d.visits.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	d.transport.CloseIdleConnections()
}

// ServeHTTP answers a request for a port.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.visits.Add(1)
	defer d.visits.Done()
	r.Pattern = "preview" // for the log, which is to have no path
	t, ok := d.cfg.Names.target(r.Host)
	if !ok || r.Method == http.MethodConnect {
		d.Refuse(w, r, errs.E(errs.NotFound, "there is no preview of this name"))
		return
	}
	r.Body = front.StreamedBody(r)
	dropHTTP2(r.Header)
	c := takeCredentials(r)
	a, err := d.admit(r, t, c)
	if err != nil {
		d.Refuse(w, r, err)
		return
	}
	if c.address != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == "" {
		d.arrive(w, r, t, c, a)
		return
	}
	d.serve(w, r, t, a)
}

// admit asks core whether a visitor may see a port.
func (d *Door) admit(r *http.Request, t target, c credentials) (preview.Admission, error) {
	var v preview.Visitor
	for _, token := range append([]string{c.address, c.header}, c.cookies...) {
		if token != "" {
			v.Tokens = append(v.Tokens, token)
		}
	}
	if c.header != "" && d.cfg.Auth != nil {
		if p, ok := d.cfg.Auth.Authenticate(c.header); ok {
			v.Principal = &p
		}
	}
	a, err := d.cfg.Core.Previews().Admit(r.Context(), t.id, t.port, v)
	if errs.KindOf(err) == errs.Unauthenticated && c.header != "" && v.Principal == nil {
		if err := d.cfg.Guesses.Wrong(r.RemoteAddr); err != nil {
			return a, err
		}
	}
	return a, err
}

// arrive makes a cookie of a link's token, and takes it out of the address that
// the browser shows, keeps and sends to others.
func (d *Door) arrive(w http.ResponseWriter, r *http.Request, t target, c credentials, a preview.Admission) {
	if a.Token == c.address {
		http.SetCookie(w, d.cfg.Names.cookie(a.Token, a.Expires, time.Now()))
	}
	h := w.Header()
	// With the origin: a path may look like the name of another host.
	h.Set("Location", t.origin+requestPath(r))
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
}

// requestPath is the path and the query that were asked for.
func requestPath(r *http.Request) string {
	path := r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	return path
}

// serve brings a request to the app.
func (d *Door) serve(w http.ResponseWriter, r *http.Request, t target, a preview.Admission) {
	in, err := d.enter(r, a)
	if err != nil {
		d.Refuse(w, r, err)
		return
	}
	defer in.Done()
	d.forward(w, r, &visit{Visit: in, target: t, box: a.Box, key: string(a.Box.UID) + ":" + strconv.Itoa(t.port)})
}

// forward passes a request on, and the app's answer back.
func (d *Door) forward(w http.ResponseWriter, r *http.Request, v *visit) {
	v.stop = func() bool { return false }
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), visitKey{}, v))
	defer cancel()
	v.endless = func() { v.stop = context.AfterFunc(d.cfg.Life, cancel) }
	defer func() { v.stop() }()
	defer untilLeft(r, &v.moved, cancel)()
	d.proxy.ServeHTTP(answers{w, v}, r.WithContext(httptrace.WithClientTrace(ctx, v.trace())))
}

// dial connects a request to its port. Connections of one key are kept for each
// other.
func (d *Door) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := visiting(ctx).Dial(ctx)
	if err != nil {
		return nil, err
	}
	return &appConn{Conn: c}, nil
}

// visit is a request on its way to the app.
type visit struct {
	*preview.Visit
	target
	box   sandbox.Sandbox
	key   string // of the port, for connections
	hints int    // of the one goroutine that reads the answer
	conn  atomic.Pointer[appConn]
	moved atomic.Int64 // reads of the body, and writes of the answer
	// endless makes the request end with the daemon: by itself it would go on for
	// ever. Stop takes that back. Both are called by the request's own goroutine.
	endless func()
	stop    func() bool
}

// hinted counts an answer before the answer.
func (v *visit) hinted(int, textproto.MIMEHeader) error {
	if err := v.own(); err != nil {
		return err
	}
	if v.hints++; v.hints > maxHints {
		return errs.E(errs.Unavailable, "the app sends hints without end")
	}
	return nil
}

type visitKey struct{}

func visiting(ctx context.Context) *visit { return ctx.Value(visitKey{}).(*visit) }

// switched makes a connection that changed its protocol a use of the sandbox
// while bytes flow, and not for as long as it is open.
func (v *visit) switched(res *http.Response) {
	body, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		return // the proxy refuses it
	}
	ctx := res.Request.Context()
	res.Body = &flow{ReadWriteCloser: body, touch: func() { v.Touch(ctx) }}
	v.Rest()
}

// flow tells of bytes that flow.
type flow struct {
	io.ReadWriteCloser
	touch func()
}

func (f *flow) Read(p []byte) (int, error) {
	n, err := f.ReadWriteCloser.Read(p)
	if n > 0 {
		f.touch()
	}
	return n, err
}

func (f *flow) Write(p []byte) (int, error) {
	f.touch()
	return f.ReadWriteCloser.Write(p)
}

// dropHTTP2 keeps a visitor from asking the app for HTTP/2 on this connection:
// what follows would go past the door.
func dropHTTP2(h http.Header) {
	if strings.Contains(strings.ToLower(strings.Join(h.Values("Upgrade"), ",")), "h2c") {
		h.Del("Upgrade")
		h.Del("Http2-Settings")
	}
}

// buffers are those of bodies.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any { return new([copyBuffer]byte) }}}
}

func (b *buffers) Get() []byte  { return b.pool.Get().(*[copyBuffer]byte)[:] }
func (b *buffers) Put(p []byte) { b.pool.Put((*[copyBuffer]byte)(p)) }

// logFault logs what is not the visitor's doing, with its cause.
func (d *Door) logFault(ctx context.Context, err error) {
	if kind := errs.KindOf(err); kind == errs.Internal {
		d.cfg.Log.ErrorContext(ctx, "preview failed", telemetry.KeyErr, err, telemetry.KeyRequest, front.RequestID(ctx))
	}
}
