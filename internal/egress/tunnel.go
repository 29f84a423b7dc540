package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
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
		badRequest(w, "CONNECT takes host:port")
		return
	}
	up, d, err := s.dial(r.Context(), hostname, port)
	if err != nil {
		s.refuse(w, d, err)
		return
	}
	defer up.Close()
	s.onDecision(s.box, d)

	guest, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.log.Debug("taking over a guest's stream", "sandbox", s.box, "err", err)
		return
	}
	_ = guest.SetDeadline(time.Time{})
	if _, err := io.WriteString(guest, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	splice(guest, rw.Reader, up, func(from io.Reader) ([]byte, error) { return s.opening(from, d) })
}

// opening reads what the guest sends first through a tunnel. An error ends the
// tunnel; the bytes beside it are the guest's last ones.
func (s *stream) opening(from io.Reader, d Decision) ([]byte, error) {
	read, name, isTLS, err := hello(from)
	switch {
	case errors.Is(err, errs.Invalid):
		d = d.denied(RuleServerName, "a connection to "+d.Host+" begins as TLS and is none", "")
	case err != nil || !isTLS:
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil // a guest that ends early is no failure
		}
		return read, err
	default:
		d = checkServerName(d, name)
	}
	if d.Allow {
		return read, nil
	}
	s.onDecision(s.box, d)
	return alertUnrecognizedName, &deniedError{d}
}

// splice copies both ways until both directions have ended or one has failed.
// early holds what was read from the guest ahead of time. open reads the
// guest's first bytes and returns what is sent on; when it denies them, what it
// returns is the guest's answer.
func splice(guest net.Conn, early *bufio.Reader, up net.Conn, open func(io.Reader) ([]byte, error)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := io.Copy(guest, up)
		if err == nil {
			err = closeWrite(guest)
		}
		if err != nil {
			// The other direction cannot know; it may be waiting for a guest
			// that says nothing.
			guest.Close()
			up.Close()
		}
	}()
	from := io.MultiReader(io.LimitReader(early, int64(early.Buffered())), guest)
	first, err := open(from)
	if _, denied := asDenied(err); denied {
		_, _ = guest.Write(first)
	} else if err == nil {
		_, err = up.Write(first)
	}
	if err == nil {
		_, err = copyRest(up, from, early, guest)
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

// copyRest copies what is left of the early bytes, then from the guest itself,
// which the kernel can do without a copy in memory.
func copyRest(to net.Conn, from io.Reader, early *bufio.Reader, guest net.Conn) (int64, error) {
	if n := int64(early.Buffered()); n > 0 {
		if copied, err := io.CopyN(to, from, n); err != nil {
			return copied, err
		}
	}
	return io.Copy(to, guest)
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
func (s *stream) refuse(w http.ResponseWriter, d Decision, err error) {
	denied, ok := asDenied(err)
	if ok {
		d = denied
	}
	s.onDecision(s.box, d)
	if ok {
		s.answer(w, http.StatusForbidden, denialLine(d), denialText(d), ruleHeader+": "+string(d.Rule))
		return
	}
	s.log.Debug("egress upstream", "sandbox", s.box, "host", d.Host, "err", err)
	text := errs.Public(err).Message
	if errs.KindOf(err) == errs.Internal {
		text = "the connection to " + d.HostPort() + " broke"
	}
	s.answer(w, http.StatusBadGateway, "cubby: "+text, "cubby: "+text+"\n")
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

// answer writes a refusal and ends the stream. It carries its reason in the
// status line too: that is all that pip and apt show of an answer.
func (s *stream) answer(w http.ResponseWriter, code int, line, text string, headers ...string) {
	guest, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, text, code)
		return
	}
	_ = guest.SetDeadline(time.Now().Add(headerTimeout))
	_, err = fmt.Fprintf(guest, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\nX-Cubby-Egress: %d\r\n%s\r\n%s",
		code, printable(line, maxStatusLine), len(text), code, strings.Join(append(headers, ""), "\r\n"), text)
	if err != nil || closeWrite(guest) != nil {
		return
	}
	_ = guest.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(rw, maxHeaderBytes))
}
