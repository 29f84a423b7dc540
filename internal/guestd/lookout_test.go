package guestd

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// hosted is a connection to a host, and the host's end of it.
func hosted(t *testing.T) (agent, host *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	agent, host = conn.(*net.UnixConn), accepted.(*net.UnixConn)
	t.Cleanup(func() { agent.Close(); host.Close() })
	return agent, host
}

func isOpen(conn *net.UnixConn) bool { return conn.SetDeadline(time.Time{}) == nil }

// What has ended at two looks is closed, and nothing else.
func TestLookoutClosesWhatHasEnded(t *testing.T) {
	ended, far := hosted(t)
	far.Close()
	standing, _ := hosted(t)
	halfClosed, far := hosted(t)
	if err := far.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	unread, far := hosted(t)
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	far.Close()
	removed, far := hosted(t)
	far.Close()

	l := newLookout()
	for _, conn := range []*net.UnixConn{ended, standing, halfClosed, unread, removed} {
		l.add(conn)
	}
	l.remove(removed)
	l.look()
	if !isOpen(ended) {
		t.Error("a connection was closed at the first look")
	}
	l.look()
	l.look()
	if isOpen(ended) {
		t.Error("a connection that has ended is open after three looks")
	}
	for name, conn := range map[string]*net.UnixConn{"stands": standing, "is half closed": halfClosed, "was not read": unread, "was removed": removed} {
		if !isOpen(conn) {
			t.Errorf("a connection that %s was closed", name)
		}
	}
}

// The looking goes on for a moment after it is not needed any more: the host is back at
// once, and what it left behind may not have been looked at twice.
func TestLookoutLooksOnForAMoment(t *testing.T) {
	conn, far := hosted(t)
	l := newLookout()
	defer l.end()
	l.add(conn)
	l.keep()
	l.rest()
	far.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	for isOpen(conn) {
		time.Sleep(time.Millisecond)
	}
	l.wait.Wait()
	l.keep()
	if l.left == 0 {
		t.Error("nobody looks when it is needed again")
	}
	l.end()
	l.keep()
	again, far := hosted(t)
	l.add(again)
	far.Close()
	if _, err := again.Read(make([]byte, 1)); os.IsTimeout(err) || !isOpen(again) {
		t.Errorf("a connection was closed after the end: %v", err)
	}
}
