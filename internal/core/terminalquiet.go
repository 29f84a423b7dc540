package core

import (
	"bytes"
	"slices"
	"strings"
)

// quieter takes the questions out of terminal output that is shown again: what
// kind of terminal are you, where is the cursor, which colours are there. Who
// asked has had its answer, or gone without; a second one would be typed into
// whatever reads now.
//
// It changes the last byte of a question to CAN, which makes a terminal forget
// the sequence, so that no offset moves. Pieces may be cut anywhere.
type quieter struct {
	state  quietState
	string byte   // which string: ']' or 'P'
	body   []byte // the beginning of the sequence, without its introducer
}

type quietState int

const (
	quietGround quietState = iota
	quietEscape            // after ESC
	quietCSI
	quietString       // of OSC or DCS
	quietStringEscape // in one, after ESC
	quietLeft         // the backslash of a string's end is left
)

const (
	can = 0x18
	bel = 0x07
	esc = 0x1b
	// quietBody is as much of a sequence as shows what it is.
	quietBody = 64
)

// quiet changes b.
func (q *quieter) quiet(b []byte) {
	for i, c := range b {
		b[i] = q.next(c)
	}
}

// next returns what to show instead of c.
func (q *quieter) next(c byte) byte {
	if c == can || c == 0x1a { // ends every sequence
		q.state = quietGround
		return c
	}
	switch q.state {
	case quietGround:
		if c == esc {
			q.state = quietEscape
		}
	case quietEscape:
		return q.escape(c)
	case quietCSI:
		return q.csi(c)
	case quietString:
		switch c {
		case bel:
			return q.end(c)
		case esc:
			q.state = quietStringEscape
			if q.asks() {
				q.state = quietLeft
				return can
			}
		default:
			q.keep(c)
		}
	case quietStringEscape:
		if c != '\\' {
			return q.escape(c) // any other sequence ends the string too
		}
		q.state = quietGround
	case quietLeft:
		q.state = quietGround
		if c == '\\' {
			return 0 // it would be text now
		}
	}
	return c
}

func (q *quieter) escape(c byte) byte {
	q.body = q.body[:0]
	switch c {
	case '[':
		q.state = quietCSI
	case ']', 'P':
		q.state, q.string = quietString, c
	case esc:
		q.state = quietEscape
	case 'Z': // identify yourself
		q.state = quietGround
		return can
	default:
		q.state = quietGround
	}
	return c
}

func (q *quieter) csi(c byte) byte {
	switch {
	case c == esc:
		q.state = quietEscape
	case c >= 0x40 && c <= 0x7e:
		q.state = quietGround
		if csiAsks(string(q.body), c) {
			return can
		}
	default:
		q.keep(c)
	}
	return c
}

func (q *quieter) keep(c byte) {
	if len(q.body) < quietBody {
		q.body = append(q.body, c)
	}
}

// end ends a string at its last byte.
func (q *quieter) end(c byte) byte {
	q.state = quietGround
	if q.asks() {
		return can
	}
	return c
}

// asks reports whether the string is a question.
func (q *quieter) asks() bool {
	if q.string == 'P' {
		return bytes.HasPrefix(q.body, []byte("$q")) || bytes.HasPrefix(q.body, []byte("+q"))
	}
	return bytes.Contains(q.body, []byte(";?"))
}

// csiAsks reports whether a control sequence is a question.
func csiAsks(params string, final byte) bool {
	switch final {
	case 'c', 'x': // device attributes, parameters
		return true
	case 'n': // status, position
		return !strings.HasPrefix(params, ">")
	case 'p': // is a mode set
		return strings.HasSuffix(params, "$")
	case 'q': // version
		return strings.HasPrefix(params, ">")
	case 'u': // keyboard modes
		return strings.HasPrefix(params, "?")
	case 't': // window
		return slices.Contains([]string{"11", "13", "14", "15", "16", "18", "19", "20", "21"}, strings.SplitN(params, ";", 2)[0])
	}
	return false
}
