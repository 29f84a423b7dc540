package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// LongTexts are the strings of an answer that are not held: each is written
// where its name stands in the encoded answer. The zero value has none.
type LongTexts struct {
	prefix string
	write  []func(io.Writer) error
}

// Add returns the name to put into the answer; nobody can guess it. What write
// writes is the content of the JSON string.
func (l *LongTexts) Add(write func(io.Writer) error) string {
	if l.prefix == "" {
		l.prefix = rand.Text()
	}
	name := l.prefix + string(rune('a'+len(l.write)))
	l.write = append(l.write, write)
	return name
}

// Output adds a stream of a command, as text where it is text.
func (l *LongTexts) Output(ctx context.Context, out live.LongText) (name, encoding string) {
	if out.Text {
		return l.Plain(ctx, out), ""
	}
	return l.base64(ctx, out), "base64"
}

// Plain adds a stream of a command for a dialect that knows nothing but text:
// what is not UTF-8 becomes U+FFFD.
func (l *LongTexts) Plain(ctx context.Context, out live.LongText) (name string) {
	return l.Add(func(w io.Writer) error { return escapeText(w, out.Read(ctx)) })
}

func (l *LongTexts) base64(ctx context.Context, out live.LongText) string {
	return l.Add(func(w io.Writer) error {
		e := base64.NewEncoder(base64.StdEncoding, w)
		for piece, err := range out.Read(ctx) {
			if err != nil {
				return err
			}
			if _, err := e.Write(piece); err != nil {
				return Gone(err)
			}
		}
		return e.Close()
	})
}

// escapeText writes text as the content of a JSON string, as encoding/json
// does.
func escapeText(w io.Writer, pieces iter.Seq2[[]byte, error]) error {
	var held []byte // the beginning of a character
	put := func(b []byte) error {
		var quoted bytes.Buffer
		for len(b) > 0 {
			n := min(len(b), escapePiece)
			if n < len(b) {
				n -= front.PartialRune(b[:n])
			}
			quoted.Reset()
			enc := json.NewEncoder(&quoted)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(string(b[:n])); err != nil {
				return err
			}
			text := quoted.Bytes()
			if _, err := w.Write(text[1 : len(text)-2]); err != nil { // quotes and a line break
				return Gone(err)
			}
			b = b[n:]
		}
		return nil
	}
	for piece, err := range pieces {
		if err != nil {
			return err
		}
		if len(held) > 0 {
			piece = append(held, piece...)
		}
		whole := len(piece) - front.PartialRune(piece)
		held = bytes.Clone(piece[whole:])
		if err := put(piece[:whole]); err != nil {
			return err
		}
	}
	return put(held)
}

// escapePiece is how much text is escaped at a time.
const escapePiece = 2 << 10

// WriteLong writes an answer whose long texts follow as it is sent. What fails
// then breaks the connection.
func (s *Server) WriteLong(ctx context.Context, w http.ResponseWriter, status int, v any, long *LongTexts) {
	if len(long.write) == 0 {
		front.WriteJSON(w, status, v)
		return
	}
	body, err := front.PlainJSON(v)
	if err != nil {
		panic(err) // every v is a struct of this program
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	out := bufio.NewWriterSize(w, 8<<10)
	if err = long.splice(out, body); err == nil {
		if out.Flush() != nil {
			return // the client went away
		}
	}
	s.Abort(ctx, err)
}

func (l *LongTexts) splice(w io.Writer, body []byte) error {
	for len(l.write) > 0 {
		at := bytes.Index(body, []byte(l.prefix))
		if at < 0 {
			break
		}
		i := int(body[at+len(l.prefix)] - 'a')
		if i < 0 || i >= len(l.write) {
			return errs.E(errs.Internal, "internal error").Because(errors.New("a long text without a writer"))
		}
		if _, err := w.Write(body[:at]); err != nil {
			return Gone(err)
		}
		if err := l.write[i](w); err != nil {
			return err
		}
		body = body[at+len(l.prefix)+1:]
	}
	if _, err := w.Write(body); err != nil {
		return Gone(err)
	}
	return nil
}
