package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// arrivals is a server that answers requests and notes how they arrive.
type arrivals struct {
	mu   sync.Mutex
	list []string
}

func (a *arrivals) serve(c net.Conn) {
	for br := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(br)
		var got string
		if err == nil {
			var body []byte
			body, err = io.ReadAll(req.Body)
			got = fmt.Sprintf("%s %s %s %q", req.Method, req.Host, req.RequestURI, body)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return // the end, or half a request, which is none
		}
		if err != nil {
			got = err.Error()
		}
		a.mu.Lock()
		a.list = append(a.list, got)
		a.mu.Unlock()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// What a server gets on a connection is what was decided, whatever else could
// be read out of the same bytes.
func TestSmuggling(t *testing.T) {
	const origin = "GET /second HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	post := "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"
	for _, tt := range []struct {
		name, in string
		want     []string // what arrives
	}{
		{"a length that Connection names", post + "Connection: Content-Length\r\nContent-Length: 3\r\n\r\nabc", []string{`POST a.example / "abc"`}},
		{"a coding that Connection names", post + "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", []string{`POST a.example / "abc"`}},
		{"a Host that Connection names", "GET http://a.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: Host\r\n\r\n", []string{`GET a.example / ""`}},
		{"trailers that nobody announced", post + "Transfer-Encoding: chunked\r\n\r\n0\r\nHost: evil.example\r\nContent-Length: 40\r\n\r\n", []string{`POST a.example / ""`}},
		{"a trailer that ends lines", post + "Trailer: X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: a\r\r\n\r\n", nil},
		{"a length as a trailer", post + "Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 40\r\n\r\n", nil},
		{"chunks in HTTP/1.0", "POST http://a.example/ HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + origin, []string{`POST a.example / ""`}},
		{"chunked twice in a list", post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + origin, nil},
		{"gzip before chunked", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + origin, nil},
		{"a length in hexadecimal", post + "Content-Length: 0x3\r\n\r\nabc", nil},
		{"a length of spaces", post + "Content-Length: 3 3\r\n\r\nabc", nil},
		{"an empty length", post + "Content-Length:\r\n\r\n" + origin, nil},
		{"a negative chunk", post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + origin, nil},
		{"a chunk in hexadecimal", post + "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + origin, nil},
		{"an upgrade with a body", post + "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc", []string{`POST a.example / "abc"`}},
		{"user information", "GET http://evil.example:80@a.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", []string{`GET a.example / ""`}},
		{"user information, the other way", "GET http://a.example:80@evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", nil},
		{"a port with zeros", "GET http://a.example:0080/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", []string{`GET a.example:0080 / ""`}},
		{"a path like a URL", "GET http://a.example//evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", []string{`GET a.example //evil.example/ ""`}},
		{"line ends in a query", "GET http://a.example/?a=%0d%0aHost:%20evil.example HTTP/1.1\r\nHost: a\r\n\r\n", []string{`GET a.example /?a=%0d%0aHost:%20evil.example ""`}},
		{"CONNECT with a length", "CONNECT a.example:80 HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\nGET /in HTTP/1.1\r\nHost: a.example\r\n\r\n", []string{`GET a.example /in ""`}},
		{"CONNECT that waits for a body", "CONNECT a.example:80 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\nGET /in HTTP/1.1\r\nHost: a.example\r\n\r\n", []string{`GET a.example /in ""`}},
		{"a path to CONNECT to, and a Host", "CONNECT /x HTTP/1.1\r\nHost: evil.example:80\r\n\r\n" + origin, nil},
		{"another host behind a body that is refused", "POST http://evil.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello" + "GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n", []string{`GET a.example / ""`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got arrivals
			r := newRig(t, "")
			r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example"}}
			r.publish("a.example", "203.0.113.1", server(t, got.serve), 80)
			r.publish("evil.example", "203.0.113.2", server(t, got.serve), 80)
			guest := r.dial()
			_ = guest.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(guest, tt.in)
			if strings.HasPrefix(tt.in, "CONNECT") {
				_ = guest.(*net.UnixConn).CloseWrite()
			} else { // what is denied ends the stream
				_, _ = io.WriteString(guest, "GET http://end.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
			}
			answer, err := io.ReadAll(guest)
			if isTimeout(err) {
				t.Errorf("no end; the guest hears %q", answer)
			}
			for _, d := range r.seen() {
				if d.Allow {
					r.ended(1)
				}
			}
			got.mu.Lock()
			defer got.mu.Unlock()
			if strings.Join(got.list, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("arrived: %q, want %q; the guest hears %q", got.list, tt.want, answer)
			}
			for _, a := range r.dialled {
				if a != "203.0.113.1:80" {
					t.Errorf("%s was dialled", a)
				}
			}
		})
	}
}
