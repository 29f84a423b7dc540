package rpc

import (
	"encoding/base64"
	"io"
	"net/http"
	"strings"
)

// The types of gRPC-Web in binary, and as base64 text: browsers' older requests
// give no bytes while a response comes, only text.
const (
	webType     = "application/grpc-web"
	webTextType = "application/grpc-web-text"
)

// asText speaks gRPC-Web's text form around a handler that speaks the binary
// one.
func asText(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w, r, end := fromText(w, r)
		defer end()
		next.ServeHTTP(w, r)
	})
}

// fromText turns a request and its response from the text form into the binary
// one; others stay what they are.
func fromText(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, _ *http.Request, end func()) {
	codec, ok := strings.CutPrefix(r.Header.Get("Content-Type"), webTextType)
	if !ok {
		return w, r, func() {}
	}
	r = r.Clone(r.Context())
	r.Header.Set("Content-Type", webType+codec)
	r.Header.Del("Content-Length")
	r.ContentLength = -1
	r.Body = struct {
		io.Reader
		io.Closer
	}{base64.NewDecoder(base64.StdEncoding, r.Body), r.Body}
	text := &textWriter{ResponseWriter: w}
	return text, r, text.end
}

// textWriter writes a response as base64. Each part that is sent is whole.
type textWriter struct {
	http.ResponseWriter
	begun bool
	part  io.WriteCloser // nil: nothing is written since the last was sent
}

// Unwrap lets http.ResponseController reach the connection.
func (t *textWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *textWriter) WriteHeader(status int) {
	if !t.begun {
		t.begun = true
		h := t.Header()
		h.Del("Content-Length")
		if codec, ok := strings.CutPrefix(h.Get("Content-Type"), webType); ok {
			h.Set("Content-Type", webTextType+codec)
		}
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *textWriter) Write(p []byte) (int, error) {
	if !t.begun {
		t.WriteHeader(http.StatusOK)
	}
	if !strings.HasPrefix(t.Header().Get("Content-Type"), webTextType) {
		return t.ResponseWriter.Write(p) // no answer of the protocol
	}
	if t.part == nil {
		t.part = base64.NewEncoder(base64.StdEncoding, t.ResponseWriter)
	}
	return t.part.Write(p)
}

// Flush ends a part.
func (t *textWriter) Flush() {
	t.end()
	_ = http.NewResponseController(t.ResponseWriter).Flush() // what cannot flush does not stream either
}

func (t *textWriter) end() {
	if t.part != nil {
		_ = t.part.Close() // the client may be gone
		t.part = nil
	}
}
