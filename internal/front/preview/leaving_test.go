package preview_test

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// A visitor who left in the middle of a body that the app did not read kept its visit
// for as long as the app liked: nobody read the connection that had ended.
func TestVisitorsLeaveInTheMiddleOfABody(t *testing.T) {
	met, end := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {
		met <- struct{}{}
		<-end
	})
	t.Cleanup(func() { close(end) })
	conn, err := net.Dial("tcp", w.d.Shows)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000000000\r\n\r\n", w.host("a", 0)); err != nil {
		t.Fatal(err)
	}
	<-met
	// Until nothing goes on its way any more.
	for sent := 1; sent > 0; {
		if err := conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		sent, _ = conn.Write(make([]byte, 1<<20))
	}
	w.until("the sandbox is in use", func() bool { return w.inUse("a") })
	// The end does not wait for what is on its way.
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	w.until("the visit ends with the visitor", func() bool { return !w.inUse("a") })
}
