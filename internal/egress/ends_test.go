package egress

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/cubbyhq/cubby/internal/relay"
)

// breaking is a server whose connections the test takes.
func breaking(t *testing.T) (r *rig, accept func() *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r = newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", l.Addr().String(), 9)
	return r, func() *net.TCPConn {
		t.Helper()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.TCPConn)
	}
}

func (r *rig) stands(c net.Conn) {
	r.t.Helper()
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		r.t.Fatal(err)
	}
}

// What a host was sent must not look whole when the program broke off.
func TestBrokenOffUploadIsNoEnd(t *testing.T) {
	r, accept := breaking(t)
	c := r.program("a.example.com:9")
	server := accept()
	r.stands(c)
	if _, err := io.WriteString(c, "half"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	c.Close() // as the agent does after an error, or with its end
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the host sees %v, want a reset", err)
	}
}

func TestEndedUploadIsAnEnd(t *testing.T) {
	r, accept := breaking(t)
	c := r.program("a.example.com:9")
	server := accept()
	r.stands(c)
	_, _ = io.WriteString(c, "whole")
	if err := closeWrite(c); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(server)
	if err != nil || string(got) != "whole" {
		t.Fatalf("the host sees %q, %v", got, err)
	}
	_, _ = io.WriteString(server, "thanks")
	server.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "thanks" {
		t.Errorf("the program sees %q, %v", got, err)
	}
}

// The agent tells a host's end from a connection that broke: after the first the
// stream still takes what the program sends.
func TestBrokenDownloadIsNoEnd(t *testing.T) {
	for what, reset := range map[string]bool{"a reset": true, "an end": false} {
		t.Run(what, func(t *testing.T) {
			r, accept := breaking(t)
			c := r.program("a.example.com:9")
			server := accept()
			r.stands(c)
			_, _ = io.WriteString(server, "half")
			if reset {
				_ = server.SetLinger(0)
				server.Close()
			} else if err := server.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(c); err != nil {
				t.Fatal(err)
			}
			if got := relay.Gone(c); got != reset {
				t.Errorf("after %s the stream is gone: %v", what, got)
			}
		})
	}
}
