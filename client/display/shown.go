package display

import (
	"encoding/json"
	"fmt"
)

// Item is a value that a cell showed.
type Item struct {
	Data     Bundle          `json:"data"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	ID       string          `json:"display_id,omitempty"`
}

// String is short, for logs: the MIME types with their sizes.
func (d Item) String() string { return fmt.Sprint(d.Data) }

// Exception is an exception in a cell.
type Exception struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

func (e *Exception) Error() string {
	if e.Message == "" {
		return e.Type
	}
	return e.Type + ": " + e.Message
}

// Clear asks to remove what was shown.
type Clear struct {
	Wait bool `json:"wait"`
}

// Question is a question of a cell.
type Question struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password"`
}

// Notice is about the kernel under a cell.
type Notice struct {
	// Restarted: what ran before this cell is forgotten. Otherwise the kernel
	// ended under the cell.
	Restarted bool   `json:"restarted"`
	Reason    string `json:"reason"`
}
