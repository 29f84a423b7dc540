//go:build root

package durability_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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
	d.t.Cleanup(func() {
		if d.t.Failed() {
			d.describe()
		}
	})
}

// describe says what there is of each sandbox when a test has failed, and who has their
// disks mounted: what a kill left is gone with the test.
func (d *daemon) describe() {
	loops, _ := exec.Command("losetup", "--list", "--output", "NAME,BACK-FILE").CombinedOutput()
	for line := range strings.Lines(string(loops)) {
		if strings.Contains(line, d.dir) {
			d.t.Log(strings.TrimSpace(line))
		}
	}
	spaces := make(map[string]bool) // one process of each mount namespace
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		space, _ := os.Readlink(filepath.Join(dir, "ns/mnt"))
		if mounts, _ := os.ReadFile(filepath.Join(dir, "mountinfo")); !spaces[space] && strings.Contains(string(mounts), d.dir+"/disks/") {
			comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
			d.t.Logf("%s, %s (%s) has %d mounts of disks", space, dir, bytes.TrimSpace(comm), strings.Count(string(mounts), d.dir+"/disks/"))
		}
		spaces[space] = true
	}
	boxes, _ := filepath.Glob(filepath.Join(d.dir, "run/oci/*/run.json"))
	for _, file := range boxes {
		dir := filepath.Dir(file)
		run, _ := os.ReadFile(file)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		list, _ := exec.CommandContext(ctx, "ls", "-la", dir, filepath.Join(dir, "channel")).CombinedOutput()
		text := fmt.Sprintf("%s\n%s\n%s\n", dir, run, list)
		var rec struct{ PID int }
		if json.Unmarshal(run, &rec) == nil && rec.PID > 0 {
			state, _ := exec.CommandContext(ctx, "ps", "-o", "pid,stat,etimes,time,args", "-p", strconv.Itoa(rec.PID)).CombinedOutput()
			text += string(state)
			if d.isolation == "gvisor" {
				program := fmt.Sprintf("/proc/%d/exe", rec.PID) // also of one whose file is gone
				ids, _ := filepath.Glob(filepath.Join(dir, "runtime", "*.state"))
				for _, id := range ids {
					name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(id), ".state"), "_sandbox:")
					stacks, err := exec.CommandContext(ctx, program, "--root="+filepath.Join(dir, "runtime"), "debug", "--ps", "--stacks", name).CombinedOutput()
					text += fmt.Sprintf("%s: %v\n%.60000s", name, err, stacks)
				}
			}
		}
		cancel()
		d.t.Log(text)
	}
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
