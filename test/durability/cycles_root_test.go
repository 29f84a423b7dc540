//go:build root

package durability_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// act does what ends, copies or brings back what runs in a sandbox, and compares
// what came of it.
func (w *worker) act(l *load, c *client, b *box, card string) bool {
	switch card {
	case "sleep":
		return w.sleep(l, c, b)
	case "keep":
		return w.keep(c, b)
	case "rollback":
		if len(w.snapshots) == 0 {
			return w.keep(c, b)
		}
		return w.rollback(c, b, w.snapshots[w.rng.IntN(len(w.snapshots))])
	case "fork":
		if len(w.boxes) == mostBoxes {
			return w.destroy(c, b)
		}
		return w.fork(l, c, b)
	case "renew":
		return w.destroy(c, b)
	case "start":
		return w.rouse(l, c, b)
	}
	return w.stop(c, b)
}

func (w *worker) stop(c *client, b *box) bool {
	b.ends()
	if _, ok := w.ask(c, b, "stop", "POST", b.path("/stop"), "", http.StatusOK); !ok {
		return false
	}
	b.becomes(stopped)
	w.f.stopped++
	return true
}

// sleep puts a sandbox to sleep, with force because of what may run in it. A
// container is stopped instead.
func (w *worker) sleep(l *load, c *client, b *box) bool {
	if w.d.isolation == "container" {
		b.ends()
	}
	if _, ok := w.ask(c, b, "sleep", "POST", b.path("/sleep"), `{"force":true}`, http.StatusOK); !ok {
		return false
	}
	w.slept(b)
	if w.rng.IntN(4) == 0 {
		return true // it sleeps on, until somebody uses it
	}
	return w.rouse(l, c, b)
}

// slept notes that a sandbox was put to sleep.
func (w *worker) slept(b *box) {
	if w.d.isolation == "container" {
		b.becomes(stopped)
		b.evicted = true
	} else {
		b.becomes(sleeping)
	}
	b.cycle = "sleep"
}

// rouse makes a sandbox run that does not, by an act or by a use, and compares it.
func (w *worker) rouse(l *load, c *client, b *box) bool {
	how := w.rng.IntN(3)
	switch {
	case b.status == running || how == 0 && (b.status == sleeping || b.evicted):
		// The first look at it wakes it.
	case how == 1 && (b.status == sleeping || b.evicted):
		if _, ok := w.ask(c, b, "use", "POST", b.path("/wake"), "", http.StatusOK); !ok {
			return false
		}
		b.becomes(running)
	default:
		if _, ok := w.ask(c, b, "use", "POST", b.path("/start"), "", http.StatusOK); !ok {
			return false
		}
		b.becomes(running)
	}
	return w.compare(c, b)
}

// remembers has the sandbox's commands looked at: of what ended before, a copy that
// is made now has all.
func (w *worker) remembers(c *client, b *box) bool {
	status, text := c.call("GET", b.path("/execs?limit=1000"), "")
	var page struct {
		Execs []row `json:"execs"`
	}
	if err := json.Unmarshal([]byte(text), &page); status != http.StatusOK || err != nil {
		if status != 0 {
			w.d.t.Errorf("the commands of %s: %d %s", b.id, status, text)
		}
		return false
	}
	for _, x := range b.execs {
		for _, r := range page.Execs {
			x.exited = x.exited || r.Seq == x.seq && r.exited(x)
		}
	}
	return true
}

// keep makes a snapshot, of the memory too where that can be.
func (w *worker) keep(c *client, b *box) bool {
	if !w.remembers(c, b) {
		return false
	}
	s := &snapshot{name: fmt.Sprintf("%s-%d", w.name, w.n), doubt: true}
	s.memory = w.d.isolation == "gvisor" && b.status != stopped && w.rng.IntN(3) > 0
	s.state = b.state.copied(s.memory)
	w.snapshots = append(w.snapshots, s)
	doubt := "keep"
	if s.memory {
		doubt = "use"
	}
	body := fmt.Sprintf(`{"source_sandbox_id":%q,"name":%q,"memory":%t}`, b.id, s.name, s.memory)
	if _, ok := w.ask(c, b, doubt, "POST", "/v1/snapshots", body, http.StatusCreated); !ok {
		return false
	}
	s.doubt = false
	if s.memory {
		b.becomes(running)
	}
	b.cycle = "keep"
	return w.compare(c, b)
}

func (w *worker) removeSnapshot(c *client) bool {
	s := w.snapshots[0]
	s.doubt = true
	switch status, text := c.call("DELETE", "/v1/snapshots/"+s.name, ""); status {
	case 0:
		return false
	case http.StatusNoContent:
		w.snapshots = w.snapshots[1:]
		return true
	default:
		w.d.t.Errorf("remove snapshot %s = %d %s", s.name, status, text)
		return false
	}
}

// rollback puts a sandbox back to a snapshot, of it or of another.
func (w *worker) rollback(c *client, b *box, s *snapshot) bool {
	b.ends()
	b.target = s
	if _, ok := w.ask(c, b, "rollback", "POST", b.path("/rollback"), fmt.Sprintf(`{"snapshot":%q}`, s.name), http.StatusOK); !ok {
		return false
	}
	w.rolledBack(b)
	return w.compare(c, b)
}

// rolledBack notes that a sandbox is what its target says. One that slept, and goes
// back to files alone, is stopped as in the place of a sleep.
func (w *worker) rolledBack(b *box) {
	was, evicted := b.status, b.status == sleeping || b.evicted
	b.becomes(stopped)
	b.state = b.target.state.copied(b.target.memory)
	if b.target.memory || was == running {
		b.status = running
	} else {
		b.evicted = evicted
	}
	b.target = nil
	b.rollbacks++
	b.cycle = "rollback"
}

// fork makes one or two copies, with which the worker goes on as with the sandbox
// itself.
func (w *worker) fork(l *load, c *client, b *box) bool {
	if !w.remembers(c, b) {
		return false
	}
	var copies []*box
	var ids []string
	for i := range 1 + w.rng.IntN(mostBoxes-len(w.boxes)) {
		f := &box{id: fmt.Sprintf("%s-%d%c", w.name, w.n, 'a'+i), doubt: "fork", state: b.state.copied(true)}
		copies, ids = append(copies, f), append(ids, fmt.Sprintf("%q", f.id))
	}
	w.boxes = append(w.boxes, copies...)
	text, ok := w.ask(c, b, "use", "POST", b.path("/fork"), `{"ids":[`+strings.Join(ids, ",")+`]}`, http.StatusCreated)
	if !ok {
		return false
	}
	b.becomes(running)
	for _, f := range copies {
		if !strings.Contains(text, `"id":"`+f.id+`"`) {
			w.d.t.Errorf("the fork of %s has no %s: %s", b.id, f.id, text)
		}
		f.doubt, f.cycle = "", "fork"
		f.becomes(running)
		w.follow(l, c, f)
		w.f.created++
	}
	for _, f := range append(slices.Clone(copies), b) {
		if !w.compare(c, f) {
			return false
		}
	}
	return true
}
