package cli

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
)

func TestByteSize(t *testing.T) {
	tests := []struct {
		in   string
		want int64
	}{
		{"1024", 1024}, {"512MiB", 512 << 20}, {"512m", 512 << 20}, {"2g", 2 << 30}, {"2G", 2 << 30}, {"1GB", 1e9}, {"1.5g", 3 << 29},
	}
	for _, tt := range tests {
		var b byteSize
		if err := b.Set(tt.in); err != nil || int64(b) != tt.want {
			t.Errorf("Set(%q) = %d, %v, want %d", tt.in, b, err, tt.want)
		}
	}
	for _, in := range []string{"", "g", "-1m", "1x", "m5"} {
		var b byteSize
		if err := b.Set(in); err == nil {
			t.Errorf("Set(%q) = %d, want an error", in, b)
		}
	}
}

func TestEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("# comment\n\nA=file\nB=file=b\nHOME\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{Env: Env{Environ: []string{"HOME=/root", "TERM=xterm"}}}
	got, err := environment(a, []string{"A=flag", "TERM", "MISSING", "E="}, []string{file})
	want := map[string]string{"A": "flag", "B": "file=b", "HOME": "/root", "TERM": "xterm", "E": ""}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := environment(a, []string{"=x"}, nil); err == nil {
		t.Error("a variable without a name was taken")
	}
}

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
		{"archive", archiveName("root.tar.gz"), "root"},
		{"archive", archiveName("debian-12.tgz"), "debian-12"},
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
