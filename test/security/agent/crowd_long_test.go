//go:build root && long

package agent_test

import "testing"

// TestFiftyRunsInFiftySandboxes is [TestFiftyRunsAtOnce] with a sandbox for each.
func TestFiftyRunsInFiftySandboxes(t *testing.T) { crowd(t, 50) }
