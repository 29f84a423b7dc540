package front

import (
	"errors"
	"fmt"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Public is [errs.Public] in the words of the API. Core says by a typed cause
// what it refused; where clients know a sentence for that, from sandbox-agent,
// all doors answer in this sentence, because programs compare it.
func Public(err error) errs.Info {
	info := errs.Public(err)
	var shown *errs.Error
	if !errors.As(err, &shown) {
		return info
	}
	switch why := shown.Unwrap().(type) { //nolint:errorlint // a cause deeper down belongs to an error that is not shown
	case *sandbox.ThreadFull:
		info.Message, info.Hint = threadFull(why)
	case *sandbox.ImportRefused:
		info.Message = importRefused(why)
	}
	return info
}

func threadFull(why *sandbox.ThreadFull) (message, hint string) {
	if why.All {
		return fmt.Sprintf("Maximum number of sessions (%d) reached. Stop an existing session first.", why.Max),
			fmt.Sprintf("tenant limit: its threads together may have %d running sandboxes (max-thread-sandboxes). Stop or destroy a sandbox of any thread, or have the operator raise the limit", why.Max)
	}
	return fmt.Sprintf("Maximum sessions per conversation (%d) reached. Stop an existing session first.", why.Max),
		"stop or destroy a sandbox of the thread, or name another thread: thread of a new sandbox, for MCP the header Cubby-Thread or cubby mcp --thread NAME; the operator's bound is max-per-thread"
}

func importRefused(why *sandbox.ImportRefused) string {
	switch why.Why {
	case sandbox.ImportNoSandbox:
		return "Source session " + why.Sandbox + " not found" + why.Fate
	case sandbox.ImportOtherThread:
		return "Source session belongs to another conversation"
	case sandbox.ImportNotExported:
		return "File not exported from source session (use export_files first)"
	case sandbox.ImportNoSource:
	}
	return "source or (session_id, path) is required"
}
