//go:build root && long

package durability_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestTwoHundredSleepers: two hundred sandboxes sleep at once, without a process and
// without a place of the bound of those that run. They are woken in random order, the
// first half before a kill of the daemon and the others after it, and each has the
// process that it fell asleep with, which knows what only it was told. Half of the
// first half sleep again, so that some sleep twice.
func TestTwoHundredSleepers(t *testing.T) {
	const count, awake = 200, 4
	seed := number(t, "CUBBY_TEST_SEED", rand.Uint64N(1<<32))
	t.Logf("CUBBY_TEST_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	d := &daemon{t: t, isolation: "gvisor"}
	d.prepare("--pool", "off", "--max-sandboxes", fmt.Sprint(2*awake))
	d.start()
	l := &load{}

	var all []*worker
	for i := range count {
		all = append(all, &worker{name: fmt.Sprint("sleeper", i), d: d, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), f: newFigures()})
	}
	// each has a few clients do something to some of the sandboxes.
	each := func(some []*worker, do func(c *client, w *worker) bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		next := make(chan *worker)
		var clients sync.WaitGroup
		for range awake {
			c := &client{ctx: ctx, url: d.url, http: &http.Client{Timeout: patience}}
			clients.Go(func() {
				for w := range next {
					if !t.Failed() && !do(c, w) {
						t.Errorf("%s could not be done", w.name)
					}
				}
			})
		}
		for _, w := range some {
			next <- w
		}
		close(next)
		clients.Wait()
		cancel()
		l.group.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	sleep := func(c *client, w *worker) bool {
		b := w.boxes[0]
		_, ok := w.ask(c, b, "sleep", "POST", b.path("/sleep"), "", http.StatusOK)
		w.slept(b)
		return ok
	}
	// wake looks at a sandbox, which wakes it, and compares what is in it.
	wake := func(c *client, w *worker) bool {
		b := w.boxes[0]
		k := &checker{w: w, b: b, c: c, alone: true}
		if k.settle() {
			k.compare()
		}
		ok := k.report() && len(k.wrong) == 0
		k.done()
		return ok
	}

	each(all, func(c *client, w *worker) bool {
		w.n++
		if !w.create(l, c) {
			return false
		}
		b := w.boxes[0]
		for _, x := range []*command{{starts: true}, {session: "s"}, {}} {
			w.n++
			if !w.exec(l, c, b, x) {
				return false
			}
		}
		return w.write(c, b) && w.compare(c, b) && sleep(c, w)
	})
	d.checkAllSleep(count)

	rng.Shuffle(count, func(i, j int) { all[i], all[j] = all[j], all[i] })
	first, again := all[:count/2], all[count/4:count/2]
	each(first, func(c *client, w *worker) bool {
		if !wake(c, w) {
			return false
		}
		for _, one := range again {
			if one == w {
				w.n++
				return w.exec(l, c, w.boxes[0], &command{}) && w.compare(c, w.boxes[0]) && sleep(c, w)
			}
		}
		return w.destroy(c, w.boxes[0])
	})
	d.checkAllSleep(count - count/4)

	d.kill()
	d.start()
	d.checkAllSleep(count - count/4)
	rest := all[count/4:]
	rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	each(rest, func(c *client, w *worker) bool { return wake(c, w) && w.destroy(c, w.boxes[0]) })

	total := newFigures()
	for _, w := range all {
		total.add(w.f)
	}
	if want := count + count/4; total.cycles["sleep"] != want {
		t.Errorf("%d wakes were compared, want %d", total.cycles["sleep"], want)
	}
	t.Logf("%d sandboxes slept, %d wakes were compared, %d commands, %d files", count, total.cycles["sleep"], total.execs, total.files)
	d.checkOrphans(sentries, nil)
}

// checkAllSleep: so many sandboxes are there, all of them sleep, and nothing on the
// host runs for them.
func (d *daemon) checkAllSleep(count int) {
	d.t.Helper()
	c := &client{ctx: context.Background(), url: d.url, http: &http.Client{Timeout: patience}}
	status, text := c.call("GET", "/v1/sandboxes?limit=1000", "")
	if n := strings.Count(text, `"status":"sleeping"`); status != http.StatusOK || n != count || strings.Count(text, `"status":`) != n {
		d.t.Fatalf("%d sandboxes sleep, want %d: %d %s", n, count, status, text)
	}
	d.checkOrphans(sentries, nil)
}
