//go:build root && !long

package e2e_test

// anyIsolation is where tests run that do not depend on the isolation.
var anyIsolation = []string{"container"}
