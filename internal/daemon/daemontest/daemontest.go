// Package daemontest starts a whole daemon inside a test.
package daemontest

import "testing"

// Start runs a daemon on a loopback port until the test ends and returns its
// base URL, "http://127.0.0.1:<port>".
func Start(t testing.TB) string {
	t.Helper()
	t.Fatal("daemontest: not written")
	return ""
}
