// Package kerneltest is for tests that start the kernels of this machine.
package kerneltest

import (
	"os"
	"path/filepath"
)

// Environ returns variables with which Python's kernel starts in two thirds of
// the time: without the debugger of notebooks. Nothing here uses it, and on
// Debian 12 to load it takes as long as much of the rest. dir is for what that
// needs.
func Environ(dir string) ([]string, error) {
	const missing = "raise ImportError('the kernels of tests have no debugger')\n"
	if err := os.WriteFile(filepath.Join(dir, "debugpy.py"), []byte(missing), 0o644); err != nil { //nolint:gosec // others run kernels too
		return nil, err
	}
	return []string{"PYTHONPATH=" + dir, "PYTHONDONTWRITEBYTECODE=1"}, nil
}
