package preview

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"testing"
)

// pairedApp answers the first question of a connection, and when the second one came
// sends the rest.
func pairedApp(t *testing.T, first, rest string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for _, text := range []string{first, rest} {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					_, _ = io.WriteString(c, text)
				}
				_, _ = io.Copy(io.Discard, in)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// ask is a visitor, and what that gets.
func ask(t *testing.T, address string) (status int, text string, hints int) {
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		hints++
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Error(err)
		return 0, "", 0
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, "", 0
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(body), hints
}

// countedWrites tells when the second request was written. [httptrace.ClientTrace]
// does so a moment before, and what was not written is repeated.
type countedWrites struct {
	net.Conn

	writes int
	second chan struct{}
}

func (c *countedWrites) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.writes++; c.writes == 2 {
		close(c.second)
	}
	return n, err
}

// Visitors of one app share its connections. An answer that the app sent before a
// visitor asked is not that visitor's, even if the transport gave the connection
// away before it saw the answer.
func TestAttackAnswersBeforeTheirQuestion(t *testing.T) {
	const surplus = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"
	own := "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown"
	for name, c := range map[string]struct {
		first, rest string
		status      int
	}{
		"an answer":           {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst" + surplus, "", 502},
		"after an empty one":  {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + surplus, "", 502},
		"after chunks":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nf\r\n0\r\n\r\n" + surplus, "", 502},
		"the first byte":      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + surplus[:1], surplus[1:], 502},
		"a hint":              {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", surplus, 502},
		"a switch":            {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "", 502},
		"nothing":             {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", own, 200},
		"nothing, with hints": {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst", "HTTP/1.1 103 Early Hints\r\n\r\n" + own, 200},
	} {
		t.Run(name, func(t *testing.T) {
			d := New(Config{Log: slog.New(slog.DiscardHandler), Life: t.Context()})
			defer d.transport.CloseIdleConnections()
			address := pairedApp(t, c.first, c.rest)
			dials := 0
			kept, written := make(chan struct{}), make(chan struct{})
			d.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				dials++
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				return &appConn{Conn: &countedWrites{Conn: conn, second: written}}, err
			}
			traces := map[string]*httptrace.ClientTrace{
				"/1": {PutIdleConn: func(error) {
					close(kept) // the transport has not looked for more yet
					<-written
				}},
				"/2": {},
			}
			door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				d.forward(w, r.WithContext(httptrace.WithClientTrace(r.Context(), traces[r.URL.Path])), &visit{key: "a:80"})
			}))
			defer door.Close()
			var first sync.WaitGroup
			first.Go(func() { _, _, _ = ask(t, door.URL+"/1") })
			<-kept
			status, text, hints := ask(t, door.URL+"/2")
			first.Wait()
			if status != c.status || c.status == 200 && text != "own" || c.status != 200 && hints > 0 {
				t.Errorf("the second visitor is answered %d %.80q after %d hints, want %d", status, text, hints, c.status)
			}
			if dials != 1 {
				t.Errorf("%d connections, want one that both share", dials)
			}
		})
	}
}

// What an app sends while a request has its connection and has not been written is
// lost, with the connection.
func TestAttackAnswersThatComeAsTheQuestionIsPut(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := &appConn{Conn: near}
	defer c.Close()
	for _, answer := range []string{"one", "two"} {
		c.take()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, 1))
			_, _ = io.WriteString(far, answer)
		}()
		if _, err := c.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 3)
		if _, err := io.ReadFull(c, text); err != nil || string(text) != answer {
			t.Errorf("%q, %v, want %q", text, err, answer)
		}
	}
	c.take()
	go func() { _, _ = io.WriteString(far, "six") }()
	if n, err := c.Read(make([]byte, 3)); n != 0 || err == nil {
		t.Errorf("%d bytes of an answer to nothing, %v", n, err)
	}
	c.take()
	if c.state.Load() != spoilt {
		t.Error("the connection is good again")
	}
}
