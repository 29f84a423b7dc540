package cell

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Request is a cell of code to run in a kernel.
type Request struct {
	// Kernel names the kernel; "" is the one that has the language's name.
	Kernel string
	// Language is that of the kernel that is made when there is none of this
	// name: a language or a kernelspec of the image. "" is the language of the
	// kernel where that is known, else the sandbox's runtime, else Python.
	Language string
	Code     string
	// Timeout interrupts the cell, which leaves the kernel's state as it is; nil
	// is the sandbox's time limit for commands, 0 none. It does not count while
	// the cell waits for those before it.
	Timeout *time.Duration
	Stdin   bool // the cell may ask for input, which is written to its standard input
	// Cwd and Env are for a kernel that is made for this cell.
	Cwd string
	Env map[string]string
}

// Kind is the kind of execs that are cells.
const Kind = "code.run"

// Spec is the exec of a request in a sandbox. languageOf is asked for the language
// of a kernel that exists, where nothing else says it.
func (req Request) Spec(box sandbox.Spec, languageOf func(kernel string) (string, error)) (sandbox.ExecSpec, error) {
	c := sandbox.Cell{Kernel: req.Kernel, Language: canonicalLanguage(req.Language), Code: req.Code}
	switch {
	case c.Kernel == "":
		c.Language = cmp.Or(c.Language, defaultLanguage(box))
		c.Kernel = c.Language
	case c.Language == "" && namesLanguage(c.Kernel):
		c.Language = c.Kernel
	}
	spec := sandbox.ExecSpec{
		Kind: Kind, Cell: &c, Cwd: req.Cwd, Env: req.Env, Timeout: req.Timeout, Stdin: req.Stdin,
	}
	if err := spec.Validate(); err != nil {
		return spec, err
	}
	if c.Language == "" {
		var err error
		if c.Language, err = languageOf(c.Kernel); err != nil {
			return spec, err
		}
	}
	detail, err := json.Marshal(detail{Kernel: c.Kernel, Language: c.Language})
	spec.Detail = detail
	return spec, err
}

// detail is what histories show of a cell. As for commands that is not the
// code.
type detail struct {
	Kernel   string `json:"kernel"`
	Language string `json:"language,omitempty"`
}

// defaultLanguage is that of code in a sandbox when nothing names one.
func defaultLanguage(box sandbox.Spec) string {
	return cmp.Or(box.Runtime, sandbox.RuntimePython)
}

// languageBash is no runtime: no package manager goes with it.
const languageBash = "bash"

// canonicalLanguage is the name that a language's default kernel has. What it
// does not know is a kernelspec's name.
func canonicalLanguage(name string) string {
	switch strings.ToLower(name) {
	case "python", "python3", "py", "ipython":
		return sandbox.RuntimePython
	case "node", "nodejs", "javascript", "js":
		return sandbox.RuntimeNode
	case "r", "ir":
		return sandbox.RuntimeR
	case "bash", "sh", "shell":
		return languageBash
	}
	return name
}

// namesLanguage reports whether a kernel's name alone says what to make.
func namesLanguage(kernel string) bool {
	switch kernel {
	case sandbox.RuntimePython, sandbox.RuntimeNode, sandbox.RuntimeR, languageBash:
		return true
	}
	return false
}
