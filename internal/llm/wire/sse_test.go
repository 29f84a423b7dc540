package wire

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

type read struct{ name, data string }

func readAll(r io.Reader) ([]read, error) { return readWith(NewReader(r)) }

func readWith(s *Reader) (all []read, err error) {
	for {
		e, err := s.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return all, err
		}
		all = append(all, read{e.Name, string(e.Data)})
	}
}

func TestReader(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want []read
	}{
		"one":                    {"data: a\n\n", []read{{"", "a"}}},
		"no space":               {"data:a\n\n", []read{{"", "a"}}},
		"two spaces":             {"data:  a\n\n", []read{{"", " a"}}},
		"a name":                 {"event: x\ndata: a\n\ndata: b\n\n", []read{{"x", "a"}, {"", "b"}}},
		"many lines":             {"data: a\ndata:\ndata: b\n\n", []read{{"", "a\n\nb"}}},
		"no colon":               {"data\n\n", []read{{"", ""}}},
		"comments":               {": hi\n\n:\ndata: a\n: between\ndata: b\n\n: end\n", []read{{"", "a\nb"}}},
		"other fields":           {"id: 1\nretry: 3\nfoo: bar\ndata: a\n\n", []read{{"", "a"}}},
		"a name alone":           {"event: x\n\ndata: a\n\n", []read{{"", "a"}}},
		"empty lines":            {"\n\n\ndata: a\n\n\n\n", []read{{"", "a"}}},
		"CRLF":                   {"event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []read{{"x", "a"}, {"", "b"}}},
		"CR":                     {"event: x\rdata: a\r\rdata: b\r\r", []read{{"x", "a"}, {"", "b"}}},
		"all ends":               {"data: a\rdata: b\ndata: c\r\n\r\n", []read{{"", "a\nb\nc"}}},
		"no empty line":          {"data: a\n", []read{{"", "a"}}},
		"no end of the line":     {"data: a\n\ndata: b", []read{{"", "a"}, {"", "b"}}},
		"a mark":                 {"\ufeffdata: a\n\ndata: \ufeffb\n\n", []read{{"", "a"}, {"", "\ufeffb"}}},
		"letters":                {"data: 世界 😀\n\n", []read{{"", "世界 😀"}}},
		"nothing":                {"", nil},
		"a colon in the data":    {"data: {\"a\": 1}\n\n", []read{{"", `{"a": 1}`}}},
		"as long as the buffer":  {"data: " + strings.Repeat("a", 16<<10) + "\n\n", []read{{"", strings.Repeat("a", 16<<10)}}},
		"longer than the buffer": {"data: " + strings.Repeat("ab", 1<<17) + "\r\n\r\ndata: c\r\n\r\n", []read{{"", strings.Repeat("ab", 1<<17)}, {"", "c"}}},
	} {
		for how, r := range map[string]io.Reader{
			"": strings.NewReader(tt.in), " in bytes": iotest.OneByteReader(strings.NewReader(tt.in)), " in halves": iotest.HalfReader(strings.NewReader(tt.in)),
			" with its end": iotest.DataErrReader(strings.NewReader(tt.in)),
		} {
			got, err := readAll(r)
			if err != nil || len(got) != len(tt.want) {
				t.Errorf("%s%s: %d events, %v, want %d", name, how, len(got), err, len(tt.want))
				continue
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("%s%s: event %d is %.60q, want %.60q", name, how, i, got[i], tt.want[i])
				}
			}
		}
	}
}

// endless is a stream of one letter.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

func TestReaderBounds(t *testing.T) {
	if _, err := readAll(io.MultiReader(strings.NewReader("data: "), endless('a'))); !errors.Is(err, errLine) {
		t.Errorf("an endless line: %v", err)
	}
	short := NewReader(endless('\n'))
	short.left = 1 << 16
	if _, err := readWith(short); !errors.Is(err, errStream) {
		t.Errorf("endless lines: %v", err)
	}
	line := "data: " + strings.Repeat("a", 1<<20) + "\n"
	if _, err := readAll(strings.NewReader(strings.Repeat(line, 20))); !errors.Is(err, errLine) {
		t.Errorf("an event of 20 MiB in many lines: %v", err)
	}
	broken := errors.New("broken")
	if got, err := readAll(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken))); !errors.Is(err, broken) || len(got) != 1 {
		t.Errorf("a stream that breaks: %v, %v", got, err)
	}
}

// FuzzReader compares the reader with a simple one that has all of the stream.
func FuzzReader(f *testing.F) {
	for _, s := range []string{"data: a\r\n\r\nevent: x\rdata\r\rdata: b", ": c\n\nid: 1\ndata:x\ndata: y\n\n", "\ufeffdata: a", "\r\n\r\r\n"} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		got, err := readAll(&pieces{stream, 1 + (size&0xff)%17})
		if err != nil {
			t.Fatal(err)
		}
		want := simple(string(stream))
		if len(got) != len(want) {
			t.Fatalf("%q: %q, want %q", stream, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%q: %q, want %q", stream, got, want)
			}
		}
	})
}

// pieces gives a few bytes at a time.
type pieces struct {
	left []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.left[:min(p.size, len(p.left))])
	p.left = p.left[n:]
	return n, nil
}

func simple(stream string) (all []read) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream), "\n")
	var name string
	var data []string
	for _, line := range append(lines, "") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				all = append(all, read{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
		case field == "data":
			data = append(data, value)
		case field == "event":
			name = value
		}
	}
	return all
}

// TestRoomOfLongLines: what a reader cannot get is refused, and what it had is given
// back.
func TestRoomOfLongLines(t *testing.T) {
	room := NewRoom(1 << 20)
	long := "data: " + strings.Repeat("x", 400<<10) + "\n\n"
	first := NewReader(strings.NewReader(long))
	first.room = room
	if all, err := readWith(first); err != nil || len(all) != 1 {
		t.Fatalf("the first: %d events, %v", len(all), err)
	}
	second := NewReader(strings.NewReader("data: short\n\n" + long))
	second.room = room
	if all, err := readWith(second); !errors.Is(err, errRoom) || len(all) != 1 {
		t.Errorf("the second: %d events, %v", len(all), err)
	}
	first.Close()
	second.Close()
	if n := room.used.Load(); n != 0 {
		t.Errorf("%d bytes are not given back", n)
	}
}
