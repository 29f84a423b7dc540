package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
)

func TestExec(t *testing.T) {
	var body map[string]any
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&body)
		answer(w, 200, `{"seq":1,"status":"done","cmd":["true"],"stdout":"aGn/","stdout_encoding":"base64","stderr":"e",
			"exit_code":3,"reason":"exited","duration_ms":12,"created_at":"2026-01-02T03:04:05Z"}`)
	})
	o := client.Command("sh", "-c", "x")
	o.Cwd, o.Env, o.Timeout = "/tmp", map[string]string{"A": "1"}, 1500*time.Millisecond
	e, err := c.Exec(t.Context(), "a", o)
	if err != nil {
		t.Fatal(err)
	}
	if e.Stdout != "hi\xff" || e.Stderr != "e" || *e.ExitCode != 3 || !e.Finished() {
		t.Errorf("got %+v", e)
	}
	var exit *client.ExitError
	if !errors.As(e.Err(), &exit) || exit.Error() != "exit code 3: true\ne" {
		t.Errorf("Err() = %q, want how it ended, the command and its stderr", e.Err())
	}
	want := map[string]any{
		"cmd": []any{"sh", "-c", "x"}, "cwd": "/tmp", "env": map[string]any{"A": "1"}, "timeout_seconds": 1.5,
		"wait": true, "wait_seconds": 50.0,
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestExecRoundTrip(t *testing.T) {
	code := 3
	want := client.Exec{
		Seq: 1, Status: client.ExecDone, Cmd: client.Cmd{Argv: []string{"a", "b"}}, Stdout: "hi\xff\x00", Stderr: "text",
		ExitCode: &code, Reason: "exited", DurationMS: 5, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got client.Exec
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, data)
	}
}

func TestOutputJSON(t *testing.T) {
	for want, o := range map[string]client.Output{
		`{"stream":"stdout","data":"a","offset":3}`:                        {Stream: "stdout", Data: []byte("a"), Offset: 3, Next: 4},
		`{"stream":"stderr","data":"/w==","encoding":"base64","offset":0}`: {Stream: "stderr", Data: []byte{0xff}},
	} {
		if got, err := json.Marshal(o); string(got) != want || err != nil {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

func TestExecForms(t *testing.T) {
	tests := []struct {
		name string
		o    client.ExecOptions
		want string
	}{
		{"shell", client.Shell("echo $A"), `{"cmd":"echo $A","wait":false}`},
		{"no timeout", client.ExecOptions{Argv: []string{"a"}, Timeout: client.NoTimeout}, `{"cmd":["a"],"timeout_seconds":0,"wait":false}`},
		{"terminal", client.ExecOptions{Argv: []string{"a"}, Stdin: true, PTY: &client.WindowSize{Cols: 80, Rows: 24}},
			`{"cmd":["a"],"pty":{"cols":80,"rows":24},"stdin":true,"wait":false}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []byte
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				got, _ = io.ReadAll(r.Body)
				answer(w, 202, `{"seq":4,"status":"running"}`)
			})
			p, err := c.StartExec(t.Context(), "a", tt.o)
			if err != nil || p.Seq != 4 {
				t.Fatalf("StartExec = %+v, %v", p, err)
			}
			if string(got) != tt.want {
				t.Errorf("body %s, want %s", got, tt.want)
			}
		})
	}
}

// TestExecGoesOnWaiting: a command that is longer than one request.
func TestExecGoesOnWaiting(t *testing.T) {
	var polls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			answer(w, 202, `{"seq":9,"status":"running"}`)
		case r.URL.Path != "/v1/sandboxes/a/execs/9" || r.URL.Query().Get("wait_seconds") != "50":
			answer(w, 400, `{"error":{"code":"invalid_request","message":"`+r.URL.String()+`"}}`)
		case polls.Add(1) == 1:
			answer(w, 502, "a proxy lost its daemon")
		default:
			answer(w, 200, `{"seq":9,"status":"done","exit_code":0,"stdout":"x"}`)
		}
	})
	e, err := c.Exec(t.Context(), "a", client.Command("x"))
	if err != nil || e.Stdout != "x" || e.Err() != nil {
		t.Errorf("Exec = %+v, %v", e, err)
	}
}

// sse writes one event.
func sse(w io.Writer, id int64, name, data string) {
	fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", id, name, data)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

func outputEvent(offset int64, text string) string {
	b, _ := json.Marshal(map[string]any{"data": text, "encoding": "utf-8", "offset": offset})
	return string(b)
}

// TestStreamResumes cuts the connection in every way and wants every byte
// once.
func TestStreamResumes(t *testing.T) {
	const text = "0123456789"
	var conns atomic.Int32
	var afters []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
		n := conns.Add(1)
		afters = append(afters, r.URL.Query().Get("after"))
		w.Header().Set("Content-Type", "text/event-stream")
		switch n {
		case 1: // cut after a whole event and the half of another
			sse(w, 3, "stdout", outputEvent(0, text[:3]))
			fmt.Fprint(w, "event: stdout\ndata: {\"da")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 2: // the daemon restarts
			answer(w, 502, "no upstream")
		case 3: // ends cleanly in the middle, after a record that began before
			sse(w, 6, "stderr", outputEvent(after-1, text[after-1:6]))
		case 4: // says everything again
			sse(w, 3, "stdout", outputEvent(0, text[:3]))
			sse(w, 8, "stdout", `{"data":"`+"Njc="+`","encoding":"base64","offset":6}`)
			sse(w, 0, "ping", "{}")
			panic(http.ErrAbortHandler)
		default:
			sse(w, 10, "stdout", outputEvent(8, text[8:]))
			sse(w, 10, "exit", `{"seq":1,"status":"done","exit_code":0,"reason":"exited"}`)
		}
	})
	var got []byte
	var exit *client.Exec
	for out, err := range c.Process("a", 1).Stream(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if out.Exit != nil {
			exit = out.Exit
			continue
		}
		if out.Offset != int64(len(got)) || out.Next != out.Offset+int64(len(out.Data)) {
			t.Errorf("piece at %d..%d, want it at %d", out.Offset, out.Next, len(got))
		}
		got = append(got, out.Data...)
	}
	if string(got) != text {
		t.Errorf("output %q, want %q", got, text)
	}
	if exit == nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
		t.Errorf("exit %+v", exit)
	}
	if want := []string{"", "3", "3", "6", "8"}; !cmp.Equal(afters, want) {
		t.Errorf("asked after %q, want %q", afters, want)
	}
}

func TestStreamEnds(t *testing.T) {
	tests := []struct {
		name   string
		handle http.HandlerFunc
		code   client.Code
	}{
		{"not found", func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 404, `{"error":{"code":"not_found","message":"no such exec"}}`)
		}, client.NotFound},
		{"error event", func(w http.ResponseWriter, _ *http.Request) {
			sse(w, 0, "error", `{"error":{"code":"internal","message":"journal"}}`)
		}, client.Internal},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { sse(w, 0, "stdout", "{") }, client.Internal},
		{"bad base64", func(w http.ResponseWriter, _ *http.Request) {
			sse(w, 0, "stdout", `{"data":"*","encoding":"base64","offset":0}`)
		}, client.Internal},
		{"always cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, client.Unreachable},
		{"never ends", func(w http.ResponseWriter, _ *http.Request) { sse(w, 0, "ping", "{}") }, client.Unavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, tt.handle, client.WithResume(100*time.Millisecond))
			_, err := c.Process("a", 1).Copy(t.Context(), nil, nil)
			if !errors.Is(err, tt.code) {
				t.Errorf("Copy = %v, want %v", err, tt.code)
			}
		})
	}
}

func TestCopySplitsStreams(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, 3, "stdout", outputEvent(0, "out"))
		sse(w, 6, "stderr", outputEvent(3, "err"))
		sse(w, 6, "exit", `{"seq":1,"status":"error","exit_code":137,"reason":"timeout","signal":"SIGKILL"}`)
	})
	var stdout, stderr bytes.Buffer
	e, err := c.Process("a", 1).Copy(t.Context(), &stdout, &stderr)
	if err != nil || stdout.String() != "out" || stderr.String() != "err" {
		t.Fatalf("Copy = %q, %q, %v", &stdout, &stderr, err)
	}
	if got, want := e.Err().Error(), "exit code 137 (timeout)"; got != want {
		t.Errorf("Err() = %q, want %q", got, want)
	}
}

// TestStdinIsNeitherLostNorDoubled: answers get lost and writes are taken in
// part; the command's input is what was written.
func TestStdinIsNeitherLostNorDoubled(t *testing.T) {
	var input []byte
	var requests int
	eof := false
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		body, _ := io.ReadAll(r.Body)
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		if offset > len(input) {
			answer(w, 409, `{"error":{"code":"conflict","message":"a gap"}}`)
			return
		}
		fresh := body[min(len(body), len(input)-offset):]
		if len(fresh) > 4 { // a full pipe
			fresh = fresh[:4]
		}
		input = append(input, fresh...)
		eof = eof || r.URL.Query().Get("eof") == "true"
		if requests%3 == 2 {
			panic(http.ErrAbortHandler)
		}
		answer(w, 200, fmt.Sprintf(`{"offset":%d}`, len(input)))
	})
	in := c.Process("a", 1).Stdin(t.Context())
	const text = "the quick brown fox jumps over the lazy dog"
	for _, word := range strings.SplitAfter(text, " ") {
		if n, err := io.WriteString(in, word); n != len(word) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", word, n, err)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if string(input) != text || !eof {
		t.Errorf("the command read %q (end %v), want %q", input, eof, text)
	}
	if _, err := in.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write after Close = %v", err)
	}
}

func TestStdinOfEndedCommand(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 409, `{"error":{"code":"wrong_state","message":"it has ended"}}`)
	})
	in := c.Process("a", 1).Stdin(t.Context())
	if _, err := in.Write([]byte("x")); !errors.Is(err, client.WrongState) {
		t.Errorf("Write = %v, want %v", err, client.WrongState)
	}
	if err := in.Close(); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
}

func FuzzStream(f *testing.F) {
	f.Add("event: stdout\ndata: {\"data\":\"x\",\"offset\":0}\n\n")
	f.Add("data\n\n:comment\r\nevent: exit\ndata: {}\n\n")
	f.Add("event: stdout\ndata: {\"data\":\"x\",\"offset\":-9223372036854775808}\n\n")
	f.Fuzz(func(t *testing.T, body string) {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }, client.WithResume(0))
		next := int64(0)
		for out, err := range c.Process("a", 1).Stream(t.Context(), 0) {
			if err != nil {
				return
			}
			if out.Next < next || int64(len(out.Data)) > out.Next-next && out.Exit == nil && out.Offset < next {
				t.Fatalf("offsets go back: %+v after %d", out, next)
			}
			next = out.Next
		}
	})
}
