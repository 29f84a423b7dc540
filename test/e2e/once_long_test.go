//go:build root && long

package e2e_test

// anyIsolation is where tests run that should not depend on the isolation.
var anyIsolation = []string{"gvisor", "container"}

// onPostgreSQL tells which scripts run on the second database.
func onPostgreSQL(string) bool { return true }
