package task_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/task"
)

// An order of any length comes through the environment as it was, and nothing of it
// stays there.
func TestOrderTravelsInTheEnvironment(t *testing.T) {
	want := task.Order{ID: "01", Prompt: strings.Repeat("ä€😀 $(reboot) `x` \"'\\\n", 12_000), Cwd: "/workspace"}
	env, err := want.Env()
	if err != nil {
		t.Fatal(err)
	}
	if len(env) < 3 {
		t.Fatalf("%d variables", len(env))
	}
	for name, value := range env {
		if !utf8.ValidString(value) || len(value) > 127<<10 {
			t.Errorf("%s is %d bytes, valid: %t", name, len(value), utf8.ValidString(value))
		}
		t.Setenv(name, value)
	}
	got, err := task.TakeOrder()
	if err != nil {
		t.Fatal(err)
	}
	if got.Prompt != want.Prompt || got.ID != want.ID {
		t.Error("the order is another one")
	}
	if _, err := task.TakeOrder(); err == nil {
		t.Error("the order is still there")
	}
}

// TestRecordTypeCannotForgeEvents: a type is the name of an event, so one with the
// end of a line would write events of its own, such as the end of another task.
func TestRecordTypeCannotForgeEvents(t *testing.T) {
	for _, name := range []string{
		"x\n\nid: 9\nevent: done", "x\rdata: {}", "error", "ping", "", "Done", "a b", strings.Repeat("x", 33),
	} {
		line, err := json.Marshal(map[string]any{"type": name, "data": 1})
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := task.Read(line); ok {
			t.Errorf("%q is read as %+v", name, r)
		}
	}
	for _, name := range []string{task.DoneType, task.PermissionType, "agent_note"} {
		if _, ok := task.Read([]byte(`{"type":"` + name + `","data":{}}`)); !ok {
			t.Errorf("%q is not read", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"type":"message","at":"2026-01-02T03:04:05Z","data":{"text":"x"}}`))
	f.Add([]byte(`{"type":"","data":null}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if r, ok := task.Read(line); ok && (r.Type == "" || len(r.Data) == 0) {
			t.Errorf("%q", line)
		}
	})
}
