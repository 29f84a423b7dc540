// Package telemetry is how cubby tells its operator what it does: the set-up
// of structured logs with the names of their keys, and the Prometheus metrics.
// It keeps no global logger or registry: both are made here once and handed
// to whoever needs them. Command lines, env values, tokens and file contents
// never reach it.
package telemetry

import (
	"io"
	"log/slog"
)

// The keys of log attributes, so that one thing has one name in every line.
const (
	KeyErr       = "err"
	KeySandbox   = "sandbox" // the id that users know
	KeyUID       = "uid"     // the internal uid
	KeySeq       = "seq"
	KeyPrincipal = "principal"
	KeyRequest   = "request_id"
	KeyMethod    = "method"
	KeyRoute     = "route" // the pattern, never the path: paths hold ids and file names
	KeyStatus    = "status"
	KeyDuration  = "duration"
	KeyRemote    = "remote"
	KeyBytes     = "bytes"
)

// NewLogger returns a logger that writes lines of text or JSON to w.
func NewLogger(w io.Writer, level slog.Level, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
