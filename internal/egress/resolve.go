package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// resolveIdle is more than the agent keeps a stream that it asks nothing on.
	resolveIdle = time.Minute
	// A name that is asked for again at once is one denial: programs ask for
	// its IPv4 address, its IPv6 address, and then once more.
	sameDenial   = time.Second
	rememberedAt = 64 // denials
	maxReason    = 300
)

// resolve answers the agent's questions about names. Nothing is looked up: a
// name that is allowed may not exist, and no name leaves the host before a
// program connects to it. What was allowed holds as long as the stream stands.
func (s *stream) resolve(context.Context) {
	defer s.questions.add(s.box, s.conn)()
	lines := bufio.NewReaderSize(io.Reader(s.conn), 2*maxNameLength)
	told := make(map[string]time.Time)
	for {
		_ = s.conn.SetDeadline(time.Now().Add(resolveIdle))
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		d := s.eval.Decide(s.policy(), strings.TrimSuffix(string(line), "\n"), 0)
		answer := sandbox.ResolveAllow + " " + d.Host
		switch {
		case d.Allow && isAddress(d.Host):
			answer = sandbox.ResolveDeny + " " + string(RuleName) + ": " + d.Host + " is an address and no name: connect to it"
		case !d.Allow:
			s.deniedName(told, d)
			answer = sandbox.ResolveDeny + " " + printable(string(d.Rule)+": "+d.Reason, maxReason)
		}
		if _, err := io.WriteString(s.conn, answer+"\n"); err != nil {
			return
		}
	}
}

func isAddress(name string) bool {
	h, err := parseHost(name)
	return err == nil && h.addr.IsValid()
}

// deniedName reports that a name was denied, once for several questions in a
// row.
func (s *stream) deniedName(told map[string]time.Time, d Decision) {
	now := time.Now()
	if now.Sub(told[d.Host]) < sameDenial {
		return
	}
	if len(told) >= rememberedAt {
		clear(told)
	}
	told[d.Host] = now
	d.Protocol = ProtocolDNS
	s.onDecision(s.box, d)
}

// PolicyChanged takes back what agents of the sandbox were told about names. The
// policy that Serve asks for must be the new one already.
func (p *Proxy) PolicyChanged(box sandbox.UID) { p.questions.end(box) }

// questions are the open streams of [sandbox.DoorResolve], by sandbox.
type questions struct {
	mu   sync.Mutex
	open map[sandbox.UID]map[net.Conn]struct{}
}

// add adds one until the returned function is called.
func (q *questions) add(box sandbox.UID, conn net.Conn) (remove func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		q.open = make(map[sandbox.UID]map[net.Conn]struct{})
	}
	if q.open[box] == nil {
		q.open[box] = make(map[net.Conn]struct{})
	}
	q.open[box][conn] = struct{}{}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if delete(q.open[box], conn); len(q.open[box]) == 0 {
			delete(q.open, box)
		}
	}
}

// end closes those of a sandbox: its agent sees that before it sees anything
// that is done after end has returned.
func (q *questions) end(box sandbox.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for conn := range q.open[box] {
		_ = conn.Close()
	}
}
