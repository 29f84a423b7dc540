package jupyter

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"unicode/utf8"

	"github.com/go-zeromq/zmq4"
)

// Bounds of what is kept of a message, in bytes. Of a larger content its
// beginning is, so that one print too many costs what it printed and not the
// kernel.
const (
	readBuffer = 16 << 10
	maxPart    = 1 << 20 // header, parent, metadata
	maxContent = 24 << 20
	keptOfMore = 8 << 20
)

// The parts of a message behind the delimiter.
const (
	partSignature = iota
	partHeader
	partParent
	partMetadata
	partContent
	partCount
)

// receive returns the next message. errMalformed and errSignature are about
// this one alone.
func (s *socket) receive(k signer) (message, error) {
	var (
		parts   [partCount][]byte
		next    = -1 // part that comes next; -1: what comes before them
		cut     int64
		damaged bool
		mac     = hmac.New(sha256.New, k)
	)
	for frames := 1; ; frames++ {
		flags, size, err := s.frame()
		if err != nil {
			return message{}, err
		}
		if frames > maxFrames {
			return message{}, errTooLarge
		}
		if flags&flagCommand != 0 {
			if err := s.command(size); err != nil {
				return message{}, err
			}
			frames = 0
			continue
		}
		body, left, err := s.body(size, bound(next))
		if err != nil {
			return message{}, err
		}
		switch {
		case next < 0 && left == 0 && string(body) == delimiter:
			next = 0
		case next >= 0 && next < partCount:
			parts[next] = body
			if next != partSignature {
				mac.Write(body)
			}
			if left > 0 && next != partContent {
				damaged = true
			}
			if next == partContent {
				cut = left
			}
			next++
		}
		also := io.Discard
		if next == partCount && cut > 0 {
			also = mac
		}
		if _, err := io.CopyN(also, s.in, left); err != nil {
			return message{}, err
		}
		if next == partCount {
			next++ // what follows is not signed
		}
		if flags&flagMore == 0 {
			break
		}
	}
	if next <= partContent || damaged {
		return message{}, errMalformed
	}
	sum := []byte(hex.EncodeToString(mac.Sum(nil)))
	if !hmac.Equal(parts[partSignature], sum) {
		return message{}, errSignature
	}
	if cut > 0 {
		parts[partContent] = whole(parts[partContent])
	}
	m, err := read4(parts[partHeader:])
	m.Cut = cut
	return m, err
}

// bound is how much of a part is kept at once.
func bound(part int) int64 {
	switch {
	case part < 0:
		return int64(len(delimiter))
	case part == partContent:
		return maxContent
	case part < partCount:
		return maxPart
	}
	return 0
}

// frame reads the head of a frame.
func (s *socket) frame() (flags byte, size uint64, err error) {
	var head [9]byte
	if _, err := io.ReadFull(s.in, head[:2]); err != nil {
		return 0, 0, err
	}
	if head[0]&flagLong == 0 {
		return head[0], uint64(head[1]), nil
	}
	if _, err := io.ReadFull(s.in, head[2:]); err != nil {
		return 0, 0, err
	}
	if size = binary.BigEndian.Uint64(head[1:]); size > 1<<62 {
		return 0, 0, errTooLarge
	}
	return head[0], size, nil
}

// body reads a frame that fits, or the beginning of another, and says how much
// of it is still to be read.
func (s *socket) body(size uint64, most int64) (body []byte, left int64, err error) {
	n := int64(size)
	if n > most {
		n = min(most, keptOfMore)
	}
	// Grown as it comes: what a head says costs nothing.
	var b bytes.Buffer
	if n <= maxPart {
		b.Grow(int(n))
	}
	_, err = io.CopyN(&b, s.in, n)
	return b.Bytes(), int64(size) - n, err
}

// command answers one of the transport.
func (s *socket) command(size uint64) error {
	body, left, err := s.body(size, 256)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, s.in, left); err != nil {
		return err
	}
	const ping = "\x04PING"
	if context, ok := bytes.CutPrefix(body, []byte(ping)); ok && len(context) >= 2 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.conn.SendCmd(zmq4.CmdPong, context[2:])
	}
	return nil
}

// whole makes JSON out of the beginning of an object: its members that are
// complete, of a text that is cut off its beginning, and of an object the name
// of its first member.
func whole(begin []byte) []byte {
	members := map[string]json.RawMessage{}
	d := json.NewDecoder(bytes.NewReader(begin))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			break
		}
		at := d.InputOffset()
		var value json.RawMessage
		if d.Decode(&value) == nil {
			members[name] = value
			continue
		}
		rest := bytes.TrimLeft(begin[at:], ": \t\r\n")
		switch {
		case bytes.HasPrefix(rest, []byte{'"'}):
			members[name] = wholeText(rest[1:])
		case bytes.HasPrefix(rest, []byte{'{'}):
			d := json.NewDecoder(bytes.NewReader(rest))
			_, _ = d.Token()
			if t, err := d.Token(); err == nil {
				if key, ok := t.(string); ok {
					members[name], _ = json.Marshal(map[string]string{key: ""})
				}
			}
		}
		break
	}
	object, err := json.Marshal(members)
	if err != nil {
		return nil
	}
	return object
}

// wholeText ends a JSON string that is cut off.
func wholeText(begin []byte) json.RawMessage {
	end := 0
	for i := 0; i < len(begin); end = i {
		n := 1
		switch c := begin[i]; {
		case c == '\\' && i+1 < len(begin) && begin[i+1] == 'u':
			n = 6
		case c == '\\':
			n = 2
		case c >= utf8.RuneSelf:
			if !utf8.FullRune(begin[i:]) {
				n = len(begin) + 1
				break
			}
			_, n = utf8.DecodeRune(begin[i:])
		}
		if i+n > len(begin) {
			break
		}
		i += n
	}
	text := append(append([]byte{'"'}, begin[:end]...), '"')
	if !json.Valid(text) {
		return json.RawMessage(`""`)
	}
	return text
}
