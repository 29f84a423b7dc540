package core_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// echoHost answers every connection with what it says.
func echoHost(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// tunnel is a connection of a sandbox to a host outside.
type tunnel struct {
	net.Conn
	in *bufio.Reader
}

func (w *world) tunnel(b sandbox.Sandbox, target string) tunnel {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.fake.EgressAddr(b.UID))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil || res.StatusCode != 200 {
		w.t.Fatalf("CONNECT %s = %v, %v", target, res, err)
	}
	return tunnel{conn, in}
}

func (c tunnel) echo(t *testing.T, line string) {
	t.Helper()
	fmt.Fprintln(c, line)
	if got, err := c.in.ReadString('\n'); err != nil || got != line+"\n" {
		t.Fatalf("echo of %q = %q, %v", line, got, err)
	}
}

// ended waits for the other side to close it.
func (c tunnel) ended(t *testing.T) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c.in); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection goes on")
		}
	}
}

func withOperator(t *testing.T, allow ...string) func(*core.Config) {
	t.Helper()
	var list string
	for _, a := range allow {
		list += a + ","
	}
	operator, err := egress.ParseOperator(list, "")
	if err != nil {
		t.Fatal(err)
	}
	return func(c *core.Config) { c.Egress.Operator = operator }
}

// history returns the payloads of a kind, and the kinds of all events.
func history[P event.Payload](w *world, id string) (list []P, kinds []string) {
	w.t.Helper()
	events, _, err := w.Events().List(w.ctx, id, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events {
		if ofThisMachine(e) {
			continue
		}
		kinds = append(kinds, e.Kind)
		p, err := event.PayloadOf(e)
		if err != nil {
			w.t.Fatal(err)
		}
		if p, ok := p.(P); ok {
			list = append(list, p)
		}
	}
	return list, kinds
}

// ofThisMachine reports whether an event is about a port: those of the fake's
// sandboxes are of whatever listens on this machine, and found at any time.
func ofThisMachine(e sandbox.Event) bool { return strings.HasPrefix(e.Kind, "port.") }

// connections is how many are open.
func connections(w *world) int {
	open, _, _ := w.Egress().Traffic()
	return open
}

// The end of a connection is an event, whatever ends it, and stands before the
// end of the sandbox.
func TestConnectionsAreInTheHistory(t *testing.T) {
	host := echoHost(t)
	for _, tt := range []struct {
		name string
		end  func(*world, tunnel)
		last string // of the history
	}{
		{"closed", func(w *world, c tunnel) {
			c.Close()
			w.until("it is in the history", func() bool {
				list, _ := history[event.Allowed](w, "a")
				return len(list) > 0
			})
		}, event.EgressAllowed},
		{"stopped", func(w *world, _ tunnel) {
			if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
				w.t.Fatal(err)
			}
		}, event.SandboxStopped},
		{"destroyed", func(w *world, _ tunnel) {
			if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
				w.t.Fatal(err)
			}
		}, event.SandboxDestroyed},
		{"destroyed, and the disk kept", func(w *world, _ tunnel) {
			if err := w.Sandboxes().Destroy(w.ctx, "a", true); err != nil {
				w.t.Fatal(err)
			}
		}, event.SandboxDestroyed},
		{"the daemon ends", func(w *world, _ tunnel) { w.restart() }, event.SandboxAdopted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, withOperator(t, host))
			c := w.tunnel(w.create("a"), host)
			c.echo(t, "hello")
			if n := connections(w); n != 1 {
				t.Errorf("%d connections are open, want 1", n)
			}
			tt.end(w, c)
			list, kinds := history[event.Allowed](w, "a")
			if len(list) != 1 || kinds[len(kinds)-1] != tt.last {
				t.Fatalf("history = %q with %+v, want one connection, and %s last", kinds, list, tt.last)
			}
			e := list[0]
			if e.Host != "127.0.0.1" || e.Rule != "operator" || e.Protocol != "connect" || e.BytesSent != 6 || e.BytesReceived != 6 || e.DurationMS < 0 || e.End != "" {
				t.Errorf("the event says %+v", e)
			}
		})
	}
}

// A sandbox that asks very often fills no history, and what has no event is
// counted there.
func TestUnlistedDecisionsAreCounted(t *testing.T) {
	host := echoHost(t)
	var heard atomic.Int64
	w := newWorld(t, withOperator(t, host), func(c *core.Config) {
		c.Egress.OnDecision = func(sandbox.UID, egress.Decision) { heard.Add(1) }
	})
	b := w.create("a")
	const times = 150
	for range times {
		c := w.tunnel(b, host)
		c.echo(t, "hello")
		c.Close()
		conn, err := net.Dial("tcp", w.fake.EgressAddr(b.UID))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		fmt.Fprint(conn, "GET http://169.254.169.254/ HTTP/1.1\r\nHost: x\r\n\r\n")
		if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != 403 {
			t.Fatal(res, err)
		}
		conn.Close()
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	allowed, kinds := history[event.Allowed](w, "a")
	denied, _ := history[event.Denied](w, "a")
	unlisted, _ := history[event.Unlisted](w, "a")
	if len(unlisted) == 0 || len(allowed)+len(denied) < 50 || kinds[len(kinds)-1] != event.SandboxStopped {
		t.Fatalf("history = %q", kinds)
	}
	var sum event.Unlisted
	for _, u := range unlisted {
		sum.Allowed += u.Allowed
		sum.Denied += u.Denied
		sum.BytesSent += u.BytesSent
		sum.BytesReceived += u.BytesReceived
	}
	if n := int64(len(allowed)) + sum.Allowed; n != times {
		t.Errorf("%d connections are told of, want %d", n, times)
	}
	if n := int64(len(denied)) + sum.Denied; n != times || heard.Load() != 2*times {
		t.Errorf("%d denials are told of, want %d; %d were heard", n, times, heard.Load())
	}
	if n := int64(6*len(allowed)) + sum.BytesSent; n != 6*times || sum.BytesReceived != sum.BytesSent {
		t.Errorf("%d bytes are told of, want %d", n, 6*times)
	}
	if e := denied[0]; e.Host != "169.254.169.254" || e.Rule != "allowlist" || e.Message == "" {
		t.Errorf("a denial says %+v", e)
	}
}

// A policy that is changed holds for what comes next; what is open goes on, or
// is cut when that is asked for.
func TestCutConnections(t *testing.T) {
	stays, goes := echoHost(t), echoHost(t)
	w := newWorld(t, withOperator(t, stays, goes))
	b := w.create("a")
	other := w.create("b")
	kept, cut, others := w.tunnel(b, stays), w.tunnel(b, goes), w.tunnel(other, goes)
	kept.echo(t, "half a line of bytes")
	// What is open can be seen, with what it carried so far.
	w.until("the bytes of an open connection are counted", func() bool {
		list, err := w.Egress().Connections(w.ctx, "a")
		return err == nil && len(list) == 2 && net.JoinHostPort(list[0].Host, strconv.Itoa(list[0].Port)) == stays &&
			list[0].Sent == 21 && list[0].Received == 21 && list[1].Sent == 0 && list[0].Duration >= list[1].Duration
	})
	if open, sent, received := w.Egress().Traffic(); open != 3 || sent != 21 || received != 21 {
		t.Errorf("%d connections are open with %d and %d bytes, want 3 with 21", open, sent, received)
	}
	if _, err := w.Egress().Connections(w.ctx, "nobody"); errs.KindOf(err) != errs.NotFound {
		t.Errorf("connections of no sandbox = %v", err)
	}
	deny := lifecycle.Patch{Network: &sandbox.Policy{Deny: []string{goes}}}
	if _, err := w.Sandboxes().Update(w.ctx, "a", deny); err != nil {
		t.Fatal(err)
	}
	if d, err := w.Egress().Explain(w.ctx, "a", goes); err != nil || d.Allow {
		t.Errorf("after the change: %+v, %v", d, err)
	}
	kept.echo(t, "one")
	cut.echo(t, "one")
	// Nothing else changes any more: it is cut all the same.
	if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{CutConnections: true}); err != nil {
		t.Fatal(err)
	}
	cut.ended(t)
	kept.echo(t, "two")
	others.echo(t, "two")
	// At once with the change.
	if _, err := w.Sandboxes().Update(w.ctx, "b", lifecycle.Patch{Network: &sandbox.Policy{Mode: sandbox.NetworkNone}, CutConnections: true}); err != nil {
		t.Fatal(err)
	}
	others.ended(t)
	kept.echo(t, "three")
	for _, id := range []string{"a", "b"} {
		w.until("the cut is in the history", func() bool {
			list, _ := history[event.Allowed](w, id)
			return slices.ContainsFunc(list, func(e event.Allowed) bool { return e.End == "cut" })
		})
	}
}
