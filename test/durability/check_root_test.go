//go:build root

package durability_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// checker compares what the daemon says of a sandbox with what its worker was told.
// What it notices while the daemon goes away counts for nothing.
type checker struct {
	w     *worker
	b     *box
	c     *client
	wrong []string
	lost  bool // the daemon was gone before all was compared
	alone bool // nobody reads events meanwhile
}

func (k *checker) errorf(format string, args ...any) {
	k.wrong = append(k.wrong, fmt.Sprintf(format, args...))
}

func (k *checker) call(method, path, body string) (status int, text string) {
	if k.lost {
		return 0, ""
	}
	status, text = k.c.call(method, path, body)
	k.lost = status == 0
	return status, text
}

// report fails the test with what was wrong and reports whether all was compared.
func (k *checker) report() bool {
	if k.lost {
		if k.alone {
			k.w.d.t.Errorf("%s: the daemon was gone before all was compared", k.b.id)
		}
		return false
	}
	for _, text := range k.wrong {
		k.w.d.t.Errorf("%s (%s, after %q): %s", k.b.id, k.b.status, k.b.cycle, text)
	}
	return true
}

// compare compares a sandbox under load. A daemon that is killed meanwhile is no
// difference.
func (w *worker) compare(c *client, b *box) bool {
	k := &checker{w: w, b: b, c: c}
	k.compare()
	if !k.report() {
		return false
	}
	k.done()
	return len(k.wrong) == 0
}

// check compares all sandboxes and snapshots after a kill.
func (w *worker) check() {
	c := &client{ctx: context.Background(), url: w.d.url, http: &http.Client{Timeout: patience}}
	for _, b := range w.gone {
		w.checkGone(c, b)
	}
	w.gone = nil
	w.checkSnapshots(c)
	copies := map[string][]string{} // by status: those of a fork that was not answered
	for _, b := range slices.Clone(w.boxes) {
		doubt := b.doubt
		k := &checker{w: w, b: b, c: c, alone: true}
		if k.settle() {
			k.compare()
		} else {
			w.boxes = slices.DeleteFunc(w.boxes, func(o *box) bool { return o == b })
		}
		if k.report() && b.status != "" {
			k.done()
		}
		if doubt == "fork" {
			copies[b.status] = append(copies[b.status], b.id)
		}
		if doubt != "" {
			w.f.unanswered++
		}
		if doubt == "destroy" && b.status == "" {
			w.checkGone(c, b)
		}
	}
	if len(copies) > 1 {
		w.d.t.Errorf("of a fork that was cut off there are some and not all: %v", copies)
	}
}

// may are the states that a sandbox can be in after an act that was not answered;
// "" is none.
func (b *box) may(isolation string) []string {
	switch b.doubt {
	case "":
		return []string{b.status}
	case "create", "fork":
		return []string{running, ""}
	case "destroy":
		return []string{b.status, stopped, ""}
	case "stop":
		return []string{b.status, stopped}
	case "sleep":
		if isolation == "container" {
			return []string{b.status, stopped}
		}
		return []string{b.status, sleeping}
	case "rollback":
		return []string{b.status, stopped, running}
	case "use":
		return []string{b.status, running}
	}
	return []string{b.status}
}

// settle finds out what became of a sandbox, and reports whether it is there.
func (k *checker) settle() bool {
	b, w := k.b, k.w
	status, text := k.call("GET", b.path(""), "")
	var now struct {
		Status, Reason string
		Incomplete     bool `json:"restore_incomplete"`
	}
	if status == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &now); err != nil {
			k.errorf("%v: %s", err, text)
		}
	}
	if now.Status == "failed" && now.Reason != "" {
		now.Status = ""
	}
	if may := b.may(w.d.isolation); !slices.Contains(may, now.Status) {
		k.errorf("it is %q (%s) after a kill in %q; want one of %q", now.Status, text, b.doubt, may)
		return false
	}
	if now.Incomplete {
		k.errorf("it has lost its memory: %s", text)
	}
	doubt := b.doubt
	b.doubt = ""
	switch {
	case now.Status == "":
		b.status = ""
		return false
	case doubt == "rollback":
		k.settleRollback(now.Status, now.Reason)
		return true
	case doubt == "sleep" && now.Status != b.status:
		w.slept(b)
	case doubt == "fork":
		b.cycle = doubt
		w.f.created++
	case doubt == "create":
		w.began(k.c, b)
	}
	if b.status != now.Status {
		b.becomes(now.Status)
	}
	return true
}

// settleRollback finds out how far a rollback came: its event is stored with what it
// did. One that broke off is repeated.
func (k *checker) settleRollback(status, reason string) {
	b := k.b
	rolled := 0
	for _, e := range k.events() {
		if e.Kind == "sandbox.rolled_back" {
			rolled++
		}
	}
	switch {
	case rolled > b.rollbacks:
		k.w.rolledBack(b)
		if status != b.status {
			k.errorf("it is %s (%s) after a rollback, want %s", status, reason, b.status)
		}
	case status == b.status && !strings.Contains(reason, repeatIt):
		b.target = nil // it never began
	default:
		k.halfRolledBack(reason)
	}
}

// repeatIt is in the reason of a sandbox whose rollback broke off.
const repeatIt = "broke off: repeat it"

// halfRolledBack repeats a rollback that left the sandbox stopped, with the files of
// before or of the snapshot.
func (k *checker) halfRolledBack(reason string) {
	b := k.b
	if !strings.Contains(reason, repeatIt) {
		k.errorf("a rollback broke off and the reason is %q", reason)
	}
	was, to := k.compareDisk(b.state), k.compareDisk(b.target.state)
	if len(was) > 0 && len(to) > 0 {
		k.errorf("the files are neither those of before a rollback that was cut off (%q) nor those after it (%q)", was, to)
	}
	b.becomes(stopped)
	if status, text := k.call("POST", b.path("/rollback"), fmt.Sprintf(`{"snapshot":%q}`, b.target.name)); status != http.StatusOK {
		k.errorf("repeat the rollback: %d %s", status, text)
		return
	}
	k.w.f.repeated++
	k.w.rolledBack(b)
}

// checkSnapshots: those that were acknowledged are there, and no others.
func (w *worker) checkSnapshots(c *client) {
	all := w.snapshots
	w.snapshots = nil
	for _, s := range all {
		switch status, text := c.call("GET", "/v1/snapshots/"+s.name, ""); {
		case status == http.StatusOK && strings.Contains(text, fmt.Sprintf(`"memory":%t`, s.memory)):
			s.doubt = false
			w.snapshots = append(w.snapshots, s)
		case status != http.StatusNotFound || !s.doubt:
			w.d.t.Errorf("snapshot %s is not what it was: %d %s", s.name, status, text)
		}
	}
}

// checkGone looks at the history of a sandbox whose destruction was
// acknowledged.
func (w *worker) checkGone(c *client, b *box) {
	k := &checker{w: w, b: b, c: c, alone: true}
	if status, text := k.call("GET", b.path(""), ""); status != http.StatusNotFound {
		k.errorf("it was destroyed and is there: %s", text)
	}
	k.checkEvents(k.checkExecs())
	k.report()
}

// finish destroys what is left.
func (w *worker) finish() {
	c := &client{ctx: context.Background(), url: w.d.url, http: &http.Client{Timeout: patience}}
	for _, b := range w.boxes {
		if status, text := c.call("DELETE", b.path(""), ""); status != http.StatusNoContent {
			w.d.t.Errorf("destroy %s = %d %s", b.id, status, text)
		}
	}
	for _, s := range w.snapshots {
		if status, text := c.call("DELETE", "/v1/snapshots/"+s.name, ""); status != http.StatusNoContent {
			w.d.t.Errorf("remove snapshot %s = %d %s", s.name, status, text)
		}
	}
	w.boxes, w.snapshots = nil, nil
}
