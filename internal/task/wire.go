package task

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	// MaxPrompt bounds a prompt in bytes. What is longer goes into a file.
	MaxPrompt = 512 << 10
	// MaxRecord bounds a line that a supervisor prints, in bytes: a longer one is
	// not its.
	MaxRecord = 1 << 20
	// orderEnv begins the names of the variables that hold an order, each a part of
	// it: one alone may have 128 KiB on Linux.
	orderEnv  = "CUBBY_TASK_"
	orderPart = 96 << 10
)

// Env returns the variables that carry an order to its supervisor.
func (o Order) Env() (map[string]string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode the order of a task: %w", err)
	}
	env := make(map[string]string)
	for n := 0; len(text) > 0; n++ {
		end := min(orderPart, len(text))
		for end < len(text) && !utf8.RuneStart(text[end]) {
			end--
		}
		env[orderEnv+strconv.Itoa(n)] = string(text[:end])
		text = text[end:]
	}
	return env, nil
}

// TakeOrder reads the order out of this process's environment, and takes it out of
// there: an agent has no use for it.
func TakeOrder() (Order, error) {
	var text strings.Builder
	for n := 0; ; n++ {
		name := orderEnv + strconv.Itoa(n)
		part, ok := os.LookupEnv(name)
		if !ok {
			break
		}
		text.WriteString(part)
		if err := os.Unsetenv(name); err != nil {
			return Order{}, err
		}
	}
	var o Order
	if err := json.Unmarshal([]byte(text.String()), &o); err != nil {
		return Order{}, errs.E(errs.Invalid, "the order of the task cannot be read: %v", err)
	}
	return o, nil
}

// Read reads a line that a supervisor printed; ok is false when it is none of its
// records.
func Read(line []byte) (r Record, ok bool) {
	if len(line) > MaxRecord || json.Unmarshal(line, &r) != nil || !isType(r.Type) || len(r.Data) == 0 {
		return Record{}, false
	}
	return r, true
}

// isType reports whether a record can have a type, which becomes the name of a
// Server-Sent Event: it must not end a line there, nor be one of the names by which
// the host speaks about the stream.
func isType(name string) bool {
	switch {
	case name == "" || len(name) > 32, name == "error", name == "ping":
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == ""
}
