package daemon

import (
	"net"
	"net/http"
	"sync"
)

// freshConns knows the connections that have not carried a request yet.
// Clients open some ahead of need, and http.Server.Shutdown waits five seconds
// for each of them.
type freshConns struct {
	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu
	done  bool              // new ones are closed at once; guarded by mu
}

// note is an http.Server.ConnState.
func (f *freshConns) note(c net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(f.conns, c)
	case f.done:
		_ = c.Close() // it carried nothing
	default:
		if f.conns == nil {
			f.conns = map[net.Conn]bool{}
		}
		f.conns[c] = true
	}
}

// close ends those that there are and those that will come.
func (f *freshConns) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = true
	for c := range f.conns {
		_ = c.Close() // it carried nothing
	}
}
