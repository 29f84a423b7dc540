package agentapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/agentapi"
	"github.com/cubbyhq/cubby/internal/front/agentapi/modes"
	"github.com/cubbyhq/cubby/internal/poll"
)

func TestStream(t *testing.T) {
	r := newRig(t, false)
	for _, tt := range []struct{ modes, names string }{
		{``, "metadata values values values values"},
		{`,"stream_mode":"updates"`, "metadata updates updates updates"},
		{`,"stream_mode":["custom"]`, "metadata custom custom"},
		{`,"stream_mode":["messages-tuple"],"stream_subgraphs":true`, "metadata messages messages messages messages messages messages messages messages"},
		{`,"stream_mode":["tools","tasks"]`, "metadata tasks tasks tasks tools tools tools tasks tasks tasks"},
	} {
		res, err := r.request(t.Context(), "POST", "/agent/threads/"+r.thread()+"/runs/stream", says("call", tt.modes))
		if err != nil {
			t.Fatal(err)
		}
		h := res.Header
		if h.Get("Content-Type") != "text/event-stream" || !strings.HasPrefix(h.Get("Content-Location"), "/threads/") || h.Get("Location") != h.Get("Content-Location")+"/stream" {
			t.Errorf("headers = %v", h)
		}
		if got := names(events(t, res.Body)); got != tt.names {
			t.Errorf("%s: %s, want %s", tt.modes, got, tt.names)
		}
		res.Body.Close()
	}
}

func TestFailedStreamAndWait(t *testing.T) {
	r := newRig(t, false)
	got := r.do("POST", "/threads/"+r.thread()+"/runs/stream", says("fail", ""))
	list := events(t, strings.NewReader(got.body))
	last := list[len(list)-1]
	if last.name != "error" || !strings.Contains(last.data, `"error":"AuthenticationError"`) || !strings.Contains(last.data, `"message":`) {
		t.Errorf("stream = %+v", list)
	}
	thread := r.thread()
	got = r.do("POST", "/threads/"+thread+"/runs/wait", says("fail", ""))
	if got.status != 200 || !strings.HasPrefix(strings.TrimSpace(got.body), `{"__error__":{"error":"AuthenticationError","message":`) {
		t.Errorf("wait = %d %s", got.status, got.body)
	}
	if loc := got.header.Get("Location"); !strings.HasSuffix(loc, "/join") {
		t.Errorf("Location = %q", loc)
	}
	if got := r.do("GET", "/threads/"+thread, ""); !strings.Contains(got.body, `"status":"error"`) {
		t.Errorf("thread = %s", got.body)
	}
}

func TestPausedWait(t *testing.T) {
	r := newRig(t, false)
	thread := r.thread()
	got := r.do("POST", "/threads/"+thread+"/runs/wait", says("call", `,"interrupt_before":["look"]`))
	if !strings.Contains(got.body, `"__interrupt__":[{"id":"`) || !strings.Contains(got.body, `"action_requests"`) || !strings.Contains(got.body, `"messages"`) {
		t.Errorf("question = %s", got.body)
	}
	got = r.do("POST", "/threads/"+thread+"/runs/stream", `{"assistant_id":"agent","input":{},"command":{"resume":{"decisions":[{"type":"approve"}]}},"stream_mode":["values","updates"]}`)
	if n := names(events(t, strings.NewReader(got.body))); n != "metadata values updates values updates values" {
		t.Errorf("resumed: %s", n)
	}
	got = r.do("POST", "/threads/"+r.thread()+"/runs/wait", says("call", `,"interrupt_before":"*"`))
	if !strings.Contains(got.body, `"__interrupt__":[]`) {
		t.Errorf("breakpoint = %s", got.body)
	}
}

// TestComeBack: whoever comes back with an id gets what is behind it, to the letter,
// in each mode and in all of them.
func TestComeBack(t *testing.T) {
	r := newRig(t, false)
	sets := [][]string{modes.Names()}
	for _, name := range modes.Names() {
		sets = append(sets, []string{name})
	}
	thread := r.thread()
	made := r.do("POST", "/threads/"+thread+"/runs/stream", says("call", `,"stream_mode":["updates","custom"]`))
	path := "/threads/" + thread + "/runs/" + made.header.Get("Content-Location")[strings.LastIndex(made.header.Get("Content-Location"), "/")+1:] + "/stream"
	if got := r.do("GET", path, "", "Last-Event-ID", "-1"); got.body != made.body {
		t.Errorf("joined without modes:\n%s\nmade:\n%s", got.body, made.body)
	}
	for _, set := range sets {
		query := path + "?stream_mode=" + strings.Join(set, "&stream_mode=")
		whole := events(t, strings.NewReader(r.do("GET", query, "").body))
		if len(whole) < 2 {
			t.Errorf("%v: %d events", set, len(whole))
		}
		for i, e := range whole {
			rest := events(t, strings.NewReader(r.do("GET", query, "", "Last-Event-ID", e.id).body))
			if diff := cmp.Diff(whole[i+1:], rest, cmp.AllowUnexported(event{})); diff != "" && len(rest)+len(whole[i+1:]) > 0 {
				t.Fatalf("%v behind %s (-want +got):\n%s", set, e.id, diff)
			}
		}
	}
	if got := r.do("GET", path+`?stream_mode=["updates","custom"]`, ""); got.body != made.body {
		t.Errorf("with a list of JSON:\n%s", got.body)
	}
	for _, junk := range []string{"junk", "1", "1.", ".1", "-2.1", "1.-1", "1.1.1", "0.0", "99999999999999999999.0"} {
		if got := r.do("GET", path, "", "Last-Event-ID", junk); got.status != 400 {
			t.Errorf("Last-Event-ID %q = %d", junk, got.status)
		}
	}
}

func FuzzPosition(f *testing.F) {
	for _, id := range []string{"", "-1", "12.3", "1/12.3", "x"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		for name, read := range map[string]func(string) (string, error){"run": agentapi.FuzzedPosition, "thread": agentapi.FuzzedThreadPosition} {
			text, err := read(id)
			if err != nil {
				if errs.KindOf(err) != errs.Invalid {
					t.Errorf("%s %q: %v", name, id, err)
				}
				continue
			}
			if id == "" || id == "-1" {
				continue
			}
			if again, err := read(text); err != nil || again != text {
				t.Errorf("%s %q is read as %q, and that as %q, %v", name, id, text, again, err)
			}
		}
	})
}

// TestHeartbeat: clients take a comment with a blank line behind it for an event.
func TestHeartbeat(t *testing.T) {
	r := newRig(t, false)
	r.stop()
	r.beat = time.Millisecond
	r.start(false)
	thread := r.thread()
	res, err := r.request(t.Context(), "POST", "/agent/threads/"+thread+"/runs/stream", says("wait", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for before := ""; ; {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if before == ": heartbeat\n" && line == before {
			break // two of them, and no line between
		}
		before = line
	}
	close(r.release)
	rest, err := io.ReadAll(in)
	if err != nil || !strings.Contains(string(rest), "event: values") {
		t.Errorf("rest = %s, %v", rest, err)
	}
	got := r.do("POST", "/threads/"+thread+"/runs/wait", says("wait", ""))
	if !strings.Contains(got.body, "waited") {
		t.Errorf("wait = %s", got.body)
	}
}

func TestWaitBeats(t *testing.T) {
	r := newRig(t, false)
	r.stop()
	r.beat = time.Millisecond
	r.start(false)
	res, err := r.request(t.Context(), "POST", "/agent/threads/"+r.thread()+"/runs/wait", says("wait", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for range 3 {
		if line, err := in.ReadString('\n'); err != nil || line != "\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	close(r.release)
	rest, err := io.ReadAll(in)
	if err != nil || !strings.Contains(string(rest), `"messages"`) {
		t.Errorf("rest = %s, %v", rest, err)
	}
}

// status waits until a run has one.
func (r *rig) status(path, want string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	err := poll.Until(ctx, 5*time.Millisecond, 100*time.Millisecond, func() (bool, error) {
		return strings.Contains(r.do("GET", path, "").body, `"status":"`+want+`"`), nil
	})
	if err != nil {
		r.t.Fatalf("%s: %v; it is %s", path, err, r.do("GET", path, "").body)
	}
}

func TestLeavingClients(t *testing.T) {
	for _, tt := range []struct{ more, want string }{{`,"on_disconnect":"cancel"`, "interrupted"}, {``, "running"}} {
		r := newRig(t, false)
		ctx, leave := context.WithCancel(t.Context())
		res, err := r.request(ctx, "POST", "/agent/threads/"+r.thread()+"/runs/stream", says("wait", tt.more))
		if err != nil {
			t.Fatal(err)
		}
		r.waits()
		leave()
		res.Body.Close()
		path := res.Header.Get("Content-Location")
		r.status(path, tt.want)
		close(r.release)
		if tt.want == "running" {
			r.status(path, "success")
		}
	}
}

// TestClientsThatDoNotComeBack: the end of the daemon is nobody's leaving, but who is not
// back with the next one has left.
func TestClientsThatDoNotComeBack(t *testing.T) {
	for _, tt := range []struct{ path, more, want string }{
		{"/runs/stream", `,"on_disconnect":"cancel"`, "interrupted"},
		{"/runs/wait", `,"on_disconnect":"cancel"`, "interrupted"},
		{"/runs/stream", ``, "success"},
		{"/runs", `,"on_disconnect":"cancel"`, "success"}, // nobody was there
	} {
		r := newRig(t, false)
		res, err := r.request(t.Context(), "POST", "/agent/threads/"+r.thread()+tt.path, says("wait", tt.more))
		if err != nil {
			t.Fatal(err)
		}
		r.waits()
		r.stop()
		res.Body.Close()
		r.returns = time.Nanosecond
		r.start(false)
		if tt.want == "success" {
			close(r.release)
		}
		r.status(res.Header.Get("Content-Location"), tt.want)
		r.stop()
	}
}

func TestBusyAndCancel(t *testing.T) {
	r := newRig(t, false)
	thread := "/threads/" + r.thread()
	var run struct {
		ID string `json:"run_id"`
	}
	r.do("POST", thread+"/runs", says("wait", "")).into(t, &run)
	r.waits()
	if got := r.do("POST", thread+"/runs", says("hi", `,"multitask_strategy":"reject"`)); got.status != http.StatusUnprocessableEntity {
		t.Errorf("second run = %d %s", got.status, got.body)
	}
	if got := r.do("POST", thread+"/state", `{"values":{"messages":[]}}`); got.status != http.StatusConflict {
		t.Errorf("state = %d %s", got.status, got.body)
	}
	if got := r.do("DELETE", thread+"/runs/"+run.ID, ""); got.status != http.StatusConflict {
		t.Errorf("delete = %d %s", got.status, got.body)
	}
	got := r.do("POST", thread+"/runs/"+run.ID+"/cancel?wait=1", "")
	if got.status != 200 || !strings.Contains(got.body, `"status":"interrupted"`) {
		t.Errorf("cancel = %d %s", got.status, got.body)
	}
	joined := r.do("GET", thread+"/runs/"+run.ID+"/stream", "")
	if list := events(t, strings.NewReader(joined.body)); list[len(list)-1].name == "error" {
		t.Errorf("a canceled run ends with %+v", list[len(list)-1])
	}
	if got := r.do("DELETE", thread+"/runs/"+run.ID, ""); got.status != http.StatusNoContent {
		t.Errorf("delete = %d %s", got.status, got.body)
	}
	// Without a word of what to do, a run that nobody follows gives way.
	r.do("POST", thread+"/runs", says("wait", "")).into(t, &run)
	r.waits()
	if got := r.do("POST", thread+"/runs/wait", says("hi", "")); got.status != 200 || !strings.Contains(got.body, "Yes.") {
		t.Errorf("next = %d %s", got.status, got.body)
	}
	r.do("POST", thread+"/runs", says("wait", "")).into(t, &run)
	r.waits()
	if got := r.do("POST", "/runs/cancel", `{"status":"all"}`); got.status != http.StatusNoContent {
		t.Errorf("cancel all = %d %s", got.status, got.body)
	}
	r.status(thread+"/runs/"+run.ID, "interrupted")
}

// TestStoppingDaemon: a stream that the daemon's end cuts off is broken, so that its
// client comes back, and the next daemon has the rest.
func TestStoppingDaemon(t *testing.T) {
	r := newRig(t, false)
	res, err := r.request(t.Context(), "POST", "/agent/threads/"+r.thread()+"/runs/stream", says("wait", `,"on_disconnect":"cancel"`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	first, err := read(in, 2)
	if err != nil {
		t.Fatal(err)
	}
	r.waits()
	r.stop()
	if _, err := io.ReadAll(in); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("the stream ended with %v", err)
	}
	close(r.release)
	r.start(false)
	got := r.do("GET", res.Header.Get("Location"), "", "Last-Event-ID", first[1].id)
	list := events(t, strings.NewReader(got.body))
	if len(list) == 0 || !strings.Contains(list[len(list)-1].data, "waited") || !slices.ContainsFunc(list, func(e event) bool { return e.name == "metadata" && strings.Contains(e.data, `"attempt":2`) }) {
		t.Errorf("rest = %+v", list)
	}
}

func TestTemporaryThreads(t *testing.T) {
	r := newRig(t, false)
	for _, path := range []string{"/runs/stream", "/runs/wait"} {
		if got := r.do("POST", path, says("hi", "")); got.status != 200 || !strings.Contains(got.body, "Yes.") {
			t.Errorf("%s = %d %s", path, got.status, got.body)
		}
	}
	var list []struct {
		Thread string `json:"thread_id"`
		Run    string `json:"run_id"`
	}
	r.do("POST", "/runs/batch", "["+says("hi", "")+","+says("hi", "")+"]").into(t, &list)
	if len(list) != 2 || list[0].Thread == list[1].Thread {
		t.Fatalf("batch = %+v", list)
	}
	kept := r.do("POST", "/runs/wait", says("hi", `,"on_completion":"keep"`))
	thread, _, _ := strings.Cut(kept.header.Get("Content-Location"), "/runs/")
	if got := r.do("GET", thread+"/state", ""); !strings.Contains(got.body, "Yes.") {
		t.Errorf("kept = %d %s", got.status, got.body)
	}
}

func TestThreadStream(t *testing.T) {
	r := newRig(t, false)
	thread := r.thread()
	r.do("POST", "/threads/"+thread+"/runs/wait", says("hi", ""))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	open := func(headers ...string) *bufio.Reader {
		res, err := r.request(ctx, "GET", "/agent/threads/"+thread+"/stream?stream_mode=updates", "", headers...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return bufio.NewReader(res.Body)
	}
	news, all := open(), open("Last-Event-ID", "-1")
	r.do("POST", "/threads/"+thread+"/runs/wait", says("again", ""))
	got, err := read(news, 2)
	if err != nil || names(got) != "metadata updates" {
		t.Fatalf("news = %+v, %v", got, err)
	}
	both, err := read(all, 4)
	if err != nil || names(both) != "metadata updates metadata updates" {
		t.Fatalf("all = %+v, %v", both, err)
	}
	rest, err := read(open("Last-Event-ID", both[0].id), 3)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(both[1:], rest, cmp.AllowUnexported(event{})); diff != "" {
		t.Error(diff)
	}
	if got := r.do("GET", "/threads/"+thread+"/stream", "", "Last-Event-ID", "junk"); got.status != 400 {
		t.Errorf("junk = %d", got.status)
	}
}
