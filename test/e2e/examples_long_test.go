//go:build root && long

package e2e_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestExampleLangGraphPython is TestExampleLangGraph with the program for Python.
func TestExampleLangGraphPython(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("../../scripts/example-python.sh")
	cmd.Stderr = os.Stderr
	python, err := cmd.Output()
	if err != nil {
		t.Fatalf("fetch the packages of the example: %v", err)
	}
	x := newExamples(t)
	x.approval(strings.TrimSpace(string(python)), x.install("../../examples/langgraph/approval.py"), "approval.py")
}
