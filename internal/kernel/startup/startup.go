// Package startup has what the agent starts kernels with: a quicker way into
// ipykernel, and the code that it runs, silently, as the first cell of a new kernel,
// which makes values show themselves as cubby promises, whatever the image's own
// configuration says.
package startup

import (
	_ "embed"
	"slices"
	"strings"
)

var (
	//go:embed python.py
	python string
	//go:embed r.R
	r string
	//go:embed launch.py
	launch string
)

// Command returns what to start in place of a kernelspec's command: where that is
// Python with the module of ipykernel, what begins the same kernel in less time.
func Command(argv []string) []string {
	at := slices.Index(argv, "-m")
	if at < 1 || at+1 == len(argv) || argv[at+1] != "ipykernel_launcher" {
		return argv
	}
	for _, option := range argv[1:at] {
		if !strings.HasPrefix(option, "-X") || len(option) == 2 {
			return argv // its -m may be something else's
		}
	}
	// IPython writes all cells to a database, which [Code] turns off. To make it first would
	// take two syncs of the disk.
	return slices.Concat(argv[:at], []string{"-c", launch}, argv[at+2:], []string{"--HistoryManager.enabled=False"})
}

// Code returns the code for a language as kernelspecs name it ("python", "R"),
// "" when there is none. It changes no name of the user's and is quick; what
// the image lacks for a part of it is no error.
func Code(language string) string {
	switch strings.ToLower(language) {
	case "python":
		return python
	case "r":
		return r
	}
	return ""
}
