package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// patience is for what happens soon on any machine that works.
const patience = 30 * time.Second

// connected returns the two ends of a connection.
func connected(t testing.TB, network string) (a, b net.Conn) {
	t.Helper()
	if network == "pipe" {
		a, b = net.Pipe()
	} else {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = "" // an abstract one
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if a, err = net.Dial(network, l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if b, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []net.Conn{a, b} {
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

type copied struct {
	n   int64
	err error
}

func start(to io.Writer, from net.Conn) <-chan copied {
	done := make(chan copied, 1)
	go func() {
		n, err := Copy(to, from)
		done <- copied{n, err}
	}()
	return done
}

func TestCopy(t *testing.T) {
	content := make([]byte, 5<<20+17)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(content)
	for _, from := range []string{"tcp", "unix", "pipe"} {
		for _, to := range []string{"tcp", "unix", "pipe"} {
			t.Run(from+" to "+to, func(t *testing.T) {
				writer, in := connected(t, from)
				out, reader := connected(t, to)
				done := start(out, in)
				go func() {
					// In pieces of all sizes, below and above both buffers.
					rest := content
					for size := 1; len(rest) > 0; size = size*3 + 1 {
						n := min(size, len(rest))
						if _, err := writer.Write(rest[:n]); err != nil {
							return // the reader below misses it
						}
						rest = rest[n:]
					}
					writer.Close()
				}()
				got := make([]byte, len(content))
				if _, err := io.ReadFull(reader, got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, content) {
					t.Error("something else arrived")
				}
				if c := <-done; c.err != nil || c.n != int64(len(content)) {
					t.Errorf("Copy = %d, %v; want %d", c.n, c.err, len(content))
				}
			})
		}
	}
}

func TestErrors(t *testing.T) {
	t.Run("closed while it waits", func(t *testing.T) {
		_, in := connected(t, "tcp")
		done := start(io.Discard, in)
		in.Close()
		if c := <-done; !errors.Is(c.err, net.ErrClosed) {
			t.Errorf("Copy = %d, %v", c.n, c.err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		_, in := connected(t, "unix")
		if err := in.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if n, err := Copy(io.Discard, in); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Copy = %d, %v", n, err)
		}
	})
	t.Run("the other side is gone", func(t *testing.T) {
		writer, in := connected(t, "tcp")
		out, reader := connected(t, "unix")
		reader.Close()
		if _, err := writer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := Copy(out, in); n != 0 || err == nil {
			t.Errorf("Copy = %d, %v", n, err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		writer, in := connected(t, "tcp")
		if err := writer.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		writer.Close()
		if n, err := Copy(io.Discard, in); n != 0 || err == nil {
			t.Errorf("Copy = %d, %v", n, err)
		}
	})
}

// writes passes on what is written in one go.
type writes chan []byte

func (w writes) Write(p []byte) (int, error) {
	w <- bytes.Clone(p)
	return len(p), nil
}

// TestRecords: a record of TLS, which comes in one piece, is carried in one.
func TestRecords(t *testing.T) {
	record := make([]byte, 5+16<<10+1+16) // header, content, its kind, seal
	writer, in := connected(t, "unix")
	got := make(writes, 16) // also those that should not be
	done := start(got, in)
	for range 5 {
		if _, err := writer.Write(record); err != nil {
			t.Fatal(err)
		}
		select {
		case p := <-got:
			if len(p) != len(record) {
				t.Errorf("%d bytes of a record of %d were carried at once", len(p), len(record))
			}
		case <-time.After(patience):
			t.Fatal("a record does not arrive")
		}
	}
	writer.Close()
	if c := <-done; c.err != nil || c.n != int64(5*len(record)) {
		t.Errorf("Copy = %d, %v", c.n, c.err)
	}
}

// stuck is a reader that stands still until it is let go.
type stuck struct {
	entered chan struct{}
	free    context.Context
}

func (s *stuck) Write(p []byte) (int, error) {
	s.entered <- struct{}{}
	<-s.free.Done()
	return len(p), nil
}

// TestFewLargeBuffers: connections that were fast and whose readers stand
// still do not each hold a large buffer.
func TestFewLargeBuffers(t *testing.T) {
	const many = maxLarge + 8
	free, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	entered := make(chan struct{}, many)
	var done []<-chan copied
	for range many {
		writer, in := connected(t, "unix")
		if _, err := writer.Write(make([]byte, 32<<10)); err != nil {
			t.Fatal(err)
		}
		writer.Close()
		done = append(done, start(&second{&stuck{entered, free}, 0}, in))
	}
	for range many {
		select {
		case <-entered:
		case <-free.Done():
			t.Fatal("not all came to their second read")
		}
	}
	if n := inUse.Load(); n != maxLarge {
		t.Errorf("%d large buffers are in use, want %d", n, maxLarge)
	}
	cancel()
	for _, d := range done {
		if c := <-d; c.err != nil || c.n != 32<<10 {
			t.Errorf("Copy = %d, %v", c.n, c.err)
		}
	}
	if n := inUse.Load(); n != 0 {
		t.Errorf("%d large buffers are in use after all", n)
	}
}

// second takes the first write and is stuck in the next one.
type second struct {
	*stuck
	n int
}

func (s *second) Write(p []byte) (int, error) {
	if s.n++; s.n == 1 {
		return len(p), nil
	}
	return s.stuck.Write(p)
}

func BenchmarkCopy(b *testing.B) {
	writer, in := connected(b, "tcp")
	out, reader := connected(b, "unix")
	for _, c := range []net.Conn{writer, in, out, reader} {
		_ = c.SetDeadline(time.Time{})
	}
	start(out, in)
	go func() {
		chunk := make([]byte, 1<<20)
		for {
			if _, err := writer.Write(chunk); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := io.ReadFull(reader, buf); err != nil {
			b.Fatal(err)
		}
	}
}
