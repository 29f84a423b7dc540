// Package startup has the code that the agent runs, silently, as the first
// cell of a new kernel: what makes values show themselves as cubby promises,
// whatever the image's own configuration says.
package startup

import (
	_ "embed"
	"strings"
)

var (
	//go:embed python.py
	python string
	//go:embed r.R
	r string
)

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
