package agent

import (
	"context"
	"log/slog"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/agent/toolset"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Sandboxes are hands in core's sandboxes. It implements [Hands].
type Sandboxes struct {
	core *core.Service
	set  *toolset.Toolset
	log  *slog.Logger
}

// NewSandboxes returns the hands that use a set of tools.
func NewSandboxes(s *core.Service, set *toolset.Toolset, log *slog.Logger) *Sandboxes {
	return &Sandboxes{s, set, log}
}

func (h *Sandboxes) thread(ctx context.Context, thread, sandbox string) *toolset.Thread {
	return h.set.Thread(auth.From(ctx), thread, toolset.Options{Sandbox: sandbox})
}

// Tools implements [Hands].
func (h *Sandboxes) Tools(ctx context.Context, thread, sandbox string) loop.Tools {
	return h.thread(ctx, thread, sandbox)
}

// Describe implements [Hands]. What cannot be found out is left out.
func (h *Sandboxes) Describe(ctx context.Context, thread, sandbox string) string {
	text, err := h.thread(ctx, thread, sandbox).Environment(ctx)
	if err != nil {
		h.log.WarnContext(ctx, "describe the sandboxes of a thread", telemetry.KeyErr, err)
		return ""
	}
	return "# What your computers have\n\n" + text
}

// Instructions implements [Hands].
func (h *Sandboxes) Instructions(ctx context.Context, thread, sandbox string) string {
	text, err := h.thread(ctx, thread, sandbox).Instructions(ctx)
	if err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "read AGENTS.md of a thread", telemetry.KeyErr, err)
	}
	return text
}

// Engage implements [Hands].
func (h *Sandboxes) Engage(ctx context.Context, thread string) (leave func()) {
	return h.core.Sandboxes().Engage(ctx, thread)
}

// End implements [Hands].
func (h *Sandboxes) End(ctx context.Context, thread string) error {
	return h.core.Threads().End(ctx, thread)
}
