//go:build root

package durability_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/telemetry"
	"github.com/cubbyhq/cubby/test/harness"
)

// patience is what anything may take on a busy machine.
const patience = 2 * time.Minute

// poolSize is how many sandboxes a daemon keeps ready.
const poolSize = 2

// daemon is the program as a child process, on a directory of this machine's
// disk.
type daemon struct {
	t         *testing.T
	isolation string
	database  string // URL; "" is SQLite
	dir, url  string
	program   *harness.Daemon
}

func (d *daemon) prepare(flags ...string) {
	d.program = harness.New(d.t, harness.Options{Database: d.database, Flags: append([]string{
		"--disk-pool", "2", "--journal-per-exec", "16MiB", "--memory-reserve", "0",
	}, flags...)})
	d.dir = d.program.Dir
}

// launch starts the process and does not wait for it.
func (d *daemon) launch() {
	d.t.Helper()
	if err := d.program.Launch(); err != nil {
		d.t.Fatal(err)
	}
	d.url = d.program.URL
}

// start starts it and waits until it is ready: what an earlier one left is in
// order then.
func (d *daemon) start() {
	d.t.Helper()
	d.url = d.program.MustStart()
	d.program.WaitReady()
}

// within waits for a condition.
func (d *daemon) within(cond func() bool) bool {
	for deadline := time.Now().Add(patience); !cond(); {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

func (d *daemon) kill() {
	d.t.Helper()
	if !d.program.Running() {
		d.t.Fatalf("the daemon ended by itself: %s", d.program.Log())
	}
	if err := d.program.Kill(); err != nil {
		d.t.Fatal(err)
	}
}

// untilPoolIsFull waits until all is there that the daemon keeps ready.
func (d *daemon) untilPoolIsFull() {
	d.t.Helper()
	if !d.within(func() bool {
		res, err := http.Get(d.url + "/metrics")
		if err != nil {
			d.t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			d.t.Fatal(err)
		}
		pools := telemetry.ReadPools(string(text))
		return len(pools) == 1 && pools[0].Wanted == poolSize && pools[0].Ready == poolSize
	}) {
		d.t.Error("the pool does not fill")
	}
}
