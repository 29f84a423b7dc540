package kernels

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/kernel/jupyter"
)

func TestFindKind(t *testing.T) {
	kinds := []kernelKind{
		{spec: "aged", language: "python"}, {spec: "bash", language: "bash"}, {spec: "ir", language: "r"},
		{spec: "node", language: "node"}, {spec: "python3", language: "python"}, {spec: "xjs", language: "javascript"},
	}
	for asked, want := range map[string]string{
		"python": "python3", "Python3": "python3", "aged": "aged", "R": "ir", "ir": "ir", "javascript": "node", "js": "node",
		"node": "node", "bash": "bash", "sh": "bash", "xjs": "xjs",
	} {
		if got, err := findKind(kinds, asked); err != nil || got.spec != want {
			t.Errorf("findKind(%s) = %s, %v, want %s", asked, got.spec, err, want)
		}
	}
	for asked, want := range map[string]string{
		"cobol": `the sandbox's image has no kernel for "cobol"`,
		"r":     `the sandbox's image has no kernel for "r"; the image r has`,
	} {
		if _, err := findKind(kinds[:1], asked); !errors.Is(err, errs.NotFound) || errs.Public(err).Message != want {
			t.Errorf("findKind(%s) = %v, want %s", asked, err, want)
		}
	}
}

// The directories of kernelspecs belong to users: nothing in them makes the
// agent wait, or run as root what a user wrote.
func TestKernelspecsOfAHostileUser(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const spec = `{"argv":["x"],"language":"x","display_name":"X"}`
	const kernels = "home/user/.local/share/jupyter/kernels/"
	write(kernels+"good/kernel.json", spec)
	write("secret", "root:x:0:0")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, kernels, "fifo"), 0o755),
		syscall.Mkfifo(filepath.Join(root, kernels, "fifo/kernel.json"), 0o644),
		os.MkdirAll(filepath.Join(root, kernels, "link"), 0o755),
		os.Symlink(filepath.Join(root, "secret"), filepath.Join(root, kernels, "link/kernel.json")),
		os.Symlink("loop", filepath.Join(root, kernels, "loop")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * maxSpecEntries {
		write(kernels+"many"+string(rune('a'+i%26))+string(rune('a'+i/26))+"/kernel.json", spec)
	}
	found := jupyter.Find(specFiles{root: root}, "/home/user")
	if len(found) == 0 || len(found) > maxSpecEntries {
		t.Errorf("found %d kernelspecs", len(found))
	}
	for _, k := range found {
		if k.Argv[0] != "x" {
			t.Errorf("found %+v", k)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(filepath.Join(root, kernels, "good/kernel.json"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	for _, k := range jupyter.Find(specFiles{root: root, rootOnly: true}, "/home/user") {
		if k.Name == "good" {
			t.Error("root runs the kernel of a user")
		}
	}
}
