package front_test

import (
	"fmt"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestWording has the sentences that programs compare, word for word.
func TestWording(t *testing.T) {
	refused := func(cause error) error {
		return fmt.Errorf("an act: %w", errs.E(errs.OverQuota, "no").Hint("go").Because(cause))
	}
	for _, tt := range []struct {
		err           error
		message, hint string
	}{
		{
			refused(&sandbox.ThreadFull{Max: 3}), "Maximum sessions per conversation (3) reached. Stop an existing session first.",
			"stop or destroy a sandbox of the thread, or name another thread: thread of a new sandbox, for MCP the header Cubby-Thread or cubby mcp --thread NAME; the operator's bound is max-per-thread",
		},
		{
			refused(&sandbox.ThreadFull{Max: 5, All: true}), "Maximum number of sessions (5) reached. Stop an existing session first.",
			"tenant limit: its threads together may have 5 running sandboxes (max-thread-sandboxes). Stop or destroy a sandbox of any thread, or have the operator raise the limit",
		},
		{refused(&sandbox.ImportRefused{Why: sandbox.ImportNoSource}), "source or (session_id, path) is required", "go"},
		{refused(&sandbox.ImportRefused{Why: sandbox.ImportNoSandbox, Sandbox: "'a'"}), "Source session 'a' not found", "go"},
		{
			refused(&sandbox.ImportRefused{Why: sandbox.ImportNoSandbox, Sandbox: "'a'", Fate: ": it was destroyed"}),
			"Source session 'a' not found: it was destroyed", "go",
		},
		{refused(&sandbox.ImportRefused{Why: sandbox.ImportOtherThread}), "Source session belongs to another conversation", "go"},
		{refused(&sandbox.ImportRefused{Why: sandbox.ImportNotExported}), "File not exported from source session (use export_files first)", "go"},
		{refused(nil), "no", "go"},
		// What is shown is the outermost error, whatever it wraps.
		{errs.E(errs.Internal, "outer").Because(refused(&sandbox.ThreadFull{Max: 3})), "outer", ""},
		{fmt.Errorf("foreign"), "internal error", ""},
	} {
		if got := front.Public(tt.err); got.Message != tt.message || got.Hint != tt.hint {
			t.Errorf("%v: %q, %q, want %q, %q", tt.err, got.Message, got.Hint, tt.message, tt.hint)
		}
		if got, want := front.Public(tt.err).Kind, errs.KindOf(tt.err); got != want {
			t.Errorf("%v: %s, want %s", tt.err, got, want)
		}
	}
}
