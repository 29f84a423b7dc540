package guestd

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

// endsIn is an agent whose host follows an exec and has another request under way,
// and that is told to end.
func endsIn(t *testing.T) (s *Server, stream net.Conn, ended <-chan struct{}) {
	s = New(Config{Boot: &guestv1.Boot{}})
	stream, other := connection(t), connection(t)
	for _, c := range []net.Conn{stream, other} {
		s.requests.note(c, http.StateActive)
	}
	s.requests.owe(withConn(t.Context(), stream))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.endAll(context.Background(), 0)
	}()
	synctest.Wait()
	return s, stream, done
}

func connection(t *testing.T) net.Conn {
	c, other := net.Pipe()
	t.Cleanup(func() {
		c.Close()
		other.Close()
	})
	return c
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A driver kills the agent once that has answered Shutdown. The exits of commands
// that had just ended were lost then.
func TestShutdownBeforeTheExitsAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stream, ended := endsIn(t)
		if isClosed(ended) {
			t.Error("the end did not wait for the exit of an exec")
		}
		s.requests.note(stream, http.StateIdle)
		synctest.Wait()
		if !isClosed(ended) {
			t.Error("the end waits on after all exits")
		}
		<-ended
	})
}

func TestShutdownOfAHostThatReadsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, ended := endsIn(t)
		began := time.Now()
		<-ended
		if took := time.Since(began); took > deliverWithin {
			t.Errorf("the end waited for %v, want at most %v", took, deliverWithin)
		}
	})
}
