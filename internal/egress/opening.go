package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	extensionEarlyData = 42
	// maxSkipped bounds what a server passes over on its way to a second hello
	// when no early data was offered; it is four times what servers take.
	maxSkipped = 64 << 10
	// maxHelloMessage is more than any server takes for a ClientHello.
	maxHelloMessage = 1 << 18
)

// opening carries what the guest sends first through a tunnel, until it can
// name no TLS server in clear any more. The error is a *deniedError, or ends
// the tunnel.
func (s *stream) opening(from io.Reader, to io.Writer, policy sandbox.Policy, d Decision) error {
	var begun []byte // of a hello
	early := false   // the guest offered early data, of which there can be any amount before a second hello
	for {
		read, info, err := hello(io.MultiReader(bytes.NewReader(begun), from))
		switch {
		case errors.Is(err, errs.Invalid):
			d = d.denied(RuleServerName, "a connection to "+d.Host+" begins as TLS and is none", "")
		case err != nil:
			return sendLast(to, read, err)
		case info != nil:
			d = s.checkServerName(policy, d, info.ServerName)
		}
		if !d.Allow {
			s.onDecision(s.box, d)
			return &deniedError{d}
		}
		if _, err := to.Write(read); err != nil || info == nil {
			return err
		}
		if !slices.ContainsFunc(info.SupportedVersions, func(v uint16) bool { return v >= tls.VersionTLS13 }) {
			return nil
		}
		early = early || slices.Contains(info.Extensions, extensionEarlyData)
		if begun, err = nextHello(from, to, early); begun == nil {
			return err
		}
	}
}

// nextHello carries a guest's records until one that begins a ClientHello, and
// returns what it read of that one; nil when no server takes one any more. A
// server can ask for a second ClientHello (RFC 8446, 4.1.4), and some go by the
// name in that one.
func nextHello(from io.Reader, to io.Writer, early bool) ([]byte, error) {
	for left := maxSkipped; early || left > 0; {
		record := make([]byte, recordHeader)
		if n, err := io.ReadFull(from, record); err != nil {
			return nil, sendLast(to, record[:n], err)
		}
		size := int(binary.BigEndian.Uint16(record[3:]))
		if size > maxRecord {
			return record, nil // to be refused
		}
		record = append(record, make([]byte, size)...)
		if n, err := io.ReadFull(from, record[recordHeader:]); err != nil {
			return nil, sendLast(to, record[:recordHeader+n], err)
		}
		if record[0] == recordHandshake && beginsHello(record[recordHeader:]) {
			return record, nil
		}
		_, err := to.Write(record)
		if err != nil || record[0] == recordHandshake && size > 0 {
			return nil, err // another message, or one that is encrypted
		}
		left -= len(record)
	}
	return nil, nil
}

// beginsHello reports whether a record of a handshake is the beginning of a
// ClientHello, or the whole of it. Of what is encrypted nearly nothing looks so.
func beginsHello(body []byte) bool {
	if len(body) < messageHeader {
		return len(body) > 0 && body[0] == messageHello
	}
	size := messageSize(body)
	return body[0] == messageHello && size <= maxHelloMessage
}

// messageSize is the size in the header of a handshake's message.
func messageSize(b []byte) int { return int(b[1])<<16 | int(b[2])<<8 | int(b[3]) }

// sendLast sends what a guest sent last. A guest that ends early is no failure.
func sendLast(to io.Writer, last []byte, err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	_, err = to.Write(last)
	return err
}

// checkServerName denies a TLS connection that was allowed for one host and
// asks for another: servers of many names would answer for the other one. A
// client may name none. An address has no name to compare, but what is denied by
// name is so at every address.
func (s *stream) checkServerName(policy sandbox.Policy, d Decision, name string) Decision {
	if name == "" {
		return d
	}
	target, err := parseHost(d.Host)
	if err != nil {
		return d
	}
	if target.addr.IsValid() {
		if named := s.eval.Decide(policy, name, d.Port); named.Rule == RuleDeny {
			return d.denied(RuleDeny, "a TLS connection to "+d.Host+" asks for "+named.Host+", which is denied", "")
		}
		return d
	}
	if asked, err := parseHost(name); err == nil && asked.name == target.name {
		return d
	}
	return d.denied(RuleServerName, "a TLS connection to "+d.Host+" asks for "+printable(name, 80),
		"connect to the name that the TLS server name says")
}
