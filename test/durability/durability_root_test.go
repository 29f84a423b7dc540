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
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

// configuration is one kind of daemon.
type configuration struct {
	isolation string
	postgres  bool
	rounds    int // unless CUBBY_TEST_ROUNDS says otherwise
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
		{isolation: "container", rounds: 2}, {isolation: "container", postgres: true, rounds: 2}, {isolation: "gvisor", rounds: 1},
	} {
		c.rounds = int(number(t, "CUBBY_TEST_ROUNDS", uint64(c.rounds)))
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
	d.prepare()
	var total figures
	var all []*worker
	for i := range workers {
		all = append(all, &worker{name: fmt.Sprint("w", i), d: d, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))})
	}
	d.start()
	for range c.rounds {
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
		enough := int64(rng.IntN(100))
		if !d.within(func() bool { return l.answers.Load() >= enough }) {
			t.Errorf("%d answers, want %d", l.answers.Load(), enough)
		}
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		d.kill()
		l.end()
		d.start()
		for _, w := range all {
			w.check(&total)
		}
		d.checkOrphans()
		if t.Failed() {
			t.Fatalf("round %d", total.rounds)
		}
	}
	for _, w := range all {
		w.finish()
	}
	d.checkOrphans()
	if err := d.program.Stop(); err != nil {
		t.Fatal(err)
	}
	total.print(t, c, all)
}

// figures are what a configuration went through.
type figures struct {
	rounds, early           int // kills under load, and in a start
	unanswered              int // acts on a sandbox that a kill cut off
	execs, unread, sessions int
	bytes                   int64
	followed, events, files int
}

const header = "| | kills under load | kills in a start | sandboxes | stops | commands | in sessions | " +
	"not read to the end at a kill | output | events | seen before a kill | files | cut-off acts |"

func (f figures) print(t *testing.T, c configuration, all []*worker) {
	t.Helper()
	var created, stopped int
	for _, w := range all {
		created, stopped = created+w.created, stopped+w.stopped
	}
	row := fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d | %.1f MB | %d | %d | %d | %d |", c, f.rounds, f.early, created, stopped,
		f.execs, f.sessions, f.unread, float64(f.bytes)/1e6, f.events, f.followed, f.files, f.unanswered)
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
