//go:build root

// Package durability kills a real daemon at random moments under load, starts
// it again and compares what there is with what its clients had been told: no
// orphan, no lost event, no lost byte of output, no command that ran twice, and
// an honest end of every command.
//
// CUBBY_TEST_ROUNDS sets how often each configuration is killed, CUBBY_TEST_SEED
// the random choices, which are others in every run without it; a failed test
// prints it. A seed does not repeat what the kernel and the daemon do in between.
package durability_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

// configuration is one kind of daemon.
type configuration struct {
	isolation      string
	postgres       bool
	rounds, cycles int // at least; unless the environment says otherwise
}

func (c configuration) String() string {
	if c.postgres {
		return c.isolation + "-postgres"
	}
	return c.isolation + "-sqlite"
}

func TestDurability(t *testing.T) {
	seed := number(t, "CUBBY_TEST_SEED", rand.Uint64N(1<<32))
	t.Logf("CUBBY_TEST_SEED=%d", seed)
	for i, c := range []configuration{
		{isolation: "container", rounds: 2, cycles: 8},
		{isolation: "container", postgres: true, rounds: 2, cycles: 8},
		{isolation: "gvisor", rounds: 2, cycles: 14},
	} {
		c.rounds = int(number(t, "CUBBY_TEST_ROUNDS", uint64(c.rounds)))
		c.cycles = int(number(t, "CUBBY_TEST_CYCLES", uint64(c.cycles)))
		t.Run(c.String(), func(t *testing.T) {
			run(t, c, rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
}

func number(t *testing.T, name string, def uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

const workers = 4

func run(t *testing.T, c configuration, rng *rand.Rand) {
	d := &daemon{t: t, isolation: c.isolation}
	if c.postgres {
		d.database = postgrestest.New(t)
	}
	d.prepare("--pool", fmt.Sprintf("count=%d,isolation=%s,kernel=python", poolSize, c.isolation))
	total := newFigures()
	var all []*worker
	for i := range workers {
		all = append(all, &worker{name: fmt.Sprint("w", i), d: d, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), f: newFigures()})
	}
	d.start()
	d.untilPoolIsFull()
	for total.rounds < c.rounds || total.allCycles(all) < c.cycles {
		total.rounds++
		if rng.IntN(4) == 0 {
			// In the middle of putting things in order, before anybody is let in.
			d.kill()
			total.early++
			d.launch()
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			d.kill()
			d.start()
		}
		l := begin(d.url, all)
		// After so many answers, and then a little later.
		enough := int64(rng.IntN(40))
		if !d.within(func() bool { return l.answers.Load() >= enough || t.Failed() }) {
			t.Errorf("%d answers, want %d", l.answers.Load(), enough)
		}
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		d.kill()
		l.end()
		before, _ := d.nobodys()
		d.start()
		var checks sync.WaitGroup
		for _, w := range all {
			checks.Go(w.check)
		}
		checks.Wait()
		d.checkOrphans(poolSize+sentries, before)
		if t.Failed() {
			t.Fatalf("round %d", total.rounds)
		}
	}
	for _, w := range all {
		w.finish()
	}
	d.checkOrphans(poolSize+sentries, nil)
	if err := d.program.Stop(); err != nil {
		t.Fatal(err)
	}
	d.checkOrphans(0, nil) // what was kept ready goes with the daemon
	total.print(t, c, all)
}

// figures are what a configuration went through.
type figures struct {
	rounds, early                  int            // kills under load, and in a start
	cycles                         map[string]int // compared, by what was done
	unanswered, repeated           int            // acts on a sandbox that a kill cut off, and rollbacks that were repeated
	created, stopped               int
	execs, unread, sessions, cells int
	bytes                          int64
	followed, events, files        int
}

func newFigures() figures { return figures{cycles: map[string]int{}} }

// allCycles counts the cycles of all workers.
func (f figures) allCycles(all []*worker) (n int) {
	for _, w := range all {
		for _, m := range w.f.cycles {
			n += m
		}
	}
	return n
}

func (f *figures) add(o figures) {
	for what, n := range o.cycles {
		f.cycles[what] += n
	}
	f.unanswered, f.repeated, f.created, f.stopped = f.unanswered+o.unanswered, f.repeated+o.repeated, f.created+o.created, f.stopped+o.stopped
	f.execs, f.unread, f.sessions, f.cells = f.execs+o.execs, f.unread+o.unread, f.sessions+o.sessions, f.cells+o.cells
	f.bytes, f.followed, f.events, f.files = f.bytes+o.bytes, f.followed+o.followed, f.events+o.events, f.files+o.files
}

const header = "| | kills under load | kills in a start | sandboxes | sleeps | claims | snapshots | begun from one | rollbacks | forks | stops | commands | in sessions | " +
	"cells | not read to the end at a kill | output | events | seen before a kill | files | cut-off acts | repeated rollbacks |"

func (f figures) print(t *testing.T, c configuration, all []*worker) {
	t.Helper()
	for _, w := range all {
		f.add(w.f)
	}
	row := fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %.1f MB | %d | %d | %d | %d | %d |", c, f.rounds, f.early, f.created,
		f.cycles["sleep"], f.cycles["claim"], f.cycles["keep"], f.cycles["restore"], f.cycles["rollback"], f.cycles["fork"], f.stopped,
		f.execs, f.sessions, f.cells, f.unread, float64(f.bytes)/1e6, f.events, f.followed, f.files, f.unanswered, f.repeated)
	t.Log("\n" + header + "\n" + row)
	if path := os.Getenv("CUBBY_TEST_TABLE"); path != "" {
		out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = out.WriteString(row + "\n")
			err = errors.Join(err, out.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
}
