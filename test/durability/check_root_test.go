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

// row is a command as the daemon tells it.
type row struct {
	Seq      int64  `json:"seq"`
	Status   string `json:"status"`
	Cmd      any    `json:"cmd"`
	Session  string `json:"session"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	ExitCode *int   `json:"exit_code"`
}

// check compares what the daemon says with what the worker was told.
func (w *worker) check(f *figures) {
	w.d.t.Helper()
	c := &client{ctx: context.Background(), url: w.d.url, http: &http.Client{Timeout: patience}}
	for _, b := range w.gone {
		w.checkGone(c, b, f)
	}
	w.gone = nil
	if w.box == nil {
		return
	}
	b, doubt := w.box, w.box.doubt
	status, text := c.call("GET", "/v1/sandboxes/"+b.id, "")
	var now struct{ Status, Reason string }
	if status == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &now); err != nil {
			w.d.t.Fatalf("%s: %v", b.id, err)
		}
	}
	if doubt != "" {
		f.unanswered++
	}
	may := map[string][]string{
		"create": {"running", "failed", ""}, "destroy": {"running", "stopped", ""},
		"stop": {"running", "stopped"}, "start": {"running", "stopped"}, "": {"stopped"},
	}[doubt]
	if doubt == "" && b.up {
		may = []string{"running"}
	}
	if !slices.Contains(may, now.Status) {
		w.d.t.Errorf("%s is %q (%s) after a kill in %q, when it was up: %v; want one of %q", b.id, now.Status, text, doubt, b.up, may)
		return
	}
	if now.Status == "failed" && now.Reason == "" {
		w.d.t.Errorf("%s failed without a reason", b.id)
	}
	b.doubt, b.up = "", now.Status == "running"
	if now.Status == "" || now.Status == "failed" {
		if doubt == "destroy" {
			w.checkGone(c, b, f)
		}
		w.box = nil
		return
	}
	rows := w.checkExecs(c, b, f)
	w.checkRuns(c, b, rows)
	w.checkEvents(c, b, rows, f)
	w.checkFiles(c, b, f)
	// What is checked and over is not checked again.
	b.execs = slices.DeleteFunc(b.execs, func(x *command) bool { return x.seq == 0 })
}

// checkGone looks at the history of a sandbox whose destruction was
// acknowledged.
func (w *worker) checkGone(c *client, b *box, f *figures) {
	w.d.t.Helper()
	if status, text := c.call("GET", "/v1/sandboxes/"+b.id, ""); status != http.StatusNotFound {
		w.d.t.Errorf("%s was destroyed and is there: %s", b.id, text)
	}
	rows := w.checkExecs(c, b, f)
	w.checkEvents(c, b, rows, f)
}

// list reads all commands, when they have ended.
func (w *worker) list(c *client, b *box) []row {
	w.d.t.Helper()
	var all []row
	if !w.d.within(func() bool {
		all = nil
		for {
			after := int64(0)
			if len(all) > 0 {
				after = all[len(all)-1].Seq
			}
			status, text := c.call("GET", fmt.Sprintf("/v1/sandboxes/%s/execs?after_seq=%d&limit=1000", b.id, after), "")
			var page struct {
				Execs []row `json:"execs"`
			}
			if err := json.Unmarshal([]byte(text), &page); status != http.StatusOK || err != nil {
				w.d.t.Fatalf("the commands of %s: %d %s", b.id, status, text)
			}
			if len(page.Execs) == 0 {
				break
			}
			all = append(all, page.Execs...)
		}
		return !slices.ContainsFunc(all, func(r row) bool { return r.Status == "pending" || r.Status == "running" })
	}) {
		w.d.t.Errorf("%s has commands that do not end: %+v", b.id, all)
	}
	return all
}

// checkExecs: every command that was acknowledged is there under its number,
// numbers have no gap, each has ended for a reason that is true, and its output
// is what it printed.
func (w *worker) checkExecs(c *client, b *box, f *figures) []row {
	w.d.t.Helper()
	rows := w.list(c, b)
	for i, r := range rows {
		if r.Seq != int64(i+1) {
			w.d.t.Fatalf("command %d of %s has the number %d", i+1, b.id, r.Seq)
		}
	}
	for _, x := range b.execs {
		i := slices.IndexFunc(rows, func(r row) bool { return strings.Contains(fmt.Sprint(r.Cmd), x.token) })
		switch {
		case i < 0 && x.seq == 0:
			continue // it was asked for, and never came
		case i < 0 || x.seq != 0 && x.seq != rows[i].Seq:
			w.d.t.Errorf("command %s of %s was acknowledged as %d and is lost", x.token, b.id, x.seq)
			continue
		}
		x.seq = rows[i].Seq
		w.checkEnd(c, b, x, rows[i], f)
	}
	return rows
}

func (w *worker) checkEnd(c *client, b *box, x *command, r row, f *figures) {
	w.d.t.Helper()
	honest := r.Reason == "exited" && r.ExitCode != nil && *r.ExitCode == x.code
	if x.ended {
		// The programs of a script that a stop terminates may leave it to exit.
		honest = slices.Contains([]string{"exited", "sandbox_stopped", "sandbox_destroyed", "not_started"}, r.Reason)
	}
	if !honest {
		w.d.t.Errorf("command %s (%d) of %s ended as %q %s; want exited with %d, its sandbox ended: %v", x.token, x.seq, b.id, r.Reason, code(r.ExitCode), x.code, x.ended)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken != "" {
		w.d.t.Errorf("command %s (%d) of %s printed something else %s", x.token, x.seq, b.id, x.broken)
	}
	status, text := c.call("GET", fmt.Sprintf("/v1/sandboxes/%s/execs/%d/output", b.id, x.seq), "")
	want := x.output()
	switch {
	case status != http.StatusOK || !strings.HasPrefix(want, text):
		at := 0
		for at < min(len(text), len(want)) && text[at] == want[at] {
			at++
		}
		w.d.t.Errorf("the output of %s (%d, ended: %v, %q %s) of %s is not what it printed: %d, %d bytes of %d, and at %d %.200q", x.token, x.seq,
			x.ended, r.Reason, code(r.ExitCode), b.id, status, len(text), len(want), at, text[at:])
	case int64(len(text)) < x.read:
		w.d.t.Errorf("the output of %s (%d) of %s has %d bytes, and %d had been read", x.token, x.seq, b.id, len(text), x.read)
	case r.Reason == "exited" && !x.ended && text != want:
		w.d.t.Errorf("the output of %s (%d) of %s has %d bytes of %d", x.token, x.seq, b.id, len(text), len(want))
	}
	if x.counted {
		return
	}
	x.counted = true
	f.execs++
	f.bytes += int64(len(text))
	if x.session != "" {
		f.sessions++
	}
	if x.read < int64(len(text)) {
		f.unread++
	}
}

func code(c *int) string {
	if c == nil {
		return "without a code"
	}
	return fmt.Sprint("with ", *c)
}

// checkRuns: a command that exited ran once, any other at most once, and those
// of a session ran in their order.
func (w *worker) checkRuns(c *client, b *box, rows []row) {
	w.d.t.Helper()
	status, text := c.call("GET", "/v1/sandboxes/"+b.id+"/files/content?path=ran", "")
	if status != http.StatusOK && status != http.StatusNotFound {
		w.d.t.Errorf("what ran in %s: %d %s", b.id, status, text)
		return
	}
	at := map[string]int{} // by token: the line of its run
	if status == http.StatusOK {
		for i, token := range strings.Fields(text) {
			if _, twice := at[token]; twice {
				w.d.t.Errorf("command %s of %s ran twice", token, b.id)
			}
			at[token] = i
		}
	}
	last := map[string]int{} // by session: the line of the command before
	for _, x := range b.execs {
		if x.seq == 0 {
			if _, ran := at[x.token]; ran {
				w.d.t.Errorf("command %s of %s ran and has no row", x.token, b.id)
			}
			continue
		}
		line, ran := at[x.token]
		if !ran {
			if r := rows[x.seq-1]; r.Reason == "exited" && r.ExitCode != nil && *r.ExitCode == x.code {
				w.d.t.Errorf("command %s of %s exited with its code and never ran", x.token, b.id)
			}
			continue
		}
		if x.session != "" {
			if before, ok := last[x.session]; ok && line < before {
				w.d.t.Errorf("command %s of session %s of %s ran before one that was asked for earlier", x.token, x.session, b.id)
			}
			last[x.session] = line
		}
	}
}

// checkEvents: what a reader has seen is there, unchanged and without anything
// new in between, and every command has one end.
func (w *worker) checkEvents(c *client, b *box, rows []row, f *figures) {
	w.d.t.Helper()
	var all []seen
	var ends map[int64]int
	// A command counts as ended when its journal says so, which is a moment
	// before its event.
	w.d.within(func() bool {
		all, ends = w.events(c, b), map[int64]int{}
		for _, e := range all {
			if e.Kind == "exec.finished" {
				ends[e.Seq]++
			}
		}
		return len(ends) >= len(rows)
	})
	for _, r := range rows {
		if ends[r.Seq] != 1 {
			w.d.t.Errorf("command %d of %s has %d events of its end", r.Seq, b.id, ends[r.Seq])
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, e := range b.events {
		if i >= len(all) || all[i] != e {
			w.d.t.Errorf("event %d of %s was %+v and is not any more", i, b.id, e)
			return
		}
	}
	f.events += len(all) - b.known
	f.followed += len(b.events) - b.known
	b.events, b.known = all, len(all)
}

// events reads a whole history.
func (w *worker) events(c *client, b *box) []seen {
	w.d.t.Helper()
	var all []seen
	for {
		after := int64(0)
		if len(all) > 0 {
			after = all[len(all)-1].Cursor
		}
		status, text := c.call("GET", fmt.Sprintf("/v1/sandboxes/%s/events?after=%d&limit=1000", b.id, after), "")
		var page struct {
			Events []seen `json:"events"`
		}
		if err := json.Unmarshal([]byte(text), &page); status != http.StatusOK || err != nil {
			w.d.t.Fatalf("the events of %s: %d %s", b.id, status, text)
		}
		if len(page.Events) == 0 {
			return all
		}
		all = append(all, page.Events...)
	}
}

// checkFiles: what was acknowledged is there; a write without an answer was
// made or not.
func (w *worker) checkFiles(c *client, b *box, f *figures) {
	w.d.t.Helper()
	for path, may := range b.files {
		status, text := c.call("GET", "/v1/sandboxes/"+b.id+"/files/content?path="+path, "")
		if status == http.StatusNotFound {
			text = ""
		} else if status != http.StatusOK {
			w.d.t.Errorf("file %s of %s: %d %s", path, b.id, status, text)
			continue
		}
		if !slices.Contains(may, text) {
			w.d.t.Errorf("file %s of %s has %d bytes that are none of its %d contents", path, b.id, len(text), len(may))
		}
		b.files[path] = []string{text}
		f.files++
	}
}

// finish destroys what is left.
func (w *worker) finish() {
	if w.box == nil {
		return
	}
	c := &client{ctx: context.Background(), url: w.d.url, http: &http.Client{Timeout: patience}}
	if status, text := c.call("DELETE", "/v1/sandboxes/"+w.box.id, ""); status != http.StatusNoContent {
		w.d.t.Errorf("destroy %s = %d %s", w.box.id, status, text)
	}
	w.box = nil
}
