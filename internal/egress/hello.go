package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	// The first byte of a TLS record (RFC 8446, 5.1) is one of these. A
	// connection begins with a handshake; servers pass over warnings before it.
	firstRecordType, lastRecordType = 0x14, 0x18
	// maxHello bounds a ClientHello with its record headers; crypto/tls
	// refuses longer messages as well.
	maxHello = 128 << 10
)

// alertUnrecognizedName is the fatal alert to a ClientHello (RFC 6066, 3).
var alertUnrecognizedName = []byte{0x15, 0x03, 0x03, 0, 2, 2, 112}

// hello reads the start of what a client sends: if it is TLS, the whole
// ClientHello. What it read is to be sent on in any case. isTLS is false for
// every other protocol, and name is "" when the client names no server. It is
// errs.Invalid for what begins as TLS and is none.
func hello(from io.Reader) (read []byte, name string, isTLS bool, err error) {
	var seen bytes.Buffer
	first := make([]byte, 1)
	if _, err := io.ReadFull(from, first); err != nil {
		return nil, "", false, err
	}
	seen.Write(first)
	if first[0] < firstRecordType || first[0] > lastRecordType {
		return seen.Bytes(), "", false, nil
	}
	var info *tls.ClientHelloInfo
	stop := errors.New("enough")
	source := &endNoter{Reader: from}
	rest := io.TeeReader(io.LimitReader(source, maxHello), &seen)
	err = tls.Server(helloConn{io.MultiReader(bytes.NewReader(first), rest)}, &tls.Config{
		MinVersion: tls.VersionTLS10, //nolint:gosec // nothing is negotiated here
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			info = i
			return nil, stop
		},
	}).Handshake()
	if info == nil {
		// Not by the error: a hello beyond the bound and an alert that closes
		// look like an end, and more would follow unread.
		if source.ended {
			return seen.Bytes(), "", true, io.ErrUnexpectedEOF
		}
		return seen.Bytes(), "", true, errs.E(errs.Invalid, "the connection begins as TLS and is none").Because(err)
	}
	return seen.Bytes(), info.ServerName, true, nil
}

// endNoter notes that its reader has ended.
type endNoter struct {
	io.Reader
	ended bool
}

func (r *endNoter) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.ended = r.ended || errors.Is(err, io.EOF)
	return n, err
}

// helloConn lets crypto/tls read a ClientHello and answer nothing.
type helloConn struct{ io.Reader }

func (helloConn) Write([]byte) (int, error)        { return 0, io.ErrClosedPipe }
func (helloConn) Close() error                     { return nil }
func (helloConn) LocalAddr() net.Addr              { return nil }
func (helloConn) RemoteAddr() net.Addr             { return nil }
func (helloConn) SetDeadline(time.Time) error      { return nil }
func (helloConn) SetReadDeadline(time.Time) error  { return nil }
func (helloConn) SetWriteDeadline(time.Time) error { return nil }

// checkServerName denies a TLS connection that was allowed for one host and
// asks for another: servers of many names would answer for the other one. A
// client may name none, and an address has no name to compare.
func checkServerName(d Decision, name string) Decision {
	if name == "" {
		return d
	}
	target, err := parseHost(d.Host)
	if err != nil || target.addr.IsValid() {
		return d
	}
	if asked, err := parseHost(name); err == nil && asked.name == target.name {
		return d
	}
	return d.denied(RuleServerName, "a TLS connection to "+d.Host+" asks for "+printable(name, 80),
		"connect to the name that the TLS server name says")
}
