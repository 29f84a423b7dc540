package main

import (
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// TestShieldKnowsTheCalls: a call that upstream names otherwise would not be refused.
// What is refused is tried in a sandbox, in internal/guest.
func TestShieldKnowsTheCalls(t *testing.T) {
	tables := kernel.SyscallTables()
	if len(tables) == 0 {
		t.Fatal("upstream has no table of system calls")
	}
	for _, table := range tables {
		for name := range refusals() {
			if _, err := table.LookupNo(name); err != nil {
				t.Errorf("%v has no call %q", table.Arch, name)
			}
		}
	}
}
