package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
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
	recordHandshake                 = 0x16
	recordHeader                    = 5        // bytes: type, version, size
	maxRecord                       = 18 << 10 // without the header (RFC 5246, 6.2.3)
	messageHeader                   = 4        // bytes: type, size
	messageHello                    = 1        // a ClientHello
	// maxHello bounds a ClientHello with its record headers: a guest that never
	// ends one holds as much. Clients send a twentieth of it.
	maxHello = 32 << 10
)

// alertUnrecognizedName is the fatal alert to a ClientHello (RFC 6066, 3).
var alertUnrecognizedName = []byte{0x15, 0x03, 0x03, 0, 2, 2, 112}

// hello reads the start of what a client sends: if it is TLS, the records of the
// whole ClientHello and nothing beyond them. What it read is to be sent on in
// any case. info is nil for every other protocol. It is errs.Invalid for what
// begins as TLS and is none, and for a ClientHello with more behind it in its
// record, which clients do not send.
func hello(from io.Reader) (read []byte, info *tls.ClientHelloInfo, err error) {
	var seen bytes.Buffer
	first := make([]byte, 1)
	if _, err := io.ReadFull(from, first); err != nil {
		return nil, nil, err
	}
	seen.Write(first)
	if first[0] < firstRecordType || first[0] > lastRecordType {
		return seen.Bytes(), nil, nil
	}
	stop := errors.New("enough")
	source := &endNoter{Reader: from}
	rest := io.TeeReader(io.LimitReader(source, maxHello), &seen)
	records := &recordReader{from: io.MultiReader(bytes.NewReader(first), rest)}
	err = tls.Server(helloConn{records}, &tls.Config{
		MinVersion: tls.VersionTLS10, //nolint:gosec // nothing is negotiated here
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			info = i
			return nil, stop
		},
	}).Handshake()
	switch {
	case info != nil && records.whole():
		return seen.Bytes(), info, nil
	// Not by the error: a hello beyond the bound and an alert that closes
	// look like an end, and more would follow unread.
	case info == nil && source.ended:
		return seen.Bytes(), nil, io.ErrUnexpectedEOF
	}
	return seen.Bytes(), nil, errs.E(errs.Invalid, "the connection begins as TLS and is none").Because(err)
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

// recordReader reads records of TLS: no read goes beyond the record that it is
// about, so that what follows the last one stays unread.
type recordReader struct {
	from io.Reader
	head []byte // of a record, as far as it was read
	left int    // of a record behind its header

	handshake bool
	message   []byte // the header of the first message
	sent      int    // bytes of all messages
}

func (r *recordReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		n, err := r.from.Read(p[:min(len(p), recordHeader-len(r.head))])
		if r.head = append(r.head, p[:n]...); len(r.head) == recordHeader {
			r.handshake, r.left = r.head[0] == recordHandshake, int(binary.BigEndian.Uint16(r.head[3:]))
			r.head = r.head[:0]
		}
		return n, err
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	if r.handshake {
		r.message = append(r.message, p[:min(n, messageHeader-len(r.message))]...)
		r.sent += n
	}
	return n, err
}

// whole reports whether the records hold one message and nothing else.
func (r *recordReader) whole() bool {
	return r.left == 0 && len(r.head) == 0 && len(r.message) == messageHeader && r.sent == messageHeader+messageSize(r.message)
}
