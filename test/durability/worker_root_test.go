//go:build root

package durability_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

// worker drives a few sandboxes, the copies of each other, and remembers what it was
// told.
type worker struct {
	name string
	d    *daemon
	rng  *rand.Rand
	n    int // names sandboxes, snapshots, commands and files

	boxes     []*box
	snapshots []*snapshot // the oldest first
	gone      []*box      // acknowledged as destroyed, and not checked yet
	deck      []string    // the acts that come next

	f figures
}

// most bounds the sandboxes of a worker, and its snapshots.
const (
	mostBoxes     = 3
	mostSnapshots = 2
)

// step does one thing and reports whether it was answered.
func (w *worker) step(l *load, c *client) bool {
	w.n++
	if len(w.boxes) == 0 {
		return w.create(l, c)
	}
	b := w.boxes[w.rng.IntN(len(w.boxes))]
	n := w.rng.IntN(100)
	switch {
	case len(w.boxes) > 1 && n < 25:
		return w.destroy(c, b)
	case len(w.snapshots) > mostSnapshots:
		return w.removeSnapshot(c)
	case b.status != running && n < 60:
		return w.rouse(l, c, b)
	case b.status == stopped && (!b.evicted || n < 65):
		return w.act(l, c, b, w.card("start", "keep", "rollback"))
	case n < 45:
		return w.act(l, c, b, w.card())
	case !b.state.memory.up && n < 95:
		return w.exec(l, c, b, &command{starts: true})
	case n < 80:
		return w.exec(l, c, b, &command{})
	case n < 88:
		return w.exec(l, c, b, &command{cell: true})
	default:
		return w.write(c, b)
	}
}

// card is the act that comes next, one of some that can be. All acts come before one
// comes again.
func (w *worker) card(can ...string) string {
	all := []string{"sleep", "sleep", "sleep", "keep", "rollback", "rollback", "renew", "stop"}
	if w.d.isolation == "gvisor" {
		all = append(all, "sleep", "fork", "fork")
	}
	if len(can) > 0 {
		return can[w.rng.IntN(len(can))]
	}
	if len(w.deck) == 0 {
		w.deck = all
		w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	card := w.deck[0]
	w.deck = w.deck[1:]
	return card
}

// ask sends what changes a sandbox. It is in doubt until it is answered as it should
// be, which ok reports.
func (w *worker) ask(c *client, b *box, doubt, method, path, body string, want ...int) (text string, ok bool) {
	b.doubt = doubt
	status, text := c.call(method, path, body)
	switch {
	case status == 0:
		return "", false
	case !slices.Contains(want, status):
		w.d.t.Errorf("%s: %s %s %s = %d %s", b.id, method, path, body, status, text)
		return "", false
	}
	b.doubt = ""
	return text, true
}

func (b *box) path(rest string) string { return "/v1/sandboxes/" + b.id + rest }

// create makes a sandbox, from a snapshot now and then.
func (w *worker) create(l *load, c *client) bool {
	b := &box{id: fmt.Sprintf("%s-%d", w.name, w.n), state: newState()}
	w.boxes = append(w.boxes, b)
	asks := map[string]any{"id": b.id, "isolation": w.d.isolation}
	if n := len(w.snapshots); n > 0 && w.rng.IntN(2) == 0 {
		b.target = w.snapshots[w.rng.IntN(n)]
		asks["snapshot"] = b.target.name
		b.state = b.target.state.copied(b.target.memory)
	}
	body, err := json.Marshal(asks)
	if err != nil {
		w.d.t.Error(err)
		return false
	}
	if _, ok := w.ask(c, b, "create", "POST", "/v1/sandboxes", string(body), http.StatusCreated); !ok {
		return false
	}
	b.becomes(running)
	w.follow(l, c, b)
	return w.began(c, b) && w.compare(c, b)
}

// began notes how a sandbox was created, and reports whether that can be known.
func (w *worker) began(c *client, b *box) bool {
	w.f.created++
	if b.target != nil {
		b.target, b.cycle = nil, "restore"
		return true
	}
	start, ok := w.startOf(c, b)
	if start == "warm" {
		b.cycle = "claim"
	}
	return ok
}

// startOf is how a sandbox came to run: "warm" or "cold".
func (w *worker) startOf(c *client, b *box) (start string, ok bool) {
	status, text := c.call("GET", b.path("/events?kinds=sandbox.created"), "")
	var page struct {
		Events []struct{ Payload struct{ Start string } }
	}
	if err := json.Unmarshal([]byte(text), &page); status != http.StatusOK || err != nil || len(page.Events) != 1 {
		if status != 0 {
			w.d.t.Errorf("how %s began: %d %s", b.id, status, text)
		}
		return "", false
	}
	return page.Events[0].Payload.Start, true
}

func (w *worker) destroy(c *client, b *box) bool {
	b.ends()
	if _, ok := w.ask(c, b, "destroy", "DELETE", b.path(""), "", http.StatusNoContent); !ok {
		return false
	}
	w.gone = append(w.gone, b)
	w.boxes = slices.DeleteFunc(w.boxes, func(o *box) bool { return o == b })
	return true
}

// write puts a file whose content says which write it was. A sandbox that sleeps
// wakes for it, one that is stopped does not start.
func (w *worker) write(c *client, b *box) bool {
	path, text := fmt.Sprint("file", w.rng.IntN(4)), fmt.Sprintf("%s content %d %s", w.name, w.n, strings.Repeat("x", w.rng.IntN(20000)))
	before := b.state.files[path]
	if before == nil {
		before = []string{""}
	}
	b.state.files[path] = append(slices.Clone(before), text)
	if _, ok := w.ask(c, b, "use", "PUT", b.path("/files?path="+path), text, http.StatusOK, http.StatusCreated); !ok {
		return false
	}
	b.state.files[path] = []string{text}
	if b.status == sleeping {
		b.becomes(running)
	}
	return true
}

// exec asks for a command or a cell, whose output is read while it comes.
func (w *worker) exec(l *load, c *client, b *box, x *command) bool {
	x.token, x.lines = fmt.Sprintf("%s.%d.%08x", w.name, w.n, w.rng.Uint32()), 1
	if !x.starts {
		x.lines = 2 + w.rng.IntN(4000)
	}
	if !x.starts && !x.cell {
		x.code = w.rng.IntN(3)
		if w.rng.IntN(3) == 0 {
			x.session = b.session(w.rng.IntN(2))
		}
	}
	b.execs = append(b.execs, x)
	b.state.begins(x)
	path, asks := x.request(fmt.Sprintf("0.%02d", w.rng.IntN(40)))
	body, err := json.Marshal(asks)
	if err != nil {
		w.d.t.Error(err)
		return false
	}
	text, ok := w.ask(c, b, "use", "POST", b.path(path), string(body), http.StatusAccepted, http.StatusOK)
	if !ok {
		return false
	}
	var answer struct {
		Seq int64 `json:"seq"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Seq == 0 {
		w.d.t.Errorf("exec in %s = %s", b.id, text)
		return false
	}
	x.seq = answer.Seq
	b.becomes(running)
	b.state.memory.up = b.state.memory.up || x.starts
	l.group.Go(func() { x.readAlong(c, b.id) })
	return true
}

// session is one of two that a sandbox has; others when those are haunted.
func (b *box) session(n int) string {
	for ; ; n += 2 {
		name := fmt.Sprint("s", n)
		if sh := b.state.shells[name]; sh == nil || !sh.haunted {
			return name
		}
	}
}
