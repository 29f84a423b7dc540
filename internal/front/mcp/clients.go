package mcp

import (
	"net/http"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// clients knows when the protocol sessions of a principal were used. Clients
// go away without ending theirs, so the one that is idle longest gives way to
// a new one.
type clients struct {
	server *sdk.Server

	mu   sync.Mutex
	uses map[string]*use // by session; guarded by mu
}

// use is that of one session.
type use struct {
	last    time.Time
	calls   int // requests that are being answered
	streams int // the open streams of a client that is certainly there
}

func newClients(s *sdk.Server) *clients { return &clients{server: s, uses: make(map[string]*use)} }

// using notes a request of a session until done is called.
func (c *clients) using(session, method string) (done func()) {
	if session == "" {
		return func() {}
	}
	count := func(u *use, n int) {
		if u.last = time.Now(); method == http.MethodGet {
			u.streams += n
		} else {
			u.calls += n
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.uses[session]
	if u == nil {
		return func() {}
	}
	count(u, 1)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		count(u, -1)
	}
}

// began notes a new session.
func (c *clients) began(session string) {
	if session == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses[session] = &use{last: time.Now()}
}

// room ends the session that is idle longest when there is no place for one
// more. It reports whether there is one then: sessions that are being used stay.
func (c *clients) room() bool {
	live := map[string]*sdk.ServerSession{}
	for s := range c.server.Sessions() {
		live[s.ID()] = s
	}
	if len(live) < maxSessions {
		return true
	}
	c.mu.Lock()
	oldest := ""
	for id, u := range c.uses {
		if live[id] == nil {
			delete(c.uses, id)
			continue
		}
		if u.calls == 0 && (oldest == "" || u.idler(c.uses[oldest])) {
			oldest = id
		}
	}
	delete(c.uses, oldest)
	c.mu.Unlock()
	if oldest == "" {
		return false
	}
	_ = live[oldest].Close() // its client may be gone
	return true
}

// idler reports whether u gives way before another.
func (u *use) idler(other *use) bool {
	if (u.streams > 0) != (other.streams > 0) {
		return u.streams == 0
	}
	return u.last.Before(other.last)
}
