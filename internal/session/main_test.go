package session_test

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// TestMain lets commands begin with signals as they are by default: what this
// process ignores, as it does SIGHUP below nohup, they would ignore too.
func TestMain(m *testing.M) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Exit(m.Run())
}
