//go:build root

package guest_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestKernelWhosePortIsTaken: kernels print why they fail when they cannot bind
// their port of outputs, and live on: a thread of ipykernel keeps its process.
func TestKernelWhosePortIsTaken(t *testing.T) {
	h := withKernels(t, nil)
	home := strings.TrimSpace(string(h.run(t, shell("echo $HOME")).stdout))
	// The first one finds that somebody has its port.
	const program = `
import json, os, socket, sys
tries, file, *command = sys.argv[1:]
with open(tries, 'a') as f: f.write('x')
if os.path.getsize(tries) == 1:
    taker = socket.socket()
    taker.bind(('127.0.0.1', json.load(open(file))['iopub_port']))
    taker.listen()
    os.set_inheritable(taker.fileno(), True)
os.execvp(command[0], command)`
	for name, command := range map[string][]string{
		"late-python": {"/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"},
		"late-r":      {"R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"},
	} {
		dir, tries := filepath.Join(home, ".local/share/jupyter/kernels", name), filepath.Join(home, name+"-tries")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string]any{
			"argv":     append([]string{"/usr/bin/python3", "-c", program, tries, "{connection_file}"}, command...),
			"language": name, "display_name": name,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "kernel.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(kernelContext(t), 50*time.Second) // a kernel that does not answer has 60
		defer cancel()
		if _, err := h.CreateKernel(ctx, sandbox.KernelSpec{Language: name}); err != nil {
			t.Errorf("CreateKernel(%s) = %v", name, err)
		}
		if got, err := os.ReadFile(tries); string(got) != "xx" {
			t.Errorf("%s: there were tries %q, %v, want two", name, got, err)
		}
	}
}
