// Package kernel names what goes in and out of a kernel, a long-lived
// interpreter that runs cells of code in one state: the [Cell], the [Output]s
// that it shows and the [Reply] that ends it, as the Jupyter protocol knows
// them. Its subpackages each talk to one sort of kernel.
//
// It runs inside the sandbox, in the agent. It starts no process.
package kernel

import (
	"encoding/json"
	"errors"
)

// Bundle is one value in several MIME types. Values are JSON: a string for
// text and for base64 of binary data, any value for types that end in json.
type Bundle map[string]json.RawMessage

// Output is one thing that a cell shows; exactly one field is set.
type Output struct {
	Stream  *Stream  `json:"stream,omitempty"`
	Display *Display `json:"display,omitempty"`
	Result  *Result  `json:"result,omitempty"`
	Error   *Error   `json:"error,omitempty"`
	Clear   *Clear   `json:"clear,omitempty"`
	Input   *Input   `json:"input,omitempty"`
	Kernel  *Notice  `json:"kernel,omitempty"`
	Done    *Done    `json:"done,omitempty"`

	// Cut is not 0 when it was too large to take. A Stream has its beginning
	// then, and as many encoded bytes followed; of everything else only its kind
	// and some of its names are left, and it had as many bytes.
	Cut int64 `json:"-"`
}

// Done is the last thing of a cell that the kernel has answered.
type Done struct {
	Count int `json:"execution_count"`
}

// Notice is about the kernel itself, from whoever runs it.
type Notice struct {
	// Restarted: what ran before this cell is forgotten, for Reason. Otherwise
	// the kernel ended under the cell.
	Restarted bool   `json:"restarted,omitempty"`
	Reason    string `json:"reason"`
}

// Stream is text on stdout or stderr.
type Stream struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Display is a value that was shown on purpose. One with an ID and Update
// replaces an earlier one.
type Display struct {
	Data     Bundle          `json:"data"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	ID       string          `json:"display_id,omitempty"`
	Update   bool            `json:"update,omitempty"`
}

// Result is the value of the cell's last expression.
type Result struct {
	Count    int             `json:"execution_count"`
	Data     Bundle          `json:"data"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Error is an exception that ended the cell.
type Error struct {
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// Clear asks that what was shown so far is removed, with Wait only when the
// next output comes.
type Clear struct {
	Wait bool `json:"wait"`
}

// Input is a question of the cell, which waits for the answer.
type Input struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password"`
}

// Cell is what to execute.
type Cell struct {
	Code string
	// Stdin lets the cell ask for input; otherwise asking is an error in it.
	Stdin bool
	// Silent leaves no trace in the kernel's history and count.
	Silent bool
	// Began is called once the kernel has begun with the cell: what interrupts it now
	// is not lost, and meant for no other cell. The number is what the kernel's client
	// calls the cell, 0 where it does not. It must not wait; nil is nobody.
	Began func(number int64)
}

// Reply is how a cell ended.
type Reply struct {
	Status string `json:"status"` // "ok", "error" or "aborted"
	Count  int    `json:"execution_count"`
	Error         // of status "error"
	// Leaves: the cell asked for the kernel's end, as quit() does. The kernel
	// runs nothing more, though it may take a moment to end.
	Leaves bool `json:"-"`
}

// ErrGone is what calls return when the connection to the kernel has ended.
var ErrGone = errors.New("the kernel is gone")
