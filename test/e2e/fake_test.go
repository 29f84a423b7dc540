package e2e_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func mainContext() context.Context { return context.Background() }

// fakeHost runs the daemon inside of the test.
type fakeHost struct {
	t        testing.TB
	database string // URL of a PostgreSQL; "" is SQLite
	daemon   *daemontest.Daemon
}

// start starts a daemon for this script, also where it may share one.
func (h *fakeHost) start(flags []string, _ bool) (string, error) {
	o := daemontest.Options{Config: func(c *config.Config) { c.DatabaseURL = config.Secret(h.database) }}
	if h.daemon != nil {
		o.Dir, o.Driver = h.daemon.Dir, h.daemon.Driver.Restart(h.t)
	}
	if len(flags) > 0 {
		// Flags are parsed by the real parser and laid over the test's own.
		over, err := config.Load(flags, nil)
		if err != nil {
			return "", err
		}
		o.Config = func(c *config.Config) {
			c.DatabaseURL = config.Secret(h.database)
			c.Tokens, c.AuthDisabled, c.MaxSandboxes, c.BodyLimit = over.Tokens, over.AuthDisabled, over.MaxSandboxes, over.BodyLimit
			c.EgressAllow, c.DiskReserve, c.MinFreeMemory = over.EgressAllow, max(1, over.DiskReserve), 1
			c.IdleTimeout, c.IdlePolicy, c.MaxLifetime, c.OnShutdown = over.IdleTimeout, over.IdlePolicy, over.MaxLifetime, over.OnShutdown
			c.MaxPerTenant, c.MaxPerThread, c.MaxSnapshots = over.MaxPerTenant, over.MaxPerThread, over.MaxSnapshots
			c.MaxInThreads, c.MaxThreads, c.ThreadIdle, c.ThreadLife = over.MaxInThreads, over.MaxThreads, over.ThreadIdle, over.ThreadLife
			c.ImportDirs, c.ThreadUploads, c.APIBaseURL = over.ImportDirs, over.ThreadUploads, over.APIBaseURL
			if over.JournalPerBox < 64<<20 { // a script that wants to fill it
				c.JournalPerExec, c.JournalPerBox = over.JournalPerExec, over.JournalPerBox
			}
			if over.MinFreeMemory > 1<<40 {
				c.MinFreeMemory = over.MinFreeMemory // a script that wants to be refused
			}
		}
	}
	h.daemon = daemontest.Start(h.t, o)
	return h.daemon.URL, nil
}

// environ tells scripts where the data are.
func (h *fakeHost) environ() map[string]string {
	return map[string]string{"DATA": h.daemon.Dir}
}

func (h *fakeHost) stop() error {
	if h.daemon == nil {
		return nil
	}
	return h.daemon.Stop()
}

func (h *fakeHost) kill() error { return errors.New("a daemon inside of the test cannot be killed") }
