package guestd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/resolver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// policyLine asks the host about names, one after another, on a stream that it
// opens when there is something to ask and keeps for a while. What the host
// allowed on it holds as long as the stream stands: the host ends it when the
// policy changes, before whoever changed it hears so, and decides again when a
// program connects.
type policyLine struct {
	up *uplink

	mu      sync.Mutex
	conn    *net.UnixConn               // nil: there is none; guarded by mu
	answers *bufio.Reader               // guarded by mu
	allowed map[string]resolver.Verdict // on conn, by the name as it was asked for; guarded by mu
	idle    *time.Timer                 // closes conn; guarded by mu
}

const (
	policyIdle  = 10 * time.Second
	maxVerdict  = 1024 // bytes of an answer
	maxAllowed  = 1024 // verdicts
	askDeadline = 3 * time.Second
)

// ask is [resolver.Config.Ask].
func (l *policyLine) ask(ctx context.Context, name string) (resolver.Verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil { // it waited too long
		return resolver.Verdict{}, ctx.Err()
	}
	if l.conn != nil && !quiet(l.conn) {
		l.drop()
	}
	if v, ok := l.allowed[name]; ok {
		l.idle.Reset(policyIdle)
		return v, nil
	}
	kept := l.conn != nil
	v, err := l.askOnce(ctx, name)
	if err != nil && (kept || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
		// The host closes what is idle or older than its policy, and is away now
		// and then.
		v, err = l.askOnce(ctx, name)
	}
	return v, err
}

func (l *policyLine) askOnce(ctx context.Context, name string) (v resolver.Verdict, err error) {
	if l.conn == nil {
		if l.conn, err = l.up.dial(ctx, kindResolve); err != nil {
			l.conn = nil
			return v, err
		}
		l.answers, l.allowed = bufio.NewReaderSize(l.conn, maxVerdict), make(map[string]resolver.Verdict)
		conn := l.conn
		l.idle = time.AfterFunc(policyIdle, func() { l.close(conn) })
	}
	l.idle.Reset(policyIdle)
	defer func() {
		if err != nil {
			l.drop()
		}
	}()
	_ = l.conn.SetDeadline(time.Now().Add(askDeadline))
	if _, err = io.WriteString(l.conn, name+"\n"); err != nil {
		return v, err
	}
	line, err := l.answers.ReadSlice('\n')
	if err != nil {
		return v, err
	}
	if v, err = parseVerdict(string(line)); err != nil || !v.Allow {
		return v, err // each denial is the host's to tell of
	}
	if len(l.allowed) >= maxAllowed {
		clear(l.allowed)
	}
	l.allowed[name] = v
	return v, nil
}

// close ends a stream that nothing was asked on for a while.
func (l *policyLine) close(conn *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == conn {
		l.drop()
	}
}

// drop ends the stream, and what was allowed on it.
func (l *policyLine) drop() {
	l.idle.Stop()
	_ = l.up.hangUp(l.conn)
	l.conn, l.answers, l.allowed = nil, nil, nil
}

// quiet reports whether a connection stands and nothing has come on it.
func quiet(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	waiting := false
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		waiting = errors.Is(err, unix.EAGAIN)
	})
	return err == nil && waiting
}

// parseVerdict reads an answer of the host: "allow NAME", or "deny WHY".
func parseVerdict(line string) (resolver.Verdict, error) {
	word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	switch {
	case word == sandbox.ResolveAllow && rest != "":
		return resolver.Verdict{Allow: true, Name: rest}, nil
	case word == sandbox.ResolveDeny:
		return resolver.Verdict{Why: rest}, nil
	}
	return resolver.Verdict{}, errors.New("the host does not answer about names")
}
