package replay

import (
	"bytes"
	"slices"
	"strings"
)

// Filter strips queries from terminal output that is shown again: what kind
// of terminal are you, where is the cursor, which colours are there. The program
// that asked has had its answer, or gone without; a second one would be typed
// into whatever reads now. The zero value is at the beginning of the output.
//
// It changes the last byte of a query to CAN, which makes a terminal forget the
// sequence, so that no offset moves. Pieces may be cut anywhere.
type Filter struct {
	state  filterState
	string byte   // which string: ']' or 'P'
	body   []byte // the beginning of the sequence, without its introducer
}

// filterState is where the filter is in a sequence.
type filterState int

const (
	atGround    filterState = iota
	afterEscape             // after ESC
	inCSI
	inString     // of OSC or DCS
	stringEscape // in one, after ESC
	stringLeft   // the backslash of a string's end is left
)

const (
	can = 0x18
	bel = 0x07
	esc = 0x1b
	// maxBody is as much of a sequence as shows what it is.
	maxBody = 64
)

// Strip changes the next piece of the output in place.
func (q *Filter) Strip(b []byte) {
	for i, c := range b {
		b[i] = q.next(c)
	}
}

// next returns what to show instead of c.
func (q *Filter) next(c byte) byte {
	if c == can || c == 0x1a { // ends every sequence
		q.state = atGround
		return c
	}
	switch q.state {
	case atGround:
		if c == esc {
			q.state = afterEscape
		}
	case afterEscape:
		return q.escape(c)
	case inCSI:
		return q.csi(c)
	case inString:
		switch c {
		case bel:
			return q.end(c)
		case esc:
			q.state = stringEscape
			if q.asks() {
				q.state = stringLeft
				return can
			}
		default:
			q.keep(c)
		}
	case stringEscape:
		if c != '\\' {
			return q.escape(c) // any other sequence ends the string too
		}
		q.state = atGround
	case stringLeft:
		q.state = atGround
		if c == '\\' {
			return 0 // it would be text now
		}
		return q.next(c)
	}
	return c
}

func (q *Filter) escape(c byte) byte {
	q.body = q.body[:0]
	switch c {
	case '[':
		q.state = inCSI
	case ']', 'P':
		q.state, q.string = inString, c
	case esc:
		q.state = afterEscape
	case 'Z': // identify yourself
		q.state = atGround
		return can
	default:
		q.state = atGround
	}
	return c
}

func (q *Filter) csi(c byte) byte {
	switch {
	case c == esc:
		q.state = afterEscape
	case c >= 0x40 && c <= 0x7e:
		q.state = atGround
		if csiAsks(string(q.body), c) {
			return can
		}
	default:
		q.keep(c)
	}
	return c
}

func (q *Filter) keep(c byte) {
	if len(q.body) < maxBody {
		q.body = append(q.body, c)
	}
}

// end ends a string at its last byte.
func (q *Filter) end(c byte) byte {
	q.state = atGround
	if q.asks() {
		return can
	}
	return c
}

// asks reports whether the string is a query.
func (q *Filter) asks() bool {
	if q.string == 'P' {
		return bytes.HasPrefix(q.body, []byte("$q")) || bytes.HasPrefix(q.body, []byte("+q"))
	}
	return bytes.Contains(q.body, []byte(";?"))
}

// csiAsks reports whether a control sequence is a query.
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
