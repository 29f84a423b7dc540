package jupyter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// message4 is a whole message on the wire, with a topic before it and a
// buffer behind it.
func message4(k signer, header, content []byte) []byte {
	parts := [][]byte{header, []byte("{}"), []byte("{}"), content}
	b := frame(flagMore|flagLong, 5, []byte("topic"))
	for _, f := range append([][]byte{[]byte(delimiter), k.sign(parts)}, parts...) {
		b = append(b, frame(flagMore|flagLong, uint64(len(f)), f)...)
	}
	return append(b, frame(0, 3, []byte("buf"))...)
}

func receiver(b []byte) *socket { return &socket{in: bufio.NewReader(bytes.NewReader(b))} }

func TestReceive(t *testing.T) {
	k := signer("key")
	header := []byte(`{"msg_id":"1","msg_type":"stream"}`)
	large := []byte(`{"name": "stdout", "text": "` + strings.Repeat(`é\u00e9\n`, 4<<20) + `"}`)
	wrong := message4(signer("other"), header, []byte("{}"))
	s := receiver(bytes.Join([][]byte{
		frame(flagCommand, 6, []byte("\x05READY")),
		message4(k, header, []byte(`{"name":"stdout","text":"x"}`)),
		wrong,
		frame(0, 1, []byte("x")),
		message4(k, header, large),
		message4(k, bytes.Repeat([]byte(" "), maxPart+1), []byte("{}")),
		message4(k, header, []byte(`{}`)),
	}, nil))
	m, err := s.receive(k)
	if err != nil || m.Header.Type != "stream" || string(m.Content) != `{"name":"stdout","text":"x"}` {
		t.Errorf("the first: %+v, %v", m, err)
	}
	if _, err := s.receive(k); !errors.Is(err, errSignature) {
		t.Errorf("signed with another key: %v", err)
	}
	if _, err := s.receive(k); !errors.Is(err, errMalformed) {
		t.Errorf("one frame: %v", err)
	}
	m, err = s.receive(k)
	o, ok := outputOf(m)
	if err != nil || !ok || o.Stream == nil || o.Stream.Name != "stdout" || !strings.HasPrefix(o.Stream.Text, "éé\néé\n") ||
		m.Cut != int64(len(large))-keptOfMore || o.Cut != m.Cut || strings.Trim(o.Stream.Text, "é\n") != "" {
		t.Errorf("a large one: %d bytes cut of %d, %.200s, %v", m.Cut, len(large), m.Content, err)
	}
	if _, err := s.receive(k); !errors.Is(err, errMalformed) {
		t.Errorf("a large header: %v", err)
	}
	if m, err = s.receive(k); err != nil || string(m.Content) != "{}" {
		t.Errorf("the last: %+v, %v", m, err)
	}
	if _, err := s.receive(k); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	many := receiver(bytes.Repeat(frame(flagMore, 0, nil), maxFrames+1))
	if _, err := many.receive(k); !errors.Is(err, errTooLarge) {
		t.Errorf("too many frames: %v", err)
	}
	// What a head claims is not allocated.
	for _, size := range []uint64{1 << 61, 1<<64 - 1} {
		if _, err := receiver(frame(flagLong, size, []byte("x"))).receive(k); err == nil {
			t.Errorf("a frame of %d bytes came", size)
		}
	}
}

func TestWhole(t *testing.T) {
	for begin, want := range map[string]string{
		`{"a": 1, "b": [1, 2`:                `{"a":1}`,
		`{"name": "stdout", "text": "ab\u00`: `{"name":"stdout","text":"ab"}`,
		`{"text": "ab\`:                      `{"text":"ab"}`,
		`{"text": "`:                         `{"text":""}`,
		"{\"text\": \"a\xc3":                 `{"text":"a"}`,
		`{"data": {"text/html": "xxx`:        `{"data":{"text/html":""}}`,
		`{"data": {"text/ht`:                 `{}`,
		`{"a`:                                `{}`,
		`[1, 2`:                              ``,
		``:                                   ``,
	} {
		if got := whole([]byte(begin)); string(got) != want {
			t.Errorf("whole(%q) = %q, want %q", begin, got, want)
		}
	}
}

// FuzzReceive has a kernel that sends anything: receiving ends, and what came
// is JSON.
func FuzzReceive(f *testing.F) {
	k := signer("key")
	f.Add(message4(k, []byte(`{"msg_type":"stream"}`), []byte(`{"name":"stdout","text":"x"}`)))
	f.Add(frame(flagCommand|flagLong, 6, []byte("\x05READY")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if bytes.Contains(b, []byte("PING")) {
			return // the answer needs a connection
		}
		s := receiver(b)
		for {
			m, err := s.receive(k)
			if errors.Is(err, errMalformed) || errors.Is(err, errSignature) {
				continue
			}
			if err != nil {
				return
			}
			if !json.Valid(m.Content) {
				t.Errorf("content is no JSON: %q", m.Content)
			}
		}
	})
}

func FuzzWhole(f *testing.F) {
	f.Add([]byte(`{"name": "stdout", "text": "ab\u00`))
	f.Add([]byte(`{"data": {"text/html": "xxx`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := whole(b); got != nil && !json.Valid(got) {
			t.Errorf("whole(%q) = %q", b, got)
		}
	})
}
