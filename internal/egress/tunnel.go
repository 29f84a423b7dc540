package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/relay"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// lingerTime is how long an answer that ends the stream waits for the
	// guest to stop sending, so that closing does not cut the answer off.
	lingerTime    = 500 * time.Millisecond
	maxStatusLine = 600
)

// tunnel carries a CONNECT.
func (s *stream) tunnel(w http.ResponseWriter, r *http.Request) {
	hostname, port, err := targetOf(r.Host, 0)
	if err != nil {
		badRequest(w, "Could not parse host from URL", "CONNECT takes host:port")
		return
	}
	f, policy := s.begin(ProtocolConnect), s.policy()
	up, d, err := s.dial(r.Context(), policy, hostname, port)
	if err != nil {
		s.refuse(w, f, d, err)
		return
	}
	s.carry(f, d, policy, up, func() (net.Conn, *bufio.Reader, error) {
		guest, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return nil, nil, err
		}
		_ = guest.SetDeadline(time.Time{})
		_, err = io.WriteString(guest, "HTTP/1.1 200 Connection established\r\n\r\n")
		return guest, rw.Reader, err
	})
}

// carry is a tunnel from its connection to its end. grant tells the guest that
// it stands, and returns its stream with what was read of it ahead.
func (s *stream) carry(f *flow, d Decision, policy sandbox.Policy, up net.Conn, grant func() (net.Conn, *bufio.Reader, error)) {
	defer up.Close()
	d.Protocol = f.about.Protocol
	f.open(d, policy, func() {
		s.conn.Close()
		up.Close()
	})
	guest, early, err := grant()
	if err != nil {
		s.log.Debug("taking over a guest's stream", "sandbox", s.box, "err", err)
		f.done(EndClosed)
		return
	}
	end := EndClosed
	splice(f, guest, early, up, func(from io.Reader, to io.Writer) error {
		err := s.opening(from, to, policy, d)
		if _, denied := asDenied(err); denied {
			end = EndDenied
		}
		return err
	})
	f.done(end)
}

// splice copies both ways until both directions have ended or one has failed,
// and counts the bytes to and from up. early holds what was read from the guest
// ahead of time. open carries the guest's first bytes; when it denies them, the
// guest is told in TLS.
func splice(f *flow, guest net.Conn, early *bufio.Reader, up net.Conn, open func(from io.Reader, to io.Writer) error) {
	done := make(chan struct{})
	var answered atomic.Bool // the host has said all
	var told atomic.Bool     // the guest is being told that it was denied
	go func() {
		defer close(done)
		_, err := relay.Copy(counted{guest, &f.received}, bare(up))
		if err == nil {
			answered.Store(true)
			err = closeWrite(guest)
		}
		if err != nil && !told.Load() {
			// The other direction cannot know; it may be waiting for a guest
			// that says nothing.
			guest.Close()
			up.Close()
		}
	}()
	from := io.MultiReader(io.LimitReader(early, int64(early.Buffered())), guest)
	to := counted{up, &f.sent}
	err := open(from, to)
	if _, denied := asDenied(err); denied {
		told.Store(true)
		up.Close()
		<-done
		_, _ = guest.Write(alertUnrecognizedName)
		_ = closeWrite(guest)
		_ = guest.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.Copy(io.Discard, bare(guest))
		guest.Close()
		return
	}
	if err == nil {
		err = copyRest(to, from, early, guest)
	}
	if err == nil && relay.Gone(bare(guest)) && !answered.Load() {
		// A program, or its whole sandbox, broke off. To the host that must not
		// look like the end of what it was sent.
		err = errBrokenOff
		abort(up)
	}
	if err == nil {
		err = closeWrite(up)
	}
	if err != nil {
		guest.Close()
		up.Close()
	}
	<-done
}

var errBrokenOff = errors.New("the program broke off")

// abort ends a connection with a reset, where it can.
func abort(c net.Conn) {
	if t, ok := bare(c).(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// copyRest copies what is left of the early bytes, then from the guest itself.
func copyRest(to io.Writer, from io.Reader, early *bufio.Reader, guest net.Conn) error {
	if n := int64(early.Buffered()); n > 0 {
		if _, err := io.CopyN(to, from, n); err != nil {
			return err
		}
	}
	_, err := relay.Copy(to, bare(guest))
	return err
}

// bare is the connection below what reads a request's header, of which nothing
// is left there any more.
func bare(c net.Conn) net.Conn {
	for {
		switch w := c.(type) {
		case *headerGuard:
			c = w.Conn
		case *replayed:
			if len(w.first) > 0 {
				return c
			}
			c = w.Conn
		default:
			return c
		}
	}
}

// closeWrite passes an end of stream on. A stream that cannot be half closed is
// closed.
func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// ruleHeader names the rule of a refusal, to a proxy that passes it on.
const ruleHeader = "X-Cubby-Egress-Rule"

// refuse answers a request that was denied, or allowed and then failed, and
// reports the decision.
func (s *stream) refuse(w http.ResponseWriter, f *flow, d Decision, err error) {
	if denied, ok := asDenied(err); ok {
		d = f.decided(denied)
		s.answer(w, http.StatusForbidden, denialLine(d), denialText(d), ruleHeader+": "+string(d.Rule))
		return
	}
	text := f.failed(d, err)
	s.answer(w, http.StatusBadGateway, "cubby: "+text, failureText(f.about.Protocol, text)+"\n")
}

func denialLine(d Decision) string {
	if d.Hint == "" {
		return "cubby: " + d.Reason
	}
	return "cubby: " + d.Reason + "; " + d.Hint
}

func denialText(d Decision) string {
	text := fmt.Sprintf("Host not allowed: %s\ncubby: egress to %s denied (rule %s): %s\n", d.Host, d.HostPort(), d.Rule, d.Reason)
	if d.Hint != "" {
		text += d.Hint + "\n"
	}
	return text
}

// failureText says that an allowed host could not be reached, in agentbox's
// words and then why.
func failureText(by Protocol, why string) string {
	if by == ProtocolConnect {
		return "Failed to connect: " + why + "\ncubby: " + why
	}
	return "Proxy error: " + why + "\ncubby: " + why
}

// failed reports an allowed request that got no connection, and says why.
func (f *flow) failed(d Decision, err error) string {
	f.fail(d)
	f.s.log.Debug("egress upstream", "sandbox", f.s.box, "host", d.Host, "err", err)
	if errs.KindOf(err) == errs.Internal {
		return "the connection to " + d.HostPort() + " broke"
	}
	return errs.Public(err).Message
}

// appendAnswer appends an answer of this proxy's own, after which the connection
// ends.
func appendAnswer(to []byte, code int, line, text string, headers ...string) []byte {
	return fmt.Appendf(to, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\nX-Cubby-Egress: %d\r\n%s\r\n%s",
		code, printable(line, maxStatusLine), len(text), code, strings.Join(append(headers, ""), "\r\n"), text)
}

// answer writes a refusal and ends the stream. It carries its reason in the
// status line too: that is all that pip and apt show of an answer.
func (s *stream) answer(w http.ResponseWriter, code int, line, text string, headers ...string) {
	guest, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, text, code)
		return
	}
	_ = guest.SetDeadline(time.Now().Add(headerTimeout))
	_, err = guest.Write(appendAnswer(nil, code, line, text, headers...))
	if err != nil || closeWrite(guest) != nil {
		return
	}
	_ = guest.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(rw, maxHeaderBytes))
}
