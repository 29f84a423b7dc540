package httpapi

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// How long a waiting request waits, and how much output it carries.
const (
	LongestWait   = 10 * time.Minute
	DefaultOutput = 8 << 20  // bytes per stream
	LargestOutput = 64 << 20 // bytes per stream
	// HeldOutput is how much of both an answer holds until it is sent.
	HeldOutput = 128 << 10
)

// CapsOf is how much output an answer has, when the request asks for given.
func CapsOf(given *int64) live.OutputCaps {
	n := int64(DefaultOutput)
	if given != nil {
		n = min(*given, LargestOutput)
	}
	return live.OutputCaps{Stdout: n, Stderr: n, Hold: HeldOutput}
}

// UntilDrain bounds a wait to the life of the daemon.
func (s *Server) UntilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.Life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Drains reports whether the daemon has begun to stop.
func (s *Server) Drains() bool { return s.Life.Err() != nil }

// Output is a source for [sse.Pump].
func (s *Server) Output(id string, seq, after int64, follow bool) func(context.Context) iter.Seq2[journal.Entry, error] {
	return func(ctx context.Context) iter.Seq2[journal.Entry, error] {
		return s.Core.Execs().Output(ctx, id, seq, after, follow)
	}
}

// Charge counts what an answer holds until its request has ended.
func (s *Server) Charge(ctx context.Context, bytes int64) error {
	if s.Spool.Memory == nil {
		return nil
	}
	return s.Spool.Memory.Charge(ctx, bytes)
}

// Truncated counts the bytes that are not in the answer.
type Truncated struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
	Rich   int64 `json:"rich,omitempty" doc:"Of what a cell shows beside text."`
}

// Purged says what a purge gave back.
type Purged struct {
	Purged     bool  `json:"purged"`
	FreedBytes int64 `json:"freed_bytes" doc:"Of the host's disk."`
}

// EndText tells an end that is not the command's own in the only place that the
// dialect has for it.
func EndText(x *sandbox.Exit) string {
	if x == nil || x.Reason == sandbox.EndExited {
		return ""
	}
	if x.Message != "" {
		return string(x.Reason) + ": " + x.Message + "\n"
	}
	return string(x.Reason) + "\n"
}

// ExitCode is -1 when nobody knows it.
func ExitCode(x *sandbox.Exit) int {
	if x == nil || x.Code == nil {
		return -1
	}
	return *x.Code
}

// ReadBody reads an optional JSON object of any content type.
func (s *Server) ReadBody(r *http.Request, v any) error {
	data, err := front.ReadAtMost(r.Body, s.BodyLimit)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil
	}
	return front.DecodeLoose(data, v)
}
