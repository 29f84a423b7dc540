package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/errs"
)

// The exit codes of cubby itself. run, exec and shell exit with the code of
// the command in the sandbox, and with exitOwn for everything else, so that
// the two cannot be taken for one another.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	exitOwn   = 125
	// exitSignal + n: cubby was ended by signal n.
	exitSignal = 128
)

// usageError is a mistake on the command line.
type usageError struct {
	cmd *cobra.Command
	err error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// ownExit marks commands that exit with the code of what they ran, so that a
// mistake on their command line must not look like one.
const ownExit = "exits with the command's code"

// codeError ends the process with a code of its own. A nil err says nothing.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// own marks every failure of a command that otherwise exits with the code of
// what it ran.
func own(err error) error {
	var code *codeError
	if err == nil || errors.As(err, &code) {
		return err
	}
	return &codeError{exitOwn, err}
}

// exit reports err and decides the code of the process. It is the only place
// that does.
func (a *app) exit(err error) int {
	var usage usageError
	var code *codeError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		if code.err != nil {
			a.report(code.err)
		}
		return code.code
	case errors.As(err, &usage):
		a.report(err)
		if usage.cmd.Annotations[ownExit] != "" {
			return exitOwn
		}
		return exitUsage
	case isUnknownCommand(err):
		a.report(err)
		return exitUsage
	case a.interrupted() != 0 && errors.Is(err, context.Canceled):
		return exitSignal + a.interrupted()
	default:
		a.report(err)
		return exitError
	}
}

// isUnknownCommand: cobra has no type for it.
func isUnknownCommand(err error) bool { return strings.HasPrefix(err.Error(), "unknown command ") }

// interrupted is the number of the signal that ended the command, or 0.
func (a *app) interrupted() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return signalNumber(a.signaled)
}

// report prints an error, and under it what to do.
func (a *app) report(err error) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			a.report(e)
		}
		return
	}
	fmt.Fprintf(a.Stderr, "cubby: %s\n", strings.TrimSpace(err.Error()))
	var usage usageError
	var remote *client.Error
	var local *errs.Error
	var refused *client.GitError
	var missing *client.PackagesError
	hint := ""
	switch {
	case errors.As(err, &usage):
		hint = fmt.Sprintf("%s --help", usage.cmd.CommandPath())
	case errors.As(err, &remote):
		hint = remote.Hint
		if remote.Code == client.Unauthorized && hint == "" {
			hint = "set CUBBY_TOKEN to one of the daemon's tokens"
		}
		if remote.RetryAfter > 0 {
			hint = join(hint, fmt.Sprintf("try again in %s", remote.RetryAfter))
		}
		if remote.Code == client.Internal && remote.RequestID != "" {
			hint = join(hint, "the daemon's log has more under request "+remote.RequestID)
		}
	case errors.As(err, &refused):
		hint = refused.Hint
	case errors.As(err, &missing):
		hint = missing.Hint
	case errors.As(err, &local):
		hint = errs.Public(err).Hint
	}
	if hint != "" {
		fmt.Fprintf(a.Stderr, "  %s\n", strings.ReplaceAll(hint, "\n", "\n  "))
	}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
