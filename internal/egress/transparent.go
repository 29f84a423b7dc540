package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Records of TLS with a fatal alert (RFC 8446, 6.2): access_denied says that the
// policy denies the host, internal_error that it is allowed and was not reached.
var (
	alertAccessDenied  = []byte{21, 3, 1, 0, 2, 2, 49}
	alertInternalError = []byte{21, 3, 1, 0, 2, 2, 80}
)

const recordVersion = 3 // the first byte of the version in every record of TLS

// firstBytes is how long a program may take to show what it speaks. One that
// waits for the host to speak first is kept waiting that long.
const firstBytes = 250 * time.Millisecond

// maxTarget bounds the line that begins a connection: a name, a port and the end.
const maxTarget = maxNameLength + len("[]:65535\n")

// transparent carries a connection that a program made by itself. The program
// has sent nothing yet that says where to; the agent says it.
func (s *stream) transparent(ctx context.Context) {
	_ = s.conn.SetDeadline(time.Now().Add(headerTimeout))
	hostname, port, err := readTarget(s.conn)
	if err != nil {
		return
	}
	_ = s.conn.SetDeadline(time.Time{}) // the dial has its own bounds
	f, policy := s.begin(ProtocolTransparent), s.policy()
	up, d, err := s.dial(ctx, policy, hostname, port)
	if err != nil {
		s.refuseProgram(f, d, err)
		return
	}
	s.carry(f, d, policy, up, func() (net.Conn, *bufio.Reader, error) {
		_, err := s.conn.Write([]byte{sandbox.ConnectGranted})
		return s.conn, bufio.NewReader(strings.NewReader("")), err
	})
}

// readTarget reads the line of a [sandbox.DoorConnect], and nothing beyond it.
func readTarget(from io.Reader) (hostname string, port int, err error) {
	line := make([]byte, 0, maxTarget)
	for one := make([]byte, 1); ; line = append(line, one[0]) {
		if _, err := io.ReadFull(from, one); err != nil {
			return "", 0, err
		}
		if one[0] == '\n' {
			return targetOf(string(line), 0)
		}
		if len(line) == maxTarget {
			return "", 0, errs.E(errs.Invalid, "malformed target")
		}
	}
}

// refuseProgram tells a program that its connection was denied, or allowed and
// then failed, and reports the decision.
func (s *stream) refuseProgram(f *flow, d Decision, err error) {
	if denied, ok := asDenied(err); ok {
		f.decided(denied)
		tellProgram(s.conn, http.StatusForbidden, denialText(denied))
		return
	}
	tellProgram(s.conn, http.StatusBadGateway, failureText(ProtocolHTTP, f.failed(d, err))+"\n")
}

// tellProgram ends a stream with what a program that knows of no proxy
// understands: one that speaks HTTP gets an answer, one that speaks TLS an alert,
// and any other sees its connection reset.
func tellProgram(conn net.Conn, code int, text string) {
	_ = conn.SetDeadline(time.Now().Add(firstBytes))
	answer := []byte{sandbox.ConnectRefused}
	from := bufio.NewReaderSize(conn, maxHeaderBytes)
	first, _ := from.Peek(2)
	switch {
	case len(first) == 2 && first[0] == recordHandshake && first[1] == recordVersion:
		alert := alertInternalError
		if code == http.StatusForbidden {
			alert = alertAccessDenied
		}
		answer = append(answer, alert...)
	case beginsRequest(from):
		answer = appendAnswer(answer, code, http.StatusText(code), text)
	}
	_ = conn.SetDeadline(time.Now().Add(lingerTime))
	_, err := conn.Write(answer)
	if err != nil || closeWrite(conn) != nil || len(answer) == 1 {
		return
	}
	_, _ = io.Copy(io.Discard, from)
}

// beginsRequest reports whether a program sends the line that begins a request
// of HTTP/1.
func beginsRequest(from *bufio.Reader) bool {
	line, err := from.ReadSlice('\n')
	if err != nil {
		return false
	}
	method, rest, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), " ")
	_, version, ok2 := strings.Cut(rest, " ")
	return ok && ok2 && method != "" && strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == "" && strings.HasPrefix(version, "HTTP/1.")
}
