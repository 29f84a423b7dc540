package llmtest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Aimock starts @copilotkit/aimock, a model of others' making that speaks the protocols
// of all providers, until the test ends, and returns its address. packages is where it
// is installed: a directory with node_modules, or a tar of one. Its answers are the
// fixtures, what its documents call so.
func Aimock(t testing.TB, packages string, fixtures any, flags ...string) (url string) {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"fixtures": fixtures})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "fixtures.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(packages, ".tar") {
		if out, err := exec.Command("tar", "--extract", "--file", packages, "--directory", dir, "./node_modules/@copilotkit/aimock").CombinedOutput(); err != nil {
			t.Fatalf("tar: %v: %s", err, out)
		}
		packages = dir
	}
	args := append([]string{filepath.Join(packages, "node_modules/@copilotkit/aimock/dist/cli.js"), "-p", "0", "-f", file}, flags...)
	return StartServer(t, exec.Command("node", args...), "listening on ")
}

// StartServer starts a program that runs until the test ends, and returns what its
// first line with the word behind has after that.
func StartServer(t testing.TB, server *exec.Cmd, behind string) string {
	t.Helper()
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server.Stderr = server.Stdout
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, says, ok := strings.Cut(lines.Text(), behind); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }() // until it is killed
			return strings.TrimSpace(says)
		}
		t.Log(lines.Text())
	}
	t.Fatalf("%s did not start", server)
	return ""
}
