package channel

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// An agent that closes its end of what has ended is waited for, and what it has
// said before is not lost.
func TestSeverEndsEveryConnection(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	agent := map[string]net.Conn{}
	for name, line := range map[string]string{
		"control": "CUBBY2 s3cret control\n", "used": "CUBBY2 s3cret pool\n", "egress": "CUBBY2 s3cret egress\n",
	} {
		agent[name] = dialAs(t, path, line)
	}
	if err := l.Wait(short(t)); err != nil {
		t.Fatal(err)
	}
	dialled, err := l.Dial(short(t))
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	stream, _, err := l.AcceptEgress(short(t))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	agent["spare"] = dialAs(t, path, "CUBBY2 s3cret pool\n")
	if _, err := io.WriteString(agent["used"], "last words"); err != nil {
		t.Fatal(err)
	}

	closed := make(chan string, len(agent))
	for name, conn := range agent {
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
			closed <- name
		}()
	}
	if err := l.Sever(); err != nil {
		t.Error(err)
	}
	for range agent {
		select {
		case <-closed:
		default:
			t.Error("Sever returned before the agent had closed all of its connections")
		}
	}
	if words, err := io.ReadAll(dialled); err != nil || string(words) != "last words" {
		t.Errorf("from a connection that was handed out came %q, %v", words, err)
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("a connection was accepted after the end")
	}
	if _, err := l.Dial(short(t)); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Dial = %v, want unavailable", err)
	}
	if _, _, err := l.AcceptEgress(short(t)); err == nil {
		t.Error("AcceptEgress gave a stream after the end")
	}
	if err := l.Sever(); err != nil { // which does nothing
		t.Error(err)
	}
}

// An agent that does not close its end finds nobody there.
func TestSeverCutsOffWhatStays(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	agent := dialAs(t, path, "CUBBY2 s3cret pool\n")
	dialled, err := l.Dial(short(t))
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	if err := l.Sever(); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(agent, "x"); err == nil {
		t.Error("the agent can write on")
	}
	_ = agent.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := agent.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the agent's Read = %d, %v; want the end", n, err)
	}
}

// An agent that a busy host does not let run is waited for: one that is frozen while it
// reads from its control connection never dials again.
func TestSeverWaitsForASlowAgent(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	agent := dialAs(t, path, "CUBBY2 s3cret control\n")
	if err := l.Wait(short(t)); err != nil {
		t.Fatal(err)
	}
	noticed := make(chan struct{})
	time.AfterFunc(3*severWithin, func() {
		close(noticed)
		agent.Close()
	})
	severAfter(t, l, noticed)
}

// severAfter severs, and fails the test unless the agent had closed its connection by then.
func severAfter(t *testing.T, l *Listener, closed <-chan struct{}) {
	t.Helper()
	if err := l.Sever(); err != nil {
		t.Error(err)
	}
	select {
	case <-closed:
	default:
		t.Error("Sever returned before the agent had closed its connection")
	}
}

// An agent that keeps its control connection is not ready to be kept itself.
func TestSeverRefusesAnAgentThatKeepsItsControlConnection(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	l.letGoWithin = severWithin
	dialAs(t, path, "CUBBY2 s3cret control\n")
	if err := l.Wait(short(t)); err != nil {
		t.Fatal(err)
	}
	if err := l.Sever(); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Sever = %v, want unavailable", err)
	}
}

// A connection that was made a moment before the end is waited for too: one of an agent
// that fills its pool may not be accepted yet.
func TestSeverWaitsForAConnectionThatIsNotAcceptedYet(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	// Strangers that say nothing have the listener accept nobody for a while.
	for range maxPending {
		stranger := dialAs(t, path, "")
		go func() {
			_, _ = io.Copy(io.Discard, stranger)
			stranger.Close()
		}()
	}
	for len(l.pending) < maxPending {
		time.Sleep(time.Millisecond)
	}
	agent := dialAs(t, path, "CUBBY2 s3cret pool\n")
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, agent)
		time.Sleep(severWithin) // on a busy host
		close(closed)
		agent.Close()
	}()
	severAfter(t, l, closed)
}

// Strangers that connect and neither say who they are nor close cost a sleep a moment,
// and do not keep the agent from it.
func TestSeverIsNotKeptByStrangers(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	for range maxPending + maxDrained + 10 {
		dialAs(t, path, "")
	}
	if err := l.Sever(); err != nil {
		t.Error(err)
	}
}

// A program that is being started has copies of the daemon's descriptors for a moment,
// the socket's too. Nobody connects to it by them after the end: an agent that did would
// be frozen while it reads from its new control connection.
func TestSeverEndsTheSocketOfAProgramThatBegins(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	copied, err := l.socket.File()
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if err := l.Sever(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		t.Error("a connection was made after the end")
	}
}

// A connection that the host closes is over for the agent although a program that is
// being started has a copy of it.
func TestCloseEndsTheConnectionOfAProgramThatBegins(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	agent := dialAs(t, path, "CUBBY2 s3cret pool\n")
	dialled, err := l.Dial(short(t))
	if err != nil {
		t.Fatal(err)
	}
	copied, err := dialled.(givenConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if _, err := io.WriteString(dialled, "last words"); err != nil {
		t.Fatal(err)
	}
	dialled.Close()
	_ = agent.SetReadDeadline(time.Now().Add(10 * time.Second))
	if words, err := io.ReadAll(agent); err != nil || string(words) != "last words" {
		t.Errorf("the agent read %q, %v; want what was said, and the end", words, err)
	}
}
