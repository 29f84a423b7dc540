//go:build root && long

package e2e_test

// anyIsolation is where tests run that should not depend on the isolation.
var anyIsolation = []string{"gvisor", "container"}
