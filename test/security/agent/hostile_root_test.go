//go:build root

package agent_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// flood writes a piece until nobody reads it, or so many bytes have been written.
func flood(w io.Writer, piece string, most int) {
	block := []byte(strings.Repeat(piece, 1+(64<<10)/len(piece)))
	for n := 0; n < most; n += len(block) {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// bomb is gzip of so many bytes of an event of a stream.
func bomb(size int) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(z, "data: ") // into memory
	flood(z, strings.Repeat("x", 64<<10), size)
	_ = z.Close() // as above
	return b.Bytes()
}

// hostile are answers of servers that are broken or mean harm, by what the user says.
var hostile = map[string]func(w http.ResponseWriter, r *http.Request){
	"a line without end":  func(w http.ResponseWriter, _ *http.Request) { sse(w); flood(w, "data: xxxxxxxx", 1<<30) },
	"events without end":  func(w http.ResponseWriter, _ *http.Request) { sse(w); flood(w, textEvent, 1<<30) },
	"comments, no answer": func(w http.ResponseWriter, _ *http.Request) { sse(w); flood(w, ": still here\n\n", 1<<30) },
	"100 MB of arguments": func(w http.ResponseWriter, _ *http.Request) {
		send(w, callOf(0, "execute_terminal", `{"command":"`), nil)
		flood(w, argumentsEvent, 100<<20)
		send(w, object{}, "tool_calls")
		done(w)
	},
	"12 MB of arguments in one event": func(w http.ResponseWriter, _ *http.Request) {
		use(w, "execute_terminal", `{"command":"`+strings.Repeat("x", 12<<20)+`"}`)
	},
	"10,000 calls": func(w http.ResponseWriter, _ *http.Request) {
		for i := range 10_000 {
			send(w, callOf(i, "no_such_tool", "{}"), nil)
		}
		send(w, object{}, "tool_calls")
		done(w)
	},
	"calls of the numbers -1 and 9e18": func(w http.ResponseWriter, _ *http.Request) {
		for _, i := range []int{-1, 9e18, -1 << 63} {
			send(w, callOf(i, "no_such_tool", "{"), nil)
		}
		send(w, object{"tool_calls": "none"}, nil)
		done(w)
	},
	"deep nesting": func(w http.ResponseWriter, _ *http.Request) {
		sse(w)
		_, _ = fmt.Fprintf(w, "data: %s%s\n\n", strings.Repeat(`{"choices":[`, 500_000), strings.Repeat(`]}`, 500_000)) // who has left reads nothing
	},
	"a list of a million words": func(w http.ResponseWriter, _ *http.Request) {
		sse(w)
		_, _ = fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":{"content":[%s{}]}}]}`+"\n\n", strings.Repeat(`{"text":"x"},`, 1_000_000)) // as above
	},
	"a gzip bomb": func(w http.ResponseWriter, _ *http.Request) {
		sse(w)
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(theBomb) // as above
	},
	"a page": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		flood(w, "<html><script>alert(1)</script>", 200<<20)
	},
	"an error without end": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"`) // as above
		flood(w, "no ", 1<<30)
	},
	"headers without end": func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n") // as above
		flood(conn, "X-More: and more\r\n", 1<<30)
	},
	"a redirect to the cloud's metadata": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusTemporaryRedirect)
	},
	"an empty answer":     func(w http.ResponseWriter, _ *http.Request) { sse(w); done(w) },
	"an answer that ends": func(w http.ResponseWriter, _ *http.Request) { half(w) },
	"a connection that dies": func(w http.ResponseWriter, _ *http.Request) {
		send(w, object{"content": "half"}, nil)
		panic(http.ErrAbortHandler)
	},
}

func half(w http.ResponseWriter) {
	send(w, object{"content": "half"}, nil)
	_ = http.NewResponseController(w).Flush() // who has left reads nothing
}

var theBomb = bomb(1 << 30)

func sse(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

var (
	textEvent      = "data: " + `{"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("w ", 500) + `"}}]}` + "\n\n"
	argumentsEvent = "data: " + `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat("y", 1000) + `"}}]}}]}` + "\n\n"
)

// TestHostileModels: whatever a server answers in place of a model, the run ends with
// an error that says why, the daemon stays small, and other runs go on.
func TestHostileModels(t *testing.T) {
	m := newModel(t, func(w http.ResponseWriter, r *http.Request, a asked) {
		user, _ := a.turn()
		if attack := hostile[user]; attack != nil {
			attack(w, r)
			return
		}
		obey(w, r, a)
	})
	d := start(t, m)
	for name := range hostile {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			id := d.thread("")
			o := d.run("", id, human(name))
			if o.Error == nil || o.Error.Error == "" || o.Error.Message == "" || len(o.Error.Message) > 2000 {
				t.Errorf("the run left %d messages, error %+v", len(o.Messages), o.Error)
			}
			if o.Error != nil && o.Error.Error == "InternalServerError" {
				t.Errorf("the client is told %+v", o.Error)
			}
			var state struct{ Tasks []struct{ Error *string } }
			d.must("", http.MethodGet, "/agent/threads/"+id+"/state", nil, &state)
			if len(state.Tasks) != 1 || state.Tasks[0].Error == nil {
				t.Errorf("the thread's state says %s", encode(state))
			}
			d.works("")
			// The thread goes on.
			if o := d.run("", id, human("SAY again")); o.last() != "again" {
				t.Errorf("the thread goes on with %+v", o)
			}
			d.bounded(name)
		})
	}
	if log := d.Log(); strings.Contains(log, "panic") {
		t.Errorf("the daemon panicked: %s", log)
	}
}
