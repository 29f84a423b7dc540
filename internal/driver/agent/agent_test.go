package agent

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/channel"
)

// An agent that was taken over answers what it likes: the daemon reads a little
// of it and gives up.
func TestAnswersOfAHostileAgent(t *testing.T) {
	zeros := strings.Repeat("\x00", 64<<10)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 1024 {
		_, _ = io.WriteString(z, zeros)
	}
	_ = z.Close()
	const begin = "HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\n"
	endless := func(piece string) func(io.Writer) {
		return func(w io.Writer) {
			for {
				if _, err := io.WriteString(w, piece); err != nil {
					return
				}
			}
		}
	}
	tests := []struct {
		name, first string
		then        func(io.Writer)
	}{
		{"endless body", begin + "\r\n", endless(zeros)},
		{"endless chunks", begin + "Transfer-Encoding: chunked\r\n\r\n", endless("10000\r\n" + zeros + "\r\n")},
		{"endless error", "HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\n\r\n{\"message\":\"", endless(strings.Repeat("a", 1<<16))},
		{"endless header", begin, endless("A: b\r\n")},
		{"endless header field", begin + "A: ", endless("bbbbbbbb")},
		{"endless hints", "", endless("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n")},
		{"gzip bomb", begin + "Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + bomb.String(), nil},
		{"redirect", "HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", nil},
		{"bad chunks", begin + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", nil},
		{"no http", "\x00\x01\x02\r\n\r\n", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := channel.Listen(path, "secret", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "CUBBY1 secret pool\n")
			sent := &counting{w: conn}
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				_, _ = io.WriteString(sent, test.first)
				if test.then != nil {
					test.then(sent)
				}
			}()
			if err := New(l.Dial, new(capability.Known)).Hello(t.Context()); err == nil {
				t.Error("there was an answer, want an error")
			}
			conn.Close()
			<-answered
			// The socket's buffers take some too.
			if sent.n > 4<<20 {
				t.Errorf("%d bytes were taken", sent.n)
			}
		})
	}
}

type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
