package front_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/front"
)

// TestBodyOfOneByteHoldsAConnection: who has no token gets the 401 although the
// body never comes, and the connection is given up.
func TestBodyOfOneByteHoldsAConnection(t *testing.T) {
	h, _ := door(t, "me:right-token-1234", func(http.ResponseWriter, *http.Request) { t.Error("the door was reached") })
	srv := httptest.NewServer(h)
	defer srv.Close()
	for _, length := range []string{"Content-Length: 1000", "Content-Length: 100000000", "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "POST /box/a HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n1", length); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Errorf("%s: no answer: %v", length, err)
			continue
		}
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d, want 401", length, res.StatusCode)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
		if _, err := r.ReadByte(); err == nil {
			t.Errorf("%s: the connection was kept", length)
		}
	}
}

// TestThousandsOfHeaderFields: each takes many times its bytes while its
// request waits.
func TestThousandsOfHeaderFields(t *testing.T) {
	h := front.Handler(front.Config{
		Log: slog.New(slog.DiscardHandler), Error: front.WriteProblem, Access: func(*http.Request) front.Access { return front.Token },
	}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for n, want := range map[int]int{200: http.StatusNoContent, 2000: http.StatusRequestEntityTooLarge} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
		for i := range n {
			r.Header[fmt.Sprint("X-", i)] = []string{strings.Repeat("x", 8)}
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d fields: %d, want %d", n, w.Code, want)
		}
	}
}
