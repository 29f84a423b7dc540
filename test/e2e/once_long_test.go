//go:build root && long

package e2e_test

// anyIsolation is where tests run that should not depend on the isolation.
var anyIsolation = []string{"gvisor", "container"}

// withAgents is where a coding agent works.
var withAgents = []string{"gvisor", "container"}

// everything: also what takes long and has a smaller test beside it.
const everything = true

// onPostgreSQL tells which scripts run on the second database.
func onPostgreSQL(string) bool { return true }
