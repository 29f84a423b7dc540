package terminal_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/front/terminal"
)

const token = "terminal-test-token"

// viewer is a client of the door.
type viewer struct {
	t    *testing.T
	ctx  context.Context
	conn *websocket.Conn

	seq, offset int64
	text        string
	exit        map[string]any
}

// message is every text message of the daemon.
type message struct {
	Type   string `json:"type"`
	Seq    int64  `json:"seq"`
	Offset int64  `json:"offset"`
	New    bool   `json:"new"`
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func dial(t *testing.T, url, query string, o *websocket.DialOptions) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	conn, res, err := websocket.Dial(limited(t), url+"/v1/sandboxes/box/terminal?"+query, o)
	if err == nil {
		conn.SetReadLimit(1 << 20)
		t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, res, err
}

func look(t *testing.T, url, query string) *viewer {
	t.Helper()
	conn, res, err := dial(t, url, query, &websocket.DialOptions{
		Subprotocols: []string{terminal.Subprotocol, "cubby.token." + base64.RawURLEncoding.EncodeToString([]byte(token))},
	})
	if err != nil {
		t.Fatalf("dial %s: %v, %+v", query, err, res)
	}
	if conn.Subprotocol() != terminal.Subprotocol {
		t.Errorf("the daemon chose %q", conn.Subprotocol())
	}
	v := &viewer{t: t, ctx: limited(t), conn: conn}
	kind, data, err := conn.Read(v.ctx)
	var m message
	if err != nil || kind != websocket.MessageText || json.Unmarshal(data, &m) != nil || m.Type != "attached" {
		t.Fatalf("the first message is %v %q, %v", kind, data, err)
	}
	v.seq, v.offset = m.Seq, m.Offset
	return v
}

func (v *viewer) typed(keys string) {
	v.t.Helper()
	if err := v.conn.Write(v.ctx, websocket.MessageBinary, []byte(keys)); err != nil {
		v.t.Fatalf("type: %v", err)
	}
}

// next reads one message; an error is the end.
func (v *viewer) next() error {
	kind, data, err := v.conn.Read(v.ctx)
	if err != nil {
		return err
	}
	if kind == websocket.MessageBinary {
		v.text += string(data)
		v.offset += int64(len(data))
		return nil
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m["type"] == "exit" {
		v.exit = m
	}
	return nil
}

func (v *viewer) wait(text string) {
	v.t.Helper()
	for !strings.Contains(v.text, text) {
		if err := v.next(); err != nil {
			v.t.Fatalf("%v before %q; the terminal shows\n%q", err, text, v.text)
		}
	}
}

// end reads to the end and returns its code.
func (v *viewer) end() websocket.StatusCode {
	v.t.Helper()
	for {
		if err := v.next(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// start runs a daemon that has the sandbox "box".
func start(t *testing.T) *daemontest.Daemon {
	t.Helper()
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = "me:" + token + ",you:other-terminal-token" }})
	if status, body := call(t, d.URL, "POST", "/v1/sandboxes", `{"id":"box"}`); status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, body)
	}
	return d
}

func call(t *testing.T, url, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(limited(t), method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestTerminal(t *testing.T) {
	d := start(t)
	one := look(t, d.URL, "cols=93&rows=33")
	one.typed("stty size\r")
	one.wait("33 93")
	if err := one.conn.Write(one.ctx, websocket.MessageText, []byte(`{"type":"resize","cols":70,"rows":20}`)); err != nil {
		t.Fatal(err)
	}
	one.typed("until stty size | grep '20 70'; do sleep 0.05; done; echo now=$((40+2))\r")
	one.wait("now=42")
	seq, offset := one.seq, one.offset
	_ = one.conn.CloseNow() // a viewer that loses its connection

	two := look(t, d.URL, "name=main")
	two.wait("33 93")
	two.wait("now=42")
	three := look(t, d.URL, fmt.Sprintf("seq=%d&after=%d", seq, offset))
	two.typed("echo to-$((1+1))-all\r")
	two.wait("to-2-all")
	three.wait("to-2-all")
	if strings.Contains(three.text, "now=42") || three.seq != seq {
		t.Errorf("coming back to offset %d of %d shows %q of %d", offset, seq, three.text, three.seq)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		status, body := call(t, d.URL, "GET", "/v1/sandboxes/box/terminals", "")
		if status == http.StatusOK && strings.Contains(body, `"name":"main"`) && strings.Contains(body, `"cols":70,"rows":20`) && strings.Contains(body, `"viewers":2`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the list: %d %s; want main with two viewers", status, body)
		}
	}
	two.typed("exit 7\r")
	for name, v := range map[string]*viewer{"two": two, "three": three} {
		if code := v.end(); code != websocket.StatusNormalClosure || v.exit["exit_code"] != 7.0 || v.exit["reason"] != "exited" {
			t.Errorf("%s ended with %d and %v", name, code, v.exit)
		}
	}
	past := look(t, d.URL, fmt.Sprintf("seq=%d", seq))
	if code := past.end(); code != websocket.StatusNormalClosure || past.exit["exit_code"] != 7.0 || !strings.Contains(past.text, "to-2-all") {
		t.Errorf("the ended terminal: %d, %v, %q", code, past.exit, past.text)
	}

	killed := look(t, d.URL, "name=other&cmd=cat")
	if status, body := call(t, d.URL, "DELETE", "/v1/sandboxes/box/terminals/other", ""); status != http.StatusNoContent {
		t.Errorf("close: %d %s", status, body)
	}
	if code := killed.end(); code != websocket.StatusNormalClosure || killed.exit["reason"] != "killed" {
		t.Errorf("a closed terminal: %d, %v", code, killed.exit)
	}
	if status, _ := call(t, d.URL, "DELETE", "/v1/sandboxes/box/terminals/other", ""); status != http.StatusNotFound {
		t.Errorf("close again: %d", status)
	}
}

// TestGarbage: what is no message of the protocol ends the connection with a
// code that says so, and the terminal goes on.
func TestGarbage(t *testing.T) {
	d := start(t)
	for _, tt := range []struct {
		name string
		kind websocket.MessageType
		data string
		want websocket.StatusCode
	}{
		{"no JSON", websocket.MessageText, "hello", websocket.StatusInvalidFramePayloadData},
		{"no text", websocket.MessageText, "\xff\xfe", websocket.StatusInvalidFramePayloadData},
		{"unknown type", websocket.MessageText, `{"type":"run","cmd":"id"}`, websocket.StatusInvalidFramePayloadData},
		{"impossible size", websocket.MessageText, `{"type":"resize","cols":0,"rows":1}`, websocket.StatusInvalidFramePayloadData},
		{"too long", websocket.MessageBinary, strings.Repeat("x", 300<<10), websocket.StatusMessageTooBig},
	} {
		query := "cmd=cat"
		if tt.want == websocket.StatusMessageTooBig {
			query += "&name=other" // some of it is typed before it is too long
		}
		v := look(t, d.URL, query)
		// Who still writes when the daemon ends the connection does not read why.
		err := v.conn.Write(v.ctx, tt.kind, []byte(tt.data))
		if code := v.end(); code != tt.want && (err == nil || code != -1) {
			t.Errorf("%s: %d, want %d (write: %v)", tt.name, code, tt.want, err)
		}
	}
	v := look(t, d.URL, "")
	v.typed("still here\r")
	v.wait("still here\r\nstill here")
}

// TestUnreadInput: a program that does not read its input holds up whoever
// types without end, and takes no memory for it.
func TestUnreadInput(t *testing.T) {
	d := start(t)
	v := look(t, d.URL, "cmd=stty+raw+-echo%3B+echo+ready%3B+sleep+60")
	v.wait("ready")
	chunk := strings.Repeat("x", 64<<10)
	for range 64 {
		if v.conn.Write(v.ctx, websocket.MessageBinary, []byte(chunk)) != nil {
			break
		}
	}
	if code := v.end(); code != websocket.StatusPolicyViolation {
		t.Errorf("ended with %d, want %d", code, websocket.StatusPolicyViolation)
	}
	other := look(t, d.URL, "") // others see it still
	other.wait("ready")
}

func TestRefusals(t *testing.T) {
	d := start(t)
	header := func(secret string) http.Header { return http.Header{"Authorization": {"Bearer " + secret}} }
	for _, tt := range []struct {
		name, query string
		header      http.Header
		want        int
	}{
		{"no token", "", nil, 401},
		{"wrong token", "", header("wrong-token-of-nobody"), 401},
		{"unknown parameter", "shell=1", header(token), 400},
		{"twice", "name=a&name=b", header(token), 400},
		{"half a size", "cols=80", header(token), 400},
		{"size", "cols=80&rows=70000", header(token), 400},
		{"offset", "after=-5", header(token), 400},
		{"name", "name=a/b", header(token), 400},
		{"no such seq", "seq=99", header(token), 404},
	} {
		_, res, err := dial(t, d.URL, tt.query, &websocket.DialOptions{HTTPHeader: tt.header})
		if err == nil || res == nil || res.StatusCode != tt.want {
			t.Errorf("%s: %v, %+v, want %d", tt.name, err, res, tt.want)
		}
	}
	if status, body := call(t, d.URL, "GET", "/v1/sandboxes/box/terminal", ""); status != 400 || !strings.Contains(body, "WebSocket") {
		t.Errorf("without a handshake: %d %s", status, body)
	}
	if status, body := call(t, d.URL, "GET", "/v1/sandboxes/box/terminals", ""); status != 200 || !strings.Contains(body, `"terminals":[]`) {
		t.Errorf("after all that: %d %s", status, body)
	}
	if status, body := call(t, d.URL, "POST", "/v1/sandboxes/box/stop", ""); status != 200 {
		t.Fatalf("stop: %d %s", status, body)
	}
	if _, res, _ := dial(t, d.URL, "", &websocket.DialOptions{HTTPHeader: header(token)}); res == nil || res.StatusCode != 409 {
		t.Errorf("stopped: %+v", res)
	}
}

// TestForeignPage: without tokens the browser's word for where a page is from
// decides.
func TestForeignPage(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	if status, body := call(t, d.URL, "POST", "/v1/sandboxes", `{"id":"box"}`); status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, body)
	}
	for origin, want := range map[string]int{"http://evil.example": 403, "null": 403, d.URL: 101} {
		_, res, err := dial(t, d.URL, "", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		if res == nil || res.StatusCode != want {
			t.Errorf("origin %s: %v, %+v, want %d", origin, err, res, want)
		}
	}
}

// TestDaemonStops: viewers are told, and the stop does not wait for them.
func TestDaemonStops(t *testing.T) {
	d := start(t)
	v := look(t, d.URL, "")
	v.typed("echo be$((1+1))gun\r")
	v.wait("be2gun")
	ended := make(chan websocket.StatusCode, 1)
	go func() { ended <- v.end() }()
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if code := <-ended; code != websocket.StatusGoingAway {
		t.Errorf("the viewer was left with %d", code)
	}
}

// TestLeavingFreesTheViewer: also when the connection just breaks.
func TestLeavingFreesTheViewer(t *testing.T) {
	d := start(t)
	stay := look(t, d.URL, "cmd=cat")
	for _, leave := range []func(*websocket.Conn) error{
		(*websocket.Conn).CloseNow,
		func(c *websocket.Conn) error { return c.Close(websocket.StatusNormalClosure, "") },
	} {
		v := look(t, d.URL, "")
		if err := leave(v.conn); err != nil && !errors.Is(err, io.EOF) {
			t.Logf("leave: %v", err)
		}
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			_, body := call(t, d.URL, "GET", "/v1/sandboxes/box/terminals", "")
			if strings.Contains(body, `"viewers":1`) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the viewer is still counted: %s", body)
			}
		}
	}
	stay.typed("on\r")
	stay.wait("on\r\non")
}
