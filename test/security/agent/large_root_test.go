//go:build root

package agent_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// sizeOf is what files of the data directory take together.
func sizeOf(t *testing.T, pattern string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Dir(pattern), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if ok, _ := filepath.Match(filepath.Base(pattern), e.Name()); !ok { // the pattern is a constant
			return nil
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestAThreadOfAThousandMessages: its states, its history and the streams of its runs
// are answered, the daemon stays small, and the database grows by what is said and not
// by what was said before.
func TestAThreadOfAThousandMessages(t *testing.T) {
	d := start(t, newModel(t, obey))
	id := d.thread("")
	path := "/agent/threads/" + id
	text := strings.Repeat("All work and no play makes Jack a dull boy. ", 20)
	database := func() int64 { return sizeOf(t, filepath.Join(d.Dir, "*.db*")) }
	add := func(from, to int) {
		for i := from; i < to; i += 10 {
			var list []object
			for k := range 10 {
				list = append(list, object{"type": []string{"human", "ai"}[k%2], "content": fmt.Sprintf("%d: %s", i+k, text)})
			}
			d.must("", http.MethodPost, path+"/state", object{"values": object{"messages": list}, "as_node": "agent"}, nil)
		}
	}
	empty := database()
	add(0, 500)
	half := database()
	add(500, 1000)
	whole := database()
	t.Logf("the database: %d, %d and %d KiB", empty>>10, half>>10, whole>>10)
	// Each step that kept the whole state would make the second half three times the
	// first one. The write-ahead log may be anything up to its bound.
	if second, first := whole-half, half-empty; second > 2*first+4<<20 || whole > 40<<20 {
		t.Errorf("500 messages of %d bytes took %d KiB, and the next 500 %d", len(text), first>>10, second>>10)
	}

	var o struct{ Values outcome }
	d.must("", http.MethodGet, path+"/state", nil, &o)
	if n := len(o.Values.Messages); n != 1000 {
		t.Fatalf("the state has %d messages", n)
	}
	var history []json.RawMessage
	d.must("", http.MethodGet, path+"/history?limit=100", nil, &history)
	if len(history) != 100 {
		t.Errorf("the history has %d states", len(history))
	}
	d.bounded("a history of 100 states")
	body := human("DO no_such_tool {}\nDO no_such_tool {}\nDO no_such_tool {}")
	body["stream_mode"] = []string{"values", "messages-tuple", "updates"}
	values := 0
	for e := range d.stream("", path+"/runs/stream", body) {
		if e.name == "values" {
			var v outcome
			if err := json.Unmarshal(e.data, &v); err != nil || len(v.Messages) < 1000 {
				t.Errorf("values of %d messages, %v", len(v.Messages), err)
			}
			values++
		}
	}
	if values != 8 { // with the message, and after each of 4 answers and 3 tools
		t.Errorf("the stream has %d values", values)
	}
	d.bounded("a run of the thread")
	var everything []json.RawMessage
	d.must("", http.MethodGet, path+"/history?limit=1000", nil, &everything)
	if len(everything) != 109 {
		t.Errorf("the whole history has %d states", len(everything))
	}
	d.bounded("the whole history")
}

// event is one of a stream.
type event struct {
	name string
	data []byte
}

// stream begins a run and yields its events.
func (d *daemon) stream(token, path string, body object) func(yield func(event) bool) {
	return func(yield func(event) bool) {
		d.t.Helper()
		res := d.request(token, http.MethodPost, path, body)
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			answer, _ := io.ReadAll(res.Body) // for people
			d.t.Errorf("%s: %s %.500s", path, res.Status, answer)
			return
		}
		var e event
		r := bufio.NewReader(res.Body)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				if err != io.EOF {
					d.t.Errorf("%s: %v", path, err)
				}
				return
			}
			line = bytes.TrimSpace(line)
			if name, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
				e.name = string(name)
			}
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				e.data = data
				if !yield(e) {
					return
				}
			}
		}
	}
}

// leave begins a request on a connection of its own, takes little of its answer, and
// keeps it open without reading on.
func (d *daemon) leave(token, method, path string, body any) (status string) {
	d.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		d.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		d.t.Fatal(err)
	}
	raw := encode(body)
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: cubby\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, token, len(raw), raw); err != nil {
		d.t.Error(err)
	}
	head := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, head); err != nil {
		d.t.Errorf("%s %s: %v", method, path, err)
	}
	return string(head[len("HTTP/1.1 "):])
}

// TestClientsThatNeverRead: the runs that a hundred of them began end all the same, the
// daemon takes little for them, and others are served.
func TestClientsThatNeverRead(t *testing.T) {
	const flood, piece = 2000, "a word and another one, again and again, until nobody can hear it any more "
	m := newModel(t, func(w http.ResponseWriter, r *http.Request, a asked) {
		if user, _ := a.turn(); user != "flood" {
			obey(w, r, a)
			return
		}
		for range flood {
			send(w, object{"content": piece}, nil)
		}
		send(w, object{}, "stop")
		done(w)
	})
	d := startTenants(t, m, "--max-agent-runs-per-tenant=0")
	before := d.memory("VmRSS")
	body := human("flood")
	body["stream_mode"] = []string{"values", "messages", "messages-tuple", "events", "debug"}
	one := d.thread(acme)
	if status := d.leave(acme, http.MethodPost, "/agent/threads/"+one+"/runs/stream", body); status != "200" {
		t.Fatalf("a stream: %s", status)
	}
	runs := d.runsOf(acme, one)
	for range 99 {
		if status := d.leave(acme, http.MethodGet, "/agent/threads/"+one+"/runs/"+runs[0].ID+"/stream?stream_mode=messages&stream_mode=values", nil); status != "200" && status != "503" {
			t.Errorf("another stream of it: %s", status)
		}
	}
	// Ten more runs whose clients read nothing either.
	threads := []string{one}
	for range 10 {
		id := d.thread(acme)
		threads = append(threads, id)
		if status := d.leave(acme, http.MethodPost, "/agent/threads/"+id+"/runs/stream", body); status != "200" && status != "503" {
			t.Errorf("a stream: %s", status)
		}
	}
	d.works(other)
	for _, id := range threads {
		for _, r := range d.runsOf(acme, id) {
			var o outcome
			d.must(acme, http.MethodGet, "/agent/threads/"+id+"/runs/"+r.ID+"/join", nil, &o)
			if n := len(o.last()); n != flood*len(piece) {
				t.Errorf("a run that nobody reads left %d bytes, error %+v", n, o.Error)
			}
		}
	}
	d.works(acme)
	after := d.memory("VmHWM")
	t.Logf("the daemon took %d MiB before, and at most %d MiB", before>>20, after>>20)
	if after-before > 150<<20 {
		t.Errorf("the daemon took %d MiB more", (after-before)>>20)
	}
}

type runRow struct {
	ID     string `json:"run_id"`
	Status string `json:"status"`
}

func (d *daemon) runsOf(token, thread string) (list []runRow) {
	d.t.Helper()
	d.must(token, http.MethodGet, "/agent/threads/"+thread+"/runs", nil, &list)
	if len(list) == 0 {
		d.t.Fatalf("the thread %s has no run", thread)
	}
	return list
}

// TestAToolThatPrintsTenMegabytes: the model gets a text that says how much there was,
// the run's stream stays small, and the whole output is in the sandbox's history.
func TestAToolThatPrintsTenMegabytes(t *testing.T) {
	d := start(t, newModel(t, obey))
	const size = 10 << 20
	id := d.thread("")
	body := human(`DO execute_terminal {"command":"yes 0123456789abcde | head -c 10485760"}`)
	body["stream_mode"] = []string{"updates", "messages-tuple", "custom", "values", "tools"}
	streamed, result := 0, ""
	for e := range d.stream("", "/agent/threads/"+id+"/runs/stream", body) {
		streamed += len(e.data)
		var v outcome
		if e.name == "values" && json.Unmarshal(e.data, &v) == nil && len(v.results()) > 0 {
			result = v.results()[0]
		}
	}
	var r struct {
		Stdout  string `json:"stdout"`
		Session string `json:"session_id"`
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil {
		t.Fatalf("%v: %.500s", err, result)
	}
	if len(result) > 64<<10 || !strings.Contains(r.Stdout, "truncated") || !strings.Contains(r.Stdout, fmt.Sprint(size)) || !strings.HasPrefix(r.Stdout, "0123456789abcde\n") {
		t.Errorf("the model reads %d bytes: %.100s … %s", len(result), r.Stdout, r.Stdout[max(0, len(r.Stdout)-200):])
	}
	if streamed > 2<<20 {
		t.Errorf("the stream had %d bytes", streamed)
	}
	// The sandbox is the thread's only one.
	var boxes struct {
		Sandboxes []struct{ ID string } `json:"sandboxes"`
	}
	d.must("", http.MethodGet, "/v1/sandboxes", nil, &boxes)
	if len(boxes.Sandboxes) != 1 {
		t.Fatalf("sandboxes: %+v", boxes)
	}
	var execs struct {
		Execs []struct{ Seq int64 } `json:"execs"`
	}
	d.must("", http.MethodGet, "/v1/sandboxes/"+boxes.Sandboxes[0].ID+"/execs", nil, &execs)
	if len(execs.Execs) == 0 {
		t.Fatal("no command in the history")
	}
	var x struct {
		Stdout string `json:"stdout"`
	}
	d.must("", http.MethodGet, fmt.Sprintf("/v1/sandboxes/%s/execs/%d?max_output_bytes=%d", boxes.Sandboxes[0].ID, execs.Execs[0].Seq, 16<<20), nil, &x)
	if len(x.Stdout) != size {
		t.Errorf("the history has %d bytes", len(x.Stdout))
	}
	d.bounded("10 MiB of output")
}

// picture is a block with so many bytes of an image.
func picture(size int) (block object, data []byte) {
	data = make([]byte, size)
	_, _ = rand.Read(data) // never fails
	return object{"type": "image", "source_type": "base64", "mime_type": "image/png", "data": base64.StdEncoding.EncodeToString(data)}, data
}

// TestAnImageOfTenMegabytes reaches the model whole and is stored once; a body beyond
// its bound is refused in so many words.
func TestAnImageOfTenMegabytes(t *testing.T) {
	block, data := picture(10 << 20)
	var mu sync.Mutex
	var got []string
	m := newModel(t, func(w http.ResponseWriter, r *http.Request, a asked) {
		for _, msg := range a.Messages {
			var parts []struct {
				Image struct{ URL string } `json:"image_url"`
			}
			if json.Unmarshal(msg.Content, &parts) != nil {
				continue
			}
			for _, p := range parts {
				if text, ok := strings.CutPrefix(p.Image.URL, "data:image/png;base64,"); ok {
					raw, err := base64.StdEncoding.DecodeString(text)
					mu.Lock()
					got = append(got, fmt.Sprintf("%x %v", sha256.Sum256(raw), err))
					mu.Unlock()
				}
			}
		}
		obey(w, r, a)
	})
	d := start(t, m)
	id := d.thread("")
	what := []object{{"type": "text", "text": "DO no_such_tool {}"}, block}
	if o := d.run("", id, human(what)); o.Error != nil || !strings.Contains(o.last(), "no tool") {
		t.Fatalf("%+v", o.Error)
	}
	want := fmt.Sprintf("%x %v", sha256.Sum256(data), error(nil))
	if len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("the model saw %q, want %s", got, want)
	}
	d.bounded("an image")
	// A run that goes on has it too, and leaves its room in the database to the next one.
	if o := d.run("", d.thread(""), human([]object{block})); o.Error != nil {
		t.Fatalf("%+v", o.Error)
	}
	stored := sizeOf(t, filepath.Join(d.Dir, "*.db")) + sizeOf(t, filepath.Join(d.Dir, "agent", "*"))
	once := int64(base64.StdEncoding.EncodedLen(len(data)))
	t.Logf("stored: %d MiB", stored>>20)
	if stored > 3*once+once/2 {
		t.Errorf("two images of %d bytes took %d", once, stored)
	}

	raw := encode(human([]object{block, block}))
	status, answer := d.do("", http.MethodPost, "/agent/threads/"+id+"/runs/wait", raw)
	if status != http.StatusRequestEntityTooLarge || !strings.Contains(string(answer), "20 MiB") || !strings.Contains(string(answer), "smaller images") {
		t.Errorf("a body of %d bytes: %d %.500s", len(raw), status, answer)
	}
	d.works("")
}
