package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The text messages of the daemon. Binary ones are the terminal's output.

// attached is the first message.
type attached struct {
	Type   string `json:"type"` // "attached"
	Name   string `json:"name"`
	Seq    int64  `json:"seq"`
	Offset int64  `json:"offset"` // of the first byte of output that follows
	New    bool   `json:"new"`
}

// skipped says that output is missing before what follows.
type skipped struct {
	Type   string `json:"type"` // "skipped"
	Bytes  int64  `json:"bytes"`
	Offset int64  `json:"offset"` // of what follows
}

// exit is the last message of a terminal whose program has ended.
type exit struct {
	Type     string            `json:"type"` // "exit"
	ExitCode *int              `json:"exit_code"`
	Reason   sandbox.EndReason `json:"reason"`
	Message  string            `json:"message,omitempty"`
}

// parseText reads a text message of a client, of which there is one kind:
// {"type":"resize","cols":80,"rows":24}. It returns errs.Invalid and nothing
// else.
func parseText(b []byte) (sandbox.WindowSize, error) {
	var m struct {
		Type string `json:"type"`
		Cols uint16 `json:"cols"`
		Rows uint16 `json:"rows"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return sandbox.WindowSize{}, errs.E(errs.Invalid, "a text message is not one of the protocol's").Because(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return sandbox.WindowSize{}, errs.E(errs.Invalid, "a text message has more than one value")
	}
	if m.Type != "resize" {
		return sandbox.WindowSize{}, errs.E(errs.Invalid, "a text message has an unknown type")
	}
	size := sandbox.WindowSize{Cols: m.Cols, Rows: m.Rows}
	return size, size.Validate()
}
