package node

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func reader(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }

func TestLongMessages(t *testing.T) {
	long := strings.Repeat(`é\n`, maxLine/4+1)
	lines := reader([]byte(`{"id":7,"output":{"stream":{"name":"stderr","text":"` + long + `"}}}` + "\n" +
		`{"id":7,"output":{"result":{"execution_count":1,"data":{"text/plain":"` + long + `"}}}}` + "\n" +
		`{"id":7,"reply":{"status":"error","execution_count":1,"evalue":"` + long + `"}}` + "\n" +
		long + "\n" +
		`{"id":7,"reply":{"status":"ok"}}` + "\n"))
	m, err := next(lines)
	if err != nil || m.ID != 7 || m.Output == nil || m.Output.Stream == nil || m.Output.Stream.Name != "stderr" ||
		!strings.HasPrefix(m.Output.Stream.Text, "é\né\n") || strings.Trim(m.Output.Stream.Text, "é\n") != "" || m.Output.Cut < maxLine-keptOfMore {
		t.Errorf("text: %.200v, %v", m.Output, err)
	}
	if m, err = next(lines); err != nil || m.Output == nil || m.Output.Result == nil || m.Output.Cut < maxLine {
		t.Errorf("a result: %+v, %v", m, err)
	}
	if m, err = next(lines); err != nil || m.Reply == nil || m.Reply.Status != "error" {
		t.Errorf("a reply: %+v, %v", m, err)
	}
	if m, err = next(lines); err != nil || m.Reply == nil || m.Reply.Status != "ok" {
		t.Errorf("after nonsense: %+v, %v", m, err)
	}
	if _, err = next(lines); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

// FuzzNext has a kernel that sends anything: reading it ends.
func FuzzNext(f *testing.F) {
	f.Add([]byte(`{"id":1,"output":{"stream":{"name":"stdout","text":"x"}}}`+"\n"), int64(0))
	f.Add([]byte(`{"id":1,"output":{"stream":{"name":"stdout","text":"x\ud8`), int64(9))
	f.Add([]byte(`{"id":1,"reply":{"status":"error",`), int64(9))
	f.Fuzz(func(t *testing.T, b []byte, cut int64) {
		lines := reader(b)
		for {
			if _, err := next(lines); err != nil {
				break
			}
		}
		if m, ok := begun(b, cut); ok && m.Output == nil && m.Reply == nil {
			t.Errorf("begun(%q) = %+v", b, m)
		}
	})
}
