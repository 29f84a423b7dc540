package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// keepAlive is how often a quiet stream says that it lives: proxies and clients
// give up on connections that are silent for half a minute or more.
const keepAlive = 15 * time.Second

// stream is the response of one request, of which the SDK writes events when it
// has some. It begins at once for what may take long, and says something while
// there are no events.
type stream struct {
	http.ResponseWriter
	call peeked
	// whole: the answer is one message, sent as JSON: it may be larger than
	// clients let an event be.
	whole bool
	quiet time.Duration // after which it says that it lives
	leave context.CancelFunc
	left  chan struct{} // closed when the SDK writes nothing any more

	mu     sync.Mutex
	id     streamID     // of what can be replayed; guarded by mu
	begun  bool         // the header is sent; guarded by mu
	status int          // of an answer that is no stream; guarded by mu
	held   bytes.Buffer // what is written of whole and of errors; guarded by mu
	ended  bool         // guarded by mu
	ticker *time.Timer  // guarded by mu
}

type streamKey struct{}

// streamOf returns the response that a request's context has.
func streamOf(ctx context.Context) *stream {
	s, _ := ctx.Value(streamKey{}).(*stream)
	return s
}

// Unwrap lets http.ResponseController reach the connection.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// begin sends the header. It is called when the answer cannot be anything but
// a stream any more, and does nothing after that.
func (s *stream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun && !s.ended && !s.whole && s.status == 0 {
		s.say(": ok\n\n")
	}
}

// say writes to the client and flushes. The caller holds mu.
func (s *stream) say(text string) {
	s.start()
	_, _ = s.ResponseWriter.Write([]byte(text)) // the client may be gone
	_ = http.NewResponseController(s.ResponseWriter).Flush()
}

// start notes that the header is sent. The caller holds mu.
func (s *stream) start() {
	if !s.begun {
		s.begun = true
		s.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
		s.ticker = time.AfterFunc(s.quiet, s.tick)
	}
}

func (s *stream) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.say(": keep-alive\n\n")
		s.ticker.Reset(s.quiet)
	}
}

// WriteHeader is called for what is no stream.
func (s *stream) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun || s.status != 0 {
		return
	}
	if isStream(s.Header()) { // one that has no event yet
		s.start()
		s.ResponseWriter.WriteHeader(status)
		return
	}
	s.status = status
}

func isStream(h http.Header) bool { return h.Get("Content-Type") == "text/event-stream" }

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun && (s.status != 0 || s.whole || !isStream(s.Header())) {
		return s.held.Write(p)
	}
	s.start()
	named := len(p)
	p = bytes.TrimPrefix(p, []byte(primeName))
	n, err := s.ResponseWriter.Write(p)
	return n + named - len(p), err
}

// primeName is the SDK's name of the event that a stream begins with. The
// protocol gives it none, and Python's SDK warns of names that it does not know.
const primeName = "event: prime\n"

// Flush sends what was written of a stream.
func (s *stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		_ = http.NewResponseController(s.ResponseWriter).Flush()
	}
}

// end sends what is no stream. Nothing is written after it.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.ticker != nil {
		s.ticker.Stop()
	}
	if s.begun {
		return
	}
	h, body := s.Header(), s.held.Bytes()
	switch {
	case s.status == 0 && s.whole && isStream(h):
		h.Set("Content-Type", "application/json")
		body = lastMessage(body)
	case s.status == http.StatusBadRequest && strings.HasPrefix(h.Get("Content-Type"), "text/plain"):
		s.status, body = s.call.refusal(string(bytes.TrimSpace(body)))
		h.Set("Content-Type", "application/json")
	}
	if s.status == 0 && len(body) == 0 {
		return // the client left before there was anything
	}
	if s.status != 0 {
		s.ResponseWriter.WriteHeader(s.status)
	}
	_, _ = s.ResponseWriter.Write(body) // the client may be gone
}

// lastMessage is the data of the last event that has some.
func lastMessage(events []byte) []byte {
	var data []byte
	for line := range bytes.Lines(events) {
		if rest, ok := bytes.CutPrefix(line, []byte("data: ")); ok && len(bytes.TrimSpace(rest)) > 0 {
			data = bytes.TrimSpace(rest)
		}
	}
	return data
}

// peeked is what the beginning of a request's body says. A request that is
// larger than the beginning is not known.
type peeked struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// maxPeek bounds the beginning. The URI of a resource is within it.
const maxPeek = 16 << 10

// refusal turns the text of a refused message into an error of JSON-RPC. A
// request for a method that is not there gets an answer, which clients wait
// for; a notification that is not known is no error.
func (p peeked) refusal(text string) (status int, body []byte) {
	status = http.StatusBadRequest
	e := struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}{jsonrpc.CodeInvalidRequest, text}
	switch {
	case strings.HasPrefix(text, "malformed payload"):
		e.Code = jsonrpc.CodeParseError
	case strings.HasSuffix(text, "unsupported") && p.Method != "":
		if len(p.ID) == 0 {
			return http.StatusAccepted, nil
		}
		status, e.Code, e.Message = http.StatusOK, jsonrpc.CodeMethodNotFound, "method not found: "+p.Method
	}
	if len(p.ID) == 0 || p.ID[0] == '{' || p.ID[0] == '[' {
		p.ID = json.RawMessage("null")
	}
	return status, encode(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   any             `json:"error"`
	}{"2.0", p.ID, e})
}

// peek reads the beginning of a request's body and puts it back.
func peek(r *http.Request) (p peeked) {
	if r.Method != http.MethodPost || r.Body == nil {
		return p
	}
	begin, err := io.ReadAll(io.LimitReader(r.Body, maxPeek))
	if err == nil && len(begin) < maxPeek {
		_ = json.Unmarshal(begin, &p) // what is not JSON is refused by the SDK
	}
	rest := io.Reader(r.Body)
	if err != nil {
		rest = brokenBody{err}
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), rest), r.Body}
	return p
}

// brokenBody is a body whose reading failed.
type brokenBody struct{ err error }

func (e brokenBody) Read([]byte) (int, error) { return 0, e.err }

// streamHeader is what the door gives requests so that calls find their
// streams: the SDK does not hand a request's context to them. What clients
// send in it is replaced.
const streamHeader = "Cubby-Stream"

// beginStream sends the header of a tool's call, which is always a stream.
func (d *Door) beginStream(extra *sdk.RequestExtra) {
	if extra == nil {
		return
	}
	if s, ok := d.streams.Load(extra.Header.Get(streamHeader)); ok {
		s.(*stream).begin()
	}
}

// serve passes a request on to the SDK.
func (d *Door) serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &stream{ResponseWriter: w, call: peek(r), quiet: d.quiet, leave: cancel, left: make(chan struct{})}
	s.whole = s.call.Method == "resources/read"
	if name, _, _ := strings.Cut(r.Header.Get("Last-Event-Id"), "_"); name != "" && r.Method == http.MethodGet {
		if session := r.Header.Get("Mcp-Session-Id"); session != "" {
			d.takeOver(ctx, streamID{session, name})
		}
	}
	id := rand.Text()
	d.streams.Store(id, s)
	defer d.streams.Delete(id)
	defer s.end()
	r = r.WithContext(context.WithValue(ctx, streamKey{}, s))
	r.Header = r.Header.Clone()
	r.Header.Set(streamHeader, id)
	defer close(s.left)
	h.ServeHTTP(s, r)
}

// takeOver ends the response that has a stream which a client goes on with: its
// connection broke, and the client knows that first.
func (d *Door) takeOver(ctx context.Context, id streamID) {
	for _, v := range d.streams.Range {
		s := v.(*stream)
		s.mu.Lock()
		same := s.id == id
		s.mu.Unlock()
		if same {
			s.leave()
			select {
			case <-s.left:
			case <-ctx.Done():
			}
		}
	}
}

// carries notes which stream the response has.
func (s *stream) carries(id streamID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
}
