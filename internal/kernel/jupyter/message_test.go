package jupyter

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestMessage(t *testing.T) {
	k := signer("key")
	id, frames, err := k.request("session", "execute_request", map[string]string{"code": "1"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := k.parse(append([][]byte{[]byte("routing")}, frames...))
	if err != nil || m.Header.ID != id || m.Header.Type != "execute_request" || string(m.Content) != `{"code":"1"}` {
		t.Errorf("parse = %+v, %v", m, err)
	}
	if _, err := signer("other").parse(frames); !errors.Is(err, errSignature) {
		t.Errorf("with another key: %v", err)
	}
	for n := range len(frames) {
		if _, err := k.parse(frames[:n]); !errors.Is(err, errMalformed) {
			t.Errorf("%d frames: %v", n, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	k := signer("key")
	f.Add([]byte(`{"msg_id":"1"}`), []byte(`{}`), []byte(`{}`), []byte(`{"data":{"text/plain":"x"}}`))
	f.Add([]byte(`[]`), []byte(`null`), []byte(` {}`), []byte("{\"a\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, a, b, c, d []byte) {
		parts := [][]byte{a, b, c, d}
		m, err := k.parse(append([][]byte{[]byte(delimiter), k.sign(parts)}, parts...))
		if err != nil {
			return
		}
		for _, kind := range []string{"stream", "display_data", "execute_result", "error", "clear_output", "input_request", "status"} {
			m.Header.Type = kind
			outputOf(m)
		}
		if !json.Valid(m.Content) {
			t.Errorf("content is no JSON: %q", m.Content)
		}
	})
}

// frame makes a ZMTP frame; size is what its header claims.
func frame(flags byte, size uint64, body []byte) []byte {
	if flags&flagLong == 0 {
		return append([]byte{flags, byte(size)}, body...)
	}
	return append(binary.BigEndian.AppendUint64([]byte{flags}, size), body...)
}

func TestBounds(t *testing.T) {
	greeting := make([]byte, greetingSize)
	small := frame(0, 3, []byte("abc"))
	many := append([]byte{}, greeting...)
	for range maxFrames {
		many = append(many, frame(flagMore, 0, nil)...)
	}
	for name, tt := range map[string]struct {
		bytes []byte
		want  error
	}{
		"nothing but the greeting": {greeting, nil},
		"small messages":           {append(append(append([]byte{}, greeting...), small...), small...), nil},
		"a long frame":             {append(append([]byte{}, greeting...), frame(flagLong, 4, []byte("abcd"))...), nil},
		"the largest":              {append(append([]byte{}, greeting...), frame(flagLong, maxHandshake, nil)...), nil},
		"one byte more":            {append(append([]byte{}, greeting...), frame(flagLong, maxHandshake+1, nil)...), errTooLarge},
		"all bits":                 {append(append([]byte{}, greeting...), frame(flagLong, 1<<64-1, nil)...), errTooLarge},
		"larger in parts":          {append(append(append([]byte{}, greeting...), frame(flagMore, 1, []byte("a"))...), frame(flagLong, maxHandshake, nil)...), errTooLarge},
		"as many frames as may be": {many, nil},
		"one frame more":           {append(many[:len(many):len(many)], small...), errTooLarge},
	} {
		for _, step := range []int{1, 7, len(tt.bytes)} {
			var b bounded
			var err error
			for rest := tt.bytes; len(rest) > 0 && err == nil; {
				n := min(step, len(rest))
				err = b.scan(rest[:n])
				rest = rest[n:]
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("%s, %d bytes at a time: %v", name, step, err)
			}
		}
	}
}

func TestKernelspecs(t *testing.T) {
	python := `{"argv":["python3","-m","ipykernel_launcher","-f","{connection_file}"],"display_name":"Python 3","language":"python","metadata":{"debugger":true}}`
	root := fstest.MapFS{
		"usr/share/jupyter/kernels/python3/kernel.json":                 {Data: []byte(python)},
		"usr/share/jupyter/kernels/Bash/kernel.json":                    {Data: []byte(`{"argv":["b","{resource_dir}"],"language":"bash","interrupt_mode":"message"}`)},
		"usr/share/jupyter/kernels/empty/kernel.json":                   {Data: []byte(`{"argv":[]}`)},
		"usr/share/jupyter/kernels/broken/kernel.json":                  {Data: []byte(`{`)},
		"usr/share/jupyter/kernels/bad name/kernel.json":                {Data: []byte(python)},
		"usr/share/jupyter/kernels/file":                                {Data: []byte("x")},
		"home/sandbox/.local/share/jupyter/kernels/python3/kernel.json": {Data: []byte(`{"argv":["mine"],"language":"python"}`)},
		"usr/local/share/jupyter/kernels/large/kernel.json":             {Data: make([]byte, maxSpec+1)},
		"usr/local/share/jupyter/kernels/dir/kernel.json/not-a-file":    {Data: []byte("x")},
	}
	got := Find(root, "/home/sandbox")
	want := []Kernelspec{
		{Name: "bash", Dir: "/usr/share/jupyter/kernels/Bash", Argv: []string{"b", "{resource_dir}"}, Language: "bash", Interrupt: "message"},
		{Name: "python3", Dir: "/home/sandbox/.local/share/jupyter/kernels/python3", Argv: []string{"mine"}, Language: "python"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Find (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b", "/usr/share/jupyter/kernels/Bash"}, got[0].Command("/c.json")); diff != "" || !got[0].InterruptByMessage() {
		t.Errorf("Command (-want +got):\n%s", diff)
	}
	if got := Find(fstest.MapFS{}, "/root"); len(got) != 0 {
		t.Errorf("Find in nothing = %v", got)
	}
}
