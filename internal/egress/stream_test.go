package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestHalfClose(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // counts until the end of its input, then answers
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprintf(c, "%d", n)
	}()
	r := newRig(t, "")
	r.publish("count.example.com", "93.184.215.14", l.Addr().String(), 7)
	c := r.dial()
	const size = 3 << 20
	// The first bytes come with the request, before the answer.
	fmt.Fprint(c, "CONNECT count.example.com:7 HTTP/1.1\r\nHost: x\r\n\r\nearly")
	br := bufio.NewReader(c)
	if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		t.Fatalf("CONNECT = %q, %v", line, err)
	}
	if _, err := br.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(br)
	if want := fmt.Sprint(size + len("early")); err != nil || string(got) != want {
		t.Errorf("answer after half close = %q, %v, want %s", got, err, want)
	}
}

// A body flows both ways while the request is still being sent, and nothing is
// held back.
func TestStreaming(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		br := bufio.NewReader(r.Body)
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprint(w, strings.ToUpper(line))
			_ = rc.Flush()
		}
	}))
	defer up.Close()
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	c := r.dial()
	fmt.Fprint(c, "POST http://a.example.com/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bufio.NewReader(res.Body)
	if line, err := body.ReadString('\n'); err != nil || line != "ONE\n" {
		t.Fatalf("first line = %q, %v", line, err)
	}
	fmt.Fprint(c, "4\r\ntwo\n\r\n0\r\n\r\n")
	if line, err := body.ReadString('\n'); err != nil || line != "TWO\n" {
		t.Fatalf("second line = %q, %v", line, err)
	}
}

func TestUpgrade(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		fmt.Fprint(c, line)
	}))
	defer up.Close()
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	c := r.dial()
	fmt.Fprint(c, "GET http://a.example.com/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("upgrade = %v, %v, want 101", res, err)
	}
	fmt.Fprint(c, "hello\n")
	if line, err := br.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("echo = %q, %v", line, err)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("after the end: %v, want EOF", err)
	}
}

// Serve ends with its context, also while a tunnel is open and silent.
func TestServeEndsWithContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRig(t, "")
	r.publish("quiet.example.com", "93.184.215.14", l.Addr().String(), 443)
	for _, open := range []bool{false, true} {
		guest, host := socketPair(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.proxy.Serve(ctx, host, sandbox.DoorProxy, Guest{Box: "box"}, func() sandbox.Policy { return r.policy })
		}()
		if open {
			fmt.Fprint(guest, "CONNECT quiet.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
			if line, err := bufio.NewReader(guest).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
				t.Fatalf("CONNECT = %q, %v", line, err)
			}
		}
		cancel()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("Serve goes on after its context (tunnel: %v)", open)
		}
		guest.Close()
	}
}
