//go:build !race

package mcp_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// largestEvent remembers how large the largest event was that came.
type largestEvent struct {
	next    http.RoundTripper
	largest atomic.Int64
	events  atomic.Int64
}

func (l *largestEvent) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.next.RoundTrip(r)
	if err == nil && strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		res.Body = &measured{ReadCloser: res.Body, of: l}
	}
	return res, err
}

type measured struct {
	io.ReadCloser
	of   *largestEvent
	size int64 // of the event so far
	last byte
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	for _, c := range p[:n] {
		m.size++
		if m.size > m.of.largest.Load() {
			m.of.largest.Store(m.size)
		}
		if c == '\n' && m.last == '\n' {
			m.size = 0
			m.of.events.Add(1)
		}
		m.last = c
	}
	return n, err
}

// TestLongReads: whoever asks for much of a file gets as much as fits into an event of
// less than 1 MiB, also of text that JSON writes longer, and can go on to its end.
func TestLongReads(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	seen := &largestEvent{next: tr}
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: d.URL + "/mcp", HTTPClient: &http.Client{Transport: seen}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	id := begin(t, s)
	for name, piece := range map[string]string{
		"plain": "x", "control": "\x01", "quotes": `"`, "backslashes": `\`, "lines": "\n", "html": "<&>", "umlauts": "é", "separators": "\u2028",
		"emoji": "\U0001F600", "mixed": "a\"\x00\\é\x1f\U0001F600\u2029<\x7f", "binary": "\xff\xfe\x00",
	} {
		t.Run(name, func(t *testing.T) {
			seen.largest.Store(0)
			seen.events.Store(0)
			want := strings.Repeat(piece, 700_000/len(piece))
			where := d.URL + "/v1/sandboxes/" + id + "/files?path=" + url.QueryEscape(name)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, where, strings.NewReader(want))
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if res.Body.Close(); res.StatusCode >= 300 {
				t.Fatal(res.Status)
			}
			var got bytes.Buffer
			for offset, more := 0.0, true; more; {
				out := good(t, s, "read_file", object{"session_id": id, "path": name, "offset": offset, "limit": 500_000})
				part := []byte(out["content"].(string))
				if out["encoding"] == "base64" {
					if part, err = base64.StdEncoding.DecodeString(string(part)); err != nil {
						t.Fatal(err)
					}
				}
				got.Write(part)
				next := out["next_offset"].(float64)
				if more = out["more"].(bool); next != float64(got.Len()) || more && len(part) < 50_000 {
					t.Fatalf("a part has %d bytes, and the next begins at %v of %d", len(part), next, got.Len())
				}
				offset = next
			}
			if got.String() != want {
				t.Errorf("the parts are not the file: %d bytes of %d", got.Len(), len(want))
			}
			if n := seen.largest.Load(); n >= 1<<20 || seen.events.Load() == 0 {
				t.Errorf("the largest of %d events has %d bytes", seen.events.Load(), n)
			}
		})
	}
}
