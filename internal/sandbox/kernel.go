package sandbox

import (
	"strings"
	"time"
)

// Cell is code for a kernel.
type Cell struct {
	Kernel string `json:"kernel"` // its name
	// Language is that of the kernel that is made when there is none of this
	// name.
	Language string `json:"language,omitempty"`
	Code     string `json:"code"`
}

// listedCode is how much of a cell's code, and of a command, lists show, in
// bytes.
const listedCode = 4 << 10

// Brief is [Exec.Listed] for who only looks at the list: of a long command, too,
// only the beginning. How much more there is, it does not say: the history may
// have cut the command already.
func (e Exec) Brief() Exec {
	e.Spec, _ = e.Listed().Spec.cut(listedCode, func(int, string) string { return "" })
	return e
}

// Listed is the exec for a list, which is not to hold thousands of long codes:
// of such only the beginning.
func (e Exec) Listed() Exec {
	if c := e.Spec.Cell; c != nil && len(c.Code) > listedCode {
		short := *c
		short.Code = strings.ToValidUTF8(c.Code[:listedCode], "") + "…"
		e.Spec.Cell = &short
	}
	return e
}

// KernelSpec is a kernel to make.
type KernelSpec struct {
	Name string // unique in the sandbox; "" takes the language's name
	// Language is a language ("python", "node", "r", "bash") or the name of a
	// kernelspec of the image.
	Language string
	Cwd      string            // default WorkspaceDir
	Env      map[string]string // on top of the sandbox's
	User     string            // default the sandbox's user
}

// KernelStatus is what a kernel does.
type KernelStatus string

const (
	KernelStarting KernelStatus = "starting"
	KernelIdle     KernelStatus = "idle"
	KernelBusy     KernelStatus = "busy"
	KernelDead     KernelStatus = "dead" // Reason says why; the next cell starts it anew
)

// Kernel is a long-lived interpreter in a running sandbox. It ends with the
// sandbox's stop.
type Kernel struct {
	Name        string
	Language    string // lower case: "python", "r", "node"
	Spec        string // the kernelspec's name; "node" for cubby's own
	DisplayName string
	Status      KernelStatus
	Reason      string
	Count       int64 // cells that ran in the present process
	PID         int64 // inside the sandbox; 0: no process
	Restarts    int64
	Waiting     int64 // cells behind the running one
	CreatedAt   time.Time
	StartedAt   time.Time // of its present process
}

// KernelKind is a kernel that an image brings.
type KernelKind struct {
	Spec        string
	Language    string
	DisplayName string
}
