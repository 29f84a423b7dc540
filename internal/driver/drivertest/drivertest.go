// Package drivertest is the conformance suite of the driver contract: [Run]
// proves every sentence of it on a real driver, and [Fake] is a driver that
// passes without root, isolation or installed programs, for the tests of core
// and of the doors.
package drivertest

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
)

// Env is what the suite needs to know of the driver under test.
type Env struct {
	// Spec returns a new valid spec with a fresh uid, rootfs and disk.
	Spec func(t *testing.T) driver.Spec
	// Reopen returns a second driver over the same state, as a restarted
	// daemon would open it. The first one was closed, or is as good as killed.
	Reopen func(t *testing.T) driver.Driver
}

// Run proves the contract. setup is called once per subtest.
func Run(t *testing.T, setup func(t *testing.T) (driver.Driver, Env)) {}
