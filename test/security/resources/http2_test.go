package resources_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/cubbyhq/cubby/client"
)

// flooder is a client of HTTP/2 that keeps none of its rules.
type flooder struct {
	net.Conn
	*http2.Framer
	t      *testing.T
	fields bytes.Buffer
	enc    *hpack.Encoder
	stream uint32
	closed chan struct{} // by the daemon

	mu     sync.Mutex
	resets map[http2.ErrCode]int // streams that the daemon refused; guarded by mu
	heads  map[string]int        // answers, by status; guarded by mu
}

// flood opens a connection. What the daemon sends is read, unless it is to wait.
func (d *daemon) flood(reads bool, settings ...http2.Setting) *flooder {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	f := &flooder{Conn: conn, Framer: http2.NewFramer(conn, conn), t: d.t, stream: 1, closed: make(chan struct{}), resets: make(map[http2.ErrCode]int), heads: make(map[string]int)}
	f.AllowIllegalWrites = true
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.enc = hpack.NewEncoder(&f.fields)
	d.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		d.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		d.t.Fatal(err)
	}
	if err := f.WriteSettings(settings...); err != nil {
		d.t.Fatal(err)
	}
	if reads {
		go f.read()
	}
	return f
}

// read takes what the daemon sends until it closes the connection.
func (f *flooder) read() {
	defer close(f.closed)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		f.mu.Lock()
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			f.resets[frame.ErrCode]++
		case *http2.MetaHeadersFrame:
			f.heads[frame.PseudoValue("status")]++
		}
		f.mu.Unlock()
	}
}

// header is the block of a request's header.
func (f *flooder) header(method, path, token string, more ...hpack.HeaderField) []byte {
	f.fields.Reset()
	all := []hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "cubby"}, {Name: ":path", Value: path},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}
	if token != "" {
		all = append(all, hpack.HeaderField{Name: "authorization", Value: "Bearer " + token, Sensitive: true})
	}
	for _, field := range append(all, more...) {
		_ = f.enc.WriteField(field) // into a buffer
	}
	return f.fields.Bytes()
}

// open begins a request and returns the number of its stream.
func (f *flooder) open(method, path, token string, end bool) (uint32, error) {
	id := f.stream
	f.stream += 2
	return id, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.header(method, path, token), EndStream: end, EndHeaders: true})
}

// ended reports that the daemon has ended the connection, which an attack that
// never ends by itself must lead to.
func (f *flooder) ended(what string, err error) {
	f.t.Helper()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		f.t.Errorf("%s: the daemon went on to read, %v", what, err)
	}
}

// answered waits until so many requests have a status or were refused, and
// returns how many were refused for their number.
func (f *flooder) answered(n int) (refused int) {
	f.t.Helper()
	for {
		f.mu.Lock()
		got := 0
		for _, many := range f.resets {
			got += many
		}
		for _, many := range f.heads {
			got += many
		}
		refused = f.resets[http2.ErrCodeRefusedStream]
		f.mu.Unlock()
		if got >= n {
			return refused
		}
		select {
		case <-f.closed:
			f.t.Errorf("the connection ended with %d of %d requests answered", got, n)
			return refused
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestHTTP2Floods: what a client of HTTP/2, with a token or without one, can do
// to a server within a connection. The daemon keeps its memory, ends what has no
// end, and answers the others meanwhile.
func TestHTTP2Floods(t *testing.T) {
	d := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for token, id := range map[string]string{acme: "attacker", other: "victim"} {
		if _, err := d.client(token).Create(ctx, client.CreateOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, d.client(acme), "attacker", "head -c 16777216 /dev/zero | tr '\\0' x >large; cat large")
	const (
		list    = "/v1/sandboxes"
		service = "/sandbox.v1.SandboxService/"
	)
	for _, attack := range []struct {
		name  string
		conns int
		do    func(f *flooder)
		quiet bool // it reads nothing
		with  []http2.Setting
	}{
		{name: "rapid reset without a token", conns: 8, do: func(f *flooder) {
			for range 5000 {
				id, err := f.open("POST", service+"Exec", "", false)
				if err != nil || f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
					return // the daemon may end it
				}
			}
		}},
		{name: "rapid reset of requests that begin", conns: 8, do: func(f *flooder) {
			for range 2000 {
				id, err := f.open("GET", list, acme, true)
				if err != nil || f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
					return
				}
			}
		}},
		{name: "a header that never ends", conns: 4, do: func(f *flooder) {
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.header("POST", service+"Exec", ""), EndStream: true})
			f.fields.Reset()
			_ = f.enc.WriteField(hpack.HeaderField{Name: "x-filler", Value: strings.Repeat("a", 8<<10), Sensitive: true})
			piece := bytes.Clone(f.fields.Bytes())
			for range 16 << 10 { // 128 MiB
				if err == nil {
					err = f.WriteContinuation(1, false, piece)
				}
			}
			f.ended("a header that never ends", err)
		}},
		{name: "a header of one field that never ends", conns: 4, do: func(f *flooder) {
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.header("POST", service+"Exec", ""), EndStream: true})
			// A literal field whose value has 2 GiB.
			piece := append([]byte{0x10, 0x01, 'x', 0x7f, 0x81, 0xff, 0xff, 0xff, 0x07}, bytes.Repeat([]byte("a"), 8<<10)...)
			for range 16 << 10 {
				if err == nil {
					err = f.WriteContinuation(1, false, piece)
					piece = piece[max(0, len(piece)-8<<10):]
				}
			}
			f.ended("a header of one field that never ends", err)
		}},
		{name: "pings whose answers nobody takes", conns: 4, quiet: true, do: func(f *flooder) {
			var err error
			for range 4 << 20 {
				if err == nil {
					err = f.WritePing(false, [8]byte{})
				}
			}
			f.ended("pings", err)
		}},
		// They are answered together: there is nothing that grows.
		{name: "settings whose answers nobody takes", conns: 4, quiet: true, do: func(f *flooder) {
			for range 50_000 {
				if err := f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096}); err != nil {
					return
				}
			}
		}},
		{name: "windows of nothing", conns: 4, with: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}, do: func(f *flooder) {
			for range 250 {
				if _, err := f.open("GET", "/v1/sandboxes/attacker/execs/1?max_output_bytes=67108864", acme, true); err != nil {
					f.t.Error(err)
				}
			}
			f.answered(250)
		}},
		{name: "more streams than there may be", conns: 6, do: func(f *flooder) {
			for range 1000 {
				if _, err := f.open("GET", "/v1/sandboxes/attacker/events?follow=true", acme, true); err != nil {
					f.t.Error(err)
				}
			}
			// What a client has too many of to follow is answered, and makes room.
			refused := f.answered(1000)
			f.mu.Lock()
			defer f.mu.Unlock()
			if open := f.heads["200"]; refused == 0 || open > 250 || refused+open+f.heads["429"] != 1000 {
				f.t.Errorf("of 1000 streams of a connection %d were refused, and the others answered %v", refused, f.heads)
			}
		}},
		{name: "messages that are longer than they say", conns: 4, do: func(f *flooder) {
			for range 100 {
				id, err := f.open("POST", service+"WriteFile", acme, false)
				if err == nil {
					// gRPC: not compressed, 30 MiB; and 1 KiB of it.
					err = f.WriteData(id, false, append([]byte{0, 1, 0xe0, 0, 0}, make([]byte, 1<<10)...))
				}
				if err != nil {
					f.t.Error(err)
					return
				}
			}
		}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			d.t = t
			var flooders []*flooder
			for range attack.conns {
				flooders = append(flooders, d.flood(!attack.quiet, attack.with...))
			}
			defer func() {
				for _, f := range flooders {
					_ = f.Close()
				}
			}()
			var all sync.WaitGroup
			for _, f := range flooders {
				all.Go(func() { attack.do(f) })
			}
			run(t, d.client(other), "victim", "true")
			all.Wait()
			run(t, d.client(other), "victim", "true")
			if status := d.get(operator, "GET "+list+" HTTP/1.1", ""); status != "200" {
				t.Errorf("the operator meanwhile: %s", status)
			}
			d.bounded(attack.name)
		})
	}
}
