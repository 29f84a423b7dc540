package cli

import (
	"bytes"
	"maps"
	"testing"

	"github.com/cubbyhq/cubby/client"
)

func TestTexts(t *testing.T) {
	code := 137
	tests := []struct{ what, got, want string }{
		{"quote", shellQuote("a b"), "'a b'"},
		{"quote", shellQuote("it's"), `'it'\''s'`},
		{"quote", shellQuote(""), "''"},
		{"quote", shellQuote("-x=/a.b"), "-x=/a.b"},
		{"exit", exitText(client.Exec{Status: client.ExecRunning}), "running"},
		{"exit", exitText(client.Exec{Status: client.ExecError, ExitCode: &code, Reason: "oom"}), "137 oom"},
		{"exit", exitText(client.Exec{Status: client.ExecError, Reason: "lost"}), "lost"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.what, tt.got, tt.want)
		}
	}
}

func TestTables(t *testing.T) {
	var out bytes.Buffer
	a := &app{Env: Env{Stdout: &out, Stderr: &out}}
	code := 0
	boxes := []client.Sandbox{
		{ID: "my-box", Status: client.Running, Isolation: "gvisor", Image: "base", Labels: map[string]string{"b": "2", "a": "1"}},
		{ID: "01hzy6t0000000000000000000", Status: client.Stopped, Isolation: "container", Image: "x\x1b[2J"},
	}
	if err := a.printBoxes(boxes); err != nil {
		t.Fatal(err)
	}
	boxes[0].Status = client.Sleeping
	boxes[1].Reason = "idle: this host cannot keep a sandbox's memory, so it was stopped and not put to sleep"
	if err := a.printBoxes(boxes); err != nil {
		t.Fatal(err)
	}
	if err := a.printExecs([]client.Exec{
		{Seq: 1, Status: client.ExecDone, ExitCode: &code, Reason: "exited", DurationMS: 12, Cmd: client.Cmd{Argv: []string{"echo", "a b"}}},
		{Seq: 2, Status: client.ExecRunning, Cmd: client.Cmd{Shell: "sleep 1 && echo \x1b"}},
		{Seq: 3, Status: client.ExecRunning, Kind: "code.run", Kernel: "python", Code: "x = 1\nx\n"},
	}); err != nil {
		t.Fatal(err)
	}
	golden(t, "tables.txt", out.String())
}

func TestDependencies(t *testing.T) {
	got, err := dependencies([]string{
		"pandas", "six=1.16.0", "numpy==1.26.4", "django>=4.2,<5", "flask ~= 3.0", "lodash@4.17.21", "@types/node", "@types/react@^18", "x!=1", "react@>=17 <19",
	})
	want := map[string]string{
		"pandas": "", "six": "1.16.0", "numpy": "1.26.4", "django": ">=4.2,<5", "flask": "~= 3.0", "lodash": "4.17.21",
		"@types/node": "", "@types/react": "^18", "x": "!=1", "react": ">=17 <19",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("dependencies = %v, %v, want %v", got, err, want)
	}
	for _, list := range [][]string{{""}, {"a", "a=1"}, {" "}} {
		if got, err := dependencies(list); err == nil {
			t.Errorf("dependencies(%q) = %v", list, got)
		}
	}
}
