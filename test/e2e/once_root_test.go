//go:build root && !long

package e2e_test

import (
	"path/filepath"
	"slices"
	"strings"
)

// anyIsolation is where tests run that do not depend on the isolation.
var anyIsolation = []string{"container"}

// withAgents is where a coding agent works. To load one takes gVisor most of the time;
// a small one that an operator adds works in both, see TestTaskPush.
var withAgents = []string{"container"}

// everything: also what takes long and has a smaller test beside it.
const everything = false

// keptScripts are those about what a database keeps: rows that are listed,
// changed, bound together, raced for, and found again after a restart.
var keptScripts = []string{
	"archives", "async_exec", "capacity", "create_exec_destroy", "duplicate_id", "events", "events_follow", "exec_ends", "exports",
	"history_of_a_destroyed_sandbox", "idempotency", "idle_and_lifetime", "imports", "keepalive", "kernels", "list",
	"output_that_was_removed", "parallel_execs", "restart_of_the_daemon", "secrets_are_not_repeated", "sessions", "shutdown_destroys",
	"snapshots", "stop_start", "stream", "tenants", "threads", "threads_active", "tokens", "update",
}

// onPostgreSQL tells which scripts run on the second database too.
func onPostgreSQL(file string) bool {
	return slices.Contains(keptScripts, strings.TrimSuffix(filepath.Base(file), ".txtar"))
}
