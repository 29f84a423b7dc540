package egress

import (
	"bytes"
	"errors"
	"net"
	"sync"
)

// maxHeaderLines bounds the lines of one header. A header's bytes are bounded
// too, but a field takes far more memory than the four bytes that it can be.
const maxHeaderLines = 256

// statusStart is the size of "HTTP/1.1 200".
const statusStart = 12

var errHeaderLines = errors.New("a header with too many lines")

// headerGuard is a connection on which headers come in, whose lines it counts
// while they are read: a header that is never finished must not cost more than
// one that is.
type headerGuard struct {
	net.Conn
	answers bool // the headers are of answers, and those of interim ones have another behind them

	mu    sync.Mutex
	done  bool // the header ended; what follows is a body
	lines int
	over  bool   // too many lines came; nothing is read any more
	empty bool   // nothing but a carriage return since the last line
	start []byte // of the header's first line, as long as statusStart
}

// expect says that a header comes next.
func (g *headerGuard) expect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin()
}

func (g *headerGuard) begin() {
	g.done, g.lines, g.empty, g.start = false, 0, false, g.start[:0]
}

func (g *headerGuard) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	// For good: bufio forgets an error that comes after the first half of a
	// line, and would take what follows for the rest of it.
	if g.over = g.over || !g.count(p[:n]); g.over {
		return 0, errHeaderLines
	}
	return n, err
}

// count reports whether the header is within its bound.
func (g *headerGuard) count(b []byte) bool {
	for !g.done && len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		if g.answers && g.lines == 0 {
			line := b
			if end >= 0 {
				line = b[:end]
			}
			g.start = append(g.start, line[:min(len(line), statusStart-len(g.start))]...)
		}
		if end < 0 {
			g.empty = g.empty && len(bytes.Trim(b, "\r")) == 0
			return true
		}
		g.done = g.lines > 0 && g.empty && len(bytes.Trim(b[:end], "\r")) == 0
		if g.lines++; g.lines > maxHeaderLines && !g.done {
			return false
		}
		g.empty = true
		b = b[end+1:]
		if g.done && interim(g.start) {
			g.begin()
		}
	}
	return true
}

// interim reports whether an answer that starts so has another one behind it.
func interim(start []byte) bool {
	return len(start) == statusStart && start[statusStart-3] == '1' && !bytes.HasSuffix(start, []byte("101"))
}

// CloseWrite ends this direction.
func (g *headerGuard) CloseWrite() error { return closeWrite(g.Conn) }
