package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/task"
)

// told is what a narrator prints of lines of an agent.
func told(lines ...string) (records []string, r *lineReader, tell *narrator) {
	var out bytes.Buffer
	tell = newNarrator(newRecorder(&out, newRedactor([]string{"KEY=secret-value"}, nil), 0), time.Now)
	r = &lineReader{tell: tell}
	for _, line := range lines {
		r.line([]byte(line))
	}
	tell.pause()
	for line := range strings.Lines(out.String()) {
		if rec, ok := task.Read([]byte(line)); ok && rec.Type != task.DeltaType {
			records = append(records, fmt.Sprintf("%s %s", rec.Type, rec.Data))
		}
	}
	return records, r, tell
}

func TestTextToolStepFinish(t *testing.T) {
	t.Parallel()
	records, r, tell := told(
		`{"type":"step_start","sessionID":"ses_1","part":{"type":"step-start"}}`,
		`{"type":"text","sessionID":"ses_1","part":{"id":"p1","type":"text","text":"Hello secret-value"}}`,
		`{"type":"tool_use","sessionID":"ses_1","part":{"id":"p2","callID":"c1","type":"tool","tool":"write","state":{"status":"completed","input":{"filePath":"/workspace/a.txt"},"output":"ok"}}}`,
		`{"type":"step_finish","sessionID":"ses_1","part":{"type":"step-finish","tokens":{"input":5,"output":3,"reasoning":1,"cache":{"read":2,"write":4}},"cost":0.5}}`,
	)
	want := []string{
		`message {"role":"agent","text":"Hello [KEY]","message_id":"m1"}`,
		`tool {"name":"write","status":"completed","path":"/workspace/a.txt","tool_call_id":"c1","output":"ok"}`,
		`usage {"input":5,"output":3,"reasoning":1,"cache_read":2,"cache_write":4,"total":15,"cost":0.5}`,
	}
	if !slices.Equal(records, want) || r.session != "ses_1" {
		t.Errorf("records of %s:\n%s", r.session, strings.Join(records, "\n"))
	}
	if final, _, heard := tell.summary(); final != "Hello [KEY]" || !heard {
		t.Errorf("final message %q, heard: %t", final, heard)
	}
}

func TestErrorEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, line, want string }{
		{"CapturesMessage", `{"type":"error","error":{"name":"APIError","data":{"message":"no credit"}}}`, "no credit"},
		{"CapturesPlainMessage", `{"type":"error","error":{"message":"no credit"}}`, "no credit"},
		{"CapturesText", `{"type":"error","error":"no credit"}`, "no credit"},
		{"FallsBackToName", `{"type":"error","error":{"name":"APIError"}}`, "APIError"},
		{"NoFieldsStillCaptured", `{"type":"error"}`, "agent error (no message)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, r, _ := told(tt.line, `{"type":"error","error":"a later one"}`); r.fault != tt.want {
				t.Errorf("%q, want %q", r.fault, tt.want)
			}
		})
	}
}

func TestGarbageLinesSkipped(t *testing.T) {
	t.Parallel()
	records, r, _ := told(`{"type":`, `{}`, `[1,2]`, ``, `  `, `{"type":7}`, `{"type":"text","part":"x"}`, `{"type":"what is not known","part":{"type":"x"}}`)
	if len(records) > 0 || r.fault != "" {
		t.Errorf("%q, %q", records, r.fault)
	}
}

func TestToolDedupPerPartStatus(t *testing.T) {
	t.Parallel()
	line := func(status string) string {
		return `{"type":"tool_use","part":{"id":"p","type":"tool","tool":"bash","state":{"status":"` + status + `","input":{"command":"` + strings.Repeat("x", 300) + `"}}}}`
	}
	records, _, _ := told(line("pending"), line("running"), line("running"), line("completed"), line("completed"))
	if len(records) != 3 {
		t.Errorf("%q", records)
	}
	var call task.Tool
	if err := json.Unmarshal([]byte(strings.TrimPrefix(records[0], "tool ")), &call); err != nil || len(call.Path) != maxToolField {
		t.Errorf("path of %d characters, %v", len(call.Path), err)
	}
}

func TestStepFinishAccumulates(t *testing.T) {
	t.Parallel()
	line := `{"type":"step_finish","part":{"type":"step-finish","tokens":{"input":5,"output":3},"cost":0.25}}`
	_, _, tell := told(line, line)
	if _, got, _ := tell.summary(); got.Input != 10 || got.Output != 6 || got.Total != 16 || got.Cost != 0.5 {
		t.Errorf("%+v", got)
	}
}

func TestPartialTextThenError(t *testing.T) {
	t.Parallel()
	records, r, _ := told(`{"type":"text","part":{"id":"p1","type":"text","text":"half"}}`, `{"type":"error","error":"broken off"}`)
	if len(records) != 1 || r.fault != "broken off" {
		t.Errorf("%q, %q", records, r.fault)
	}
}

func TestClaudeStream(t *testing.T) {
	t.Parallel()
	records, r, _ := told(
		`{"type":"system","subtype":"init","session_id":"s1"}`,
		`{"type":"assistant","session_id":"s1","message":{"id":"m","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"I write."},{"type":"tool_use","id":"t1","name":"Write","input":{"file_path":"/a"}}]}}`,
		`{"type":"user","session_id":"s1","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"written"}]}]}}`,
		`{"type":"user","session_id":"s1","message":{"content":"a text"}}`,
		`{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"s1","total_cost_usd":0.1,"usage":{"input_tokens":4,"output_tokens":2,"cache_read_input_tokens":1}}`,
	)
	want := []string{
		`thought {"text":"hm","message_id":"m1"}`,
		`message {"role":"agent","text":"I write.","message_id":"m2"}`,
		`tool {"name":"Write","status":"running","path":"/a","tool_call_id":"t1"}`,
		`tool {"name":"Write","status":"completed","path":"/a","tool_call_id":"t1","output":"written"}`,
		`usage {"input":4,"output":2,"reasoning":0,"cache_read":1,"cache_write":0,"total":7,"cost":0.1}`,
	}
	if !slices.Equal(records, want) || r.session != "s1" || r.fault != "" {
		t.Errorf("%q of %q:\n%s", r.fault, r.session, strings.Join(records, "\n"))
	}
	_, r, _ = told(`{"type":"result","subtype":"success","is_error":true,"result":"API Error: 500"}`)
	if r.fault != "API Error: 500" {
		t.Errorf("fault: %q", r.fault)
	}
}

func FuzzLine(f *testing.F) {
	for _, line := range []string{
		`{"type":"text","part":{"id":"p1","type":"text","text":"Hello"}}`, `{"type":"assistant","message":{"content":[{"type":"text","text":"x"}]}}`,
		`{"type":"result","usage":{"input_tokens":4}}`, `{"type":"error","error":{"data":{"message":"x"}}}`, `plain`, `{`,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var out bytes.Buffer
		tell := newNarrator(newRecorder(&out, newRedactor([]string{"KEY=secret-value"}, nil), 0), time.Now)
		r := &lineReader{tell: tell}
		r.line([]byte(line))
		r.line([]byte(line))
		tell.pause()
		checkRecords(t, out.String(), "secret-value")
	})
}

// checkRecords fails when something is no record, or has a secret.
func checkRecords(t *testing.T, out, secret string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if _, ok := task.Read([]byte(line)); !ok {
			t.Errorf("no record: %.300q", line)
		}
	}
	if strings.Contains(out, secret) {
		t.Errorf("the secret is in %.1000q", out)
	}
}

func FuzzUpdate(f *testing.F) {
	for _, u := range []string{
		`{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"x"}}`,
		`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","rawInput":{"command":["a","b"]},"locations":[{"path":"/x"}]}`,
		"{\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":\"c\",\"status\":\"completed\",\"content\":[{\"type\":\"content\",\"content\":{\"type\":\"text\",\"text\":\"```console\\nx\\n```\"}}]}",
		`{"sessionUpdate":"plan","entries":[{"content":"x","status":"pending"}]}`,
		`{"sessionUpdate":"usage_update","cost":{"amount":1,"currency":"USD"}}`,
	} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, update string) {
		var out bytes.Buffer
		tell := newNarrator(newRecorder(&out, newRedactor([]string{"KEY=secret-value"}, nil), 0), time.Now)
		c := &client{tell: tell}
		for range 2 {
			c.read([]byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":`+update+`}}`), &bytes.Buffer{})
			c.read([]byte(update), &bytes.Buffer{})
		}
		tell.pause()
		checkRecords(t, out.String(), "secret-value")
	})
}
