package bridge

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func sent(e entry) string {
	content, _ := e["file_content"].(string)
	if e["encoding"] == "base64" {
		b, _ := base64.StdEncoding.DecodeString(content)
		content = string(b)
	}
	destination, _ := e["destination"].(string)
	return destination + "=" + content
}

func TestImports(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "a.txt"), "A")
	write(t, filepath.Join(dir, "tree/one"), "1")
	write(t, filepath.Join(dir, "tree/deep/two"), "2")
	if err := os.Symlink(file, filepath.Join(dir, "tree/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	in := newImports([]any{
		entry{"source": file},
		entry{"source": filepath.Join(dir, "tree"), "destination": "project/"},
		entry{"source": "name", "file_content": "inline"},
		entry{"session_id": "s", "path": "/workspace/x"},
		entry{"source": filepath.Join(dir, "empty")},
		entry{"source": filepath.Join(dir, "missing"), "destination": "m"},
		entry{"source": "/dev/null"},
		"nonsense",
	}, importable{dirs: []string{dir, "/dev"}, never: []string{"/proc"}})
	var got []string
	for _, e := range in.send {
		got = append(got, sent(e))
	}
	want := []string{"=A", "project/deep/two=2", "project/one=1", "=inline", "=", "m=", "="}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	done := make([]imported, len(in.send))
	for i := range done {
		done[i] = imported{Source: "x", Destination: "/workspace/d", Success: i != 5, Size: 1}
	}
	done[5].Error = "not allowed"
	a := in.answer(done)
	var lines []string
	for _, f := range a.Files {
		ok := "ok"
		if !f.Success {
			ok = f.Error
		}
		lines = append(lines, strings.ReplaceAll(f.Source, dir, "")+" "+f.Destination+" "+ok)
	}
	want = []string{
		"/a.txt /workspace/d ok", "/tree project/ ok", "x /workspace/d ok", "x /workspace/d ok",
		"/empty empty " + dir + "/empty has no files", "/missing /workspace/d openat missing: no such file or directory",
		"/dev/null  /dev/null is neither a file nor a directory", "x /workspace/d ok",
	}
	if diff := cmp.Diff(want, lines); diff != "" || a.Success || a.Files[1].Size != 2 {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestImportsAreBounded(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, maxImport+1); err != nil {
		t.Fatal(err)
	}
	small := write(t, filepath.Join(dir, "small"), "x")
	many := filepath.Join(dir, "many")
	for i := range maxImportFiles + 1 {
		write(t, filepath.Join(many, strings.Repeat("n", i%50+1)+string(rune('a'+i%26))+strings.Repeat("m", i/50)), "")
	}
	in := newImports([]any{entry{"source": big}, entry{"source": many}, entry{"source": small}}, importable{dirs: []string{dir}})
	if len(in.send) != 1 || sent(in.send[0]) != "=x" || in.parts[0].err == nil || in.parts[1].err == nil || in.parts[2].err != nil {
		t.Errorf("sent are %d entries; %+v", len(in.send), in.parts)
	}
}
