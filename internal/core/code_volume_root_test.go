//go:build root && !race

package core_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core/cell"
)

// hostile are kernels that turn on whoever listens to them: the code has the
// key and the sockets of its own kernel. Whatever they do, the cell ends and
// the next one runs.
var hostile = []struct{ name, code string }{
	{"messages with odd headers", `
for header in ({"msg_type": "x" * (1 << 20)}, {"msg_type": 7}, {"msg_type": None, "date": []}, {}, [], "text", {"msg_id": {"a": 1}, "msg_type": "stream"}):
    publish(header, parent, {}, {"name": "stdout", "text": "odd\n"})
publish({"msg_type": "stream", "username": "x" * (4 << 20)}, parent, {}, {"name": "stdout", "text": "huge\n"})
publish({"msg_type": "stream"}, parent, [], {"name": "stdout", "text": "odd\n"})
for content in ([], 1, None, "x", {"name": 1, "text": 2}, {"data": 5}):
    for kind in ("stream", "display_data", "execute_result", "error", "status", "clear_output", "input_request"):
        publish({"msg_type": kind}, parent, {}, content)`},
	{"messages of others", `
for forged in ({"msg_id": "forged"}, {"msg_id": ""}, {}, {"msg_id": parent["msg_id"] + "x"}, {"msg_id": 5}):
    publish({"msg_type": "stream"}, forged, {}, {"name": "stdout", "text": "forged\n"})
    publish({"msg_type": "status"}, forged, {}, {"execution_state": "idle"})
print("mine")`},
	{"what is no text", `
for raw in (b'{"name":"stdout","text":"\xff\xfe"}', b'{"name":"stdout","text":"\\ud800"}', b'\xff\xff', b'', b'{"name":', b'{}' * 1000):
    publish({"msg_type": "stream"}, parent, {}, raw)
publish({"msg_type": "display_data"}, parent, {}, b'{"data":{"text/\xff":"\xff","text/plain":"\xc3"},"metadata":{}}')`},
	{"deep nesting", `
deep = b"[" * 100_000 + b"]" * 100_000
publish({"msg_type": "display_data"}, parent, {}, b'{"data":{"application/json":' + deep + b'},"metadata":{}}')
publish({"msg_type": "display_data"}, parent, deep, {"data": {}})
publish({"msg_type": "execute_result"}, deep, {}, {"data": {}})`},
	{"wrong signatures", `
from jupyter_client.session import Session
other = Session(key=b"other")
for _ in range(100):
    kernel.iopub_socket.send_multipart([b"x", b"<IDS|MSG>", b"nonsense", b"{}", b"{}", b"{}", b"{}"])
    kernel.iopub_socket.send_multipart([b"x"] * 100)
    kernel.iopub_socket.send_multipart(other.serialize(other.msg("stream", {"name": "stdout", "text": "x"}), ident=b"x"))`},
	{"an end before the end", `
publish({"msg_type": "status"}, parent, {}, {"execution_state": "idle"})
publish({"msg_type": "status"}, parent, {}, {"execution_state": "idle"})
print("after")`},
	{"very many displays", `
for i in range(30_000):
    publish({"msg_type": "display_data"}, parent, {}, {"data": {"text/plain": "x"}, "metadata": {}, "transient": {"display_id": str(i)}})`},
	{"noise on its connections", `
import os, stat
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.set_blocking(fd, False)
            os.write(fd, b"\xff" * 5000)
    except OSError:
        pass`},
	{"closed connections", `
import os, socket, stat
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            s = socket.socket(fileno=os.dup(fd))
            if s.family == socket.AF_INET: s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
import time; time.sleep(3600)`},
}

// publish sends a message with the right signature, whatever it holds.
const publish = `
import json, uuid
kernel = get_ipython().kernel
parent = kernel.get_parent()["header"]
parent = {k: v for k, v in parent.items() if isinstance(v, str)}
def publish(header, parent, metadata, content):
    if isinstance(header, dict): header = {"msg_id": uuid.uuid4().hex, "session": "s", "username": "u", "version": "5.3", "date": "2020-01-01T00:00:00Z", **header}
    parts = [p if isinstance(p, bytes) else json.dumps(p).encode() for p in (header, parent, metadata, content)]
    kernel.iopub_socket.send_multipart([b"topic", b"<IDS|MSG>", kernel.session.sign(parts), *parts])
`

func TestHostileKernels(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	limit := 2 * time.Minute
	for _, tt := range hostile {
		e := w.code("a", cell.Request{Code: publish + tt.code, Timeout: &limit})
		if e.Exec.Exit == nil {
			t.Errorf("%s: it did not end: %+v", tt.name, e.Exec)
		}
		if e.Error != nil && !strings.Contains(tt.name, "connections") {
			t.Errorf("%s: %+v, ended %+v", tt.name, e.Error, e.Exec.Exit)
		}
		if strings.Contains(e.Stdout, "forged") || tt.name == "messages of others" && e.Stdout != "mine\n" {
			t.Errorf("%s: stdout %.300q", tt.name, e.Stdout)
		}
		again := w.code("a", cell.Request{Code: "6 * 7", Timeout: &limit})
		// What is shown after a forged end may come late: the next cell has it.
		late := tt.name == "an end before the end" && again.Stdout == "after\n"
		if plainResult(again) != "42" || again.Stdout != "" && !late {
			t.Errorf("after %s: %+v, stdout %.300q, error %+v", tt.name, again.Exec.Exit, again.Stdout, again.Error)
		}
	}
}

// Nothing that code prints is too much: it is cut and the code goes on.
func TestCodeThatPrintsTooMuch(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	// The journal keeps 1 MiB of it.
	e := w.python("a", "for _ in range(300): print('x' * 99_999)\nraise ValueError('kept')")
	if e.Success || e.Error == nil || e.Error.Type != "ValueError" || e.Error.Message != "kept" {
		t.Errorf("the error is %+v", e.Error)
	}
	want := "\n\n... [truncated — 30000000 chars total, showing first 50000]"
	if !strings.HasSuffix(e.Stdout, want) || len(e.Stdout) != 50_000+len(want) || e.Truncated["stdout"] != 30_000_000 {
		t.Errorf("stdout has %d bytes and ends %q, truncated %v", len(e.Stdout), e.Stdout[max(0, len(e.Stdout)-80):], e.Truncated)
	}
	if e := w.python("a", "print('x' * 60_000)"); !strings.HasSuffix(e.Stdout, "\n\n... [truncated — 60001 chars total, showing first 50000]") || !e.Success {
		t.Errorf("60,000 characters end %q", e.Stdout[max(0, len(e.Stdout)-80):])
	}
}
