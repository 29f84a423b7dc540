package sse_test

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client/internal/sse"
)

func events(r io.Reader) (list []sse.Event) {
	for from := sse.NewReader(r); ; {
		ev, err := from.Next()
		if err != nil {
			return list
		}
		list = append(list, ev)
	}
}

func TestReader(t *testing.T) {
	for text, want := range map[string][]sse.Event{
		"event: a\ndata: 1\nid: 7\n\n":                {{ID: "7", Name: "a", Data: []byte("1")}},
		"id: 7\r\ndata:x\r\ndata:  y\r\n\r\n":         {{ID: "7", Data: []byte("x\n y")}},
		": heartbeat\nevent: a\n: heartbeat\n\n":      {{Name: "a"}},
		": heartbeat\n\nid: 1\n\nevent: a\n\n":        {{ID: "1", Name: "a"}},
		"event: a\ndata: whole\n\nevent: b\ndata: cu": {{Name: "a", Data: []byte("whole")}},
		"unknown: x\nretry: 3\n\ndata\n\n":            {{}},
		"":                                            nil,
	} {
		if diff := cmp.Diff(want, events(strings.NewReader(text))); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

// FuzzReader: how a stream is cut into reads changes nothing.
func FuzzReader(f *testing.F) {
	f.Add("event: a\ndata: ü\nid: 7\n\n: heartbeat\n\ndata: x\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		if diff := cmp.Diff(events(strings.NewReader(text)), events(iotest.OneByteReader(strings.NewReader(text)))); diff != "" {
			t.Error(diff)
		}
	})
}
