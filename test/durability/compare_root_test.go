//go:build root

package durability_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// compare compares all that there is of a sandbox: commands and what they printed,
// events, files, and what programs have in memory.
func (k *checker) compare() {
	k.wake()
	rows := k.checkExecs()
	k.checkEvents(rows)
	if b := k.b; b.status == stopped && !b.evicted {
		k.wrong = append(k.wrong, k.compareDisk(b.state)...)
		return
	}
	k.compareInside()
	k.wrong = append(k.wrong, k.compareFiles(k.b.state)...)
}

// wake reads a file of a sandbox that sleeps: its commands go on only then.
func (k *checker) wake() {
	if k.b.status != sleeping {
		return
	}
	k.b.doubt = "use"
	status, text := k.call("GET", k.b.path("/files/content?path=ran"), "")
	if status != http.StatusOK && status != http.StatusNotFound {
		k.errorf("wake it by reading a file: %d %s", status, text)
		return
	}
	k.b.doubt = ""
	k.b.becomes(running)
}

// done notes that all was compared: it is not open any more how commands ended.
func (k *checker) done() {
	b := k.b
	for path, may := range b.state.files {
		b.state.files[path] = may[len(may)-1:]
	}
	b.state.settles()
	b.execs = slices.DeleteFunc(b.execs, func(x *command) bool { return x.seq == 0 })
	if b.cycle != "" && len(k.wrong) == 0 {
		k.w.f.cycles[b.cycle]++
	}
	b.cycle = ""
}

// row is a command as the daemon tells it.
type row struct {
	Seq      int64  `json:"seq"`
	Status   string `json:"status"`
	Cmd      any    `json:"cmd"`
	Code     string `json:"code"`
	Session  string `json:"session"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	ExitCode *int   `json:"exit_code"`
}

// exited reports whether the command ended by itself, as it should.
func (r row) exited(x *command) bool {
	return r.Reason == "exited" && r.ExitCode != nil && *r.ExitCode == x.code
}

// list reads all commands, when they have ended.
func (k *checker) list() (all []row) {
	if !k.w.d.within(func() bool {
		all = nil
		for {
			after := int64(0)
			if len(all) > 0 {
				after = all[len(all)-1].Seq
			}
			status, text := k.call("GET", k.b.path(fmt.Sprintf("/execs?after_seq=%d&limit=1000", after)), "")
			var page struct {
				Execs []row `json:"execs"`
			}
			if err := json.Unmarshal([]byte(text), &page); status != http.StatusOK || err != nil {
				k.errorf("its commands: %d %s", status, text)
				return true
			}
			if len(page.Execs) == 0 {
				break
			}
			all = append(all, page.Execs...)
		}
		return !slices.ContainsFunc(all, func(r row) bool { return r.Status == "pending" || r.Status == "running" })
	}) {
		k.errorf("it has commands that do not end: %+v", all)
	}
	return all
}

// checkExecs: every command that was acknowledged is there under its number,
// numbers have no gap, each has ended for a reason that is true, and its output
// is what it printed.
func (k *checker) checkExecs() []row {
	rows := k.list()
	for i, r := range rows {
		if r.Seq != int64(i+1) {
			k.errorf("command %d has the number %d", i+1, r.Seq)
			return rows
		}
	}
	for _, x := range k.b.execs {
		i := slices.IndexFunc(rows, func(r row) bool { return strings.Contains(fmt.Sprint(r.Cmd, r.Code), x.token) })
		switch {
		case i < 0 && x.seq == 0:
			continue // it was asked for, and never came
		case i < 0 || x.seq != 0 && x.seq != rows[i].Seq:
			k.errorf("command %s was acknowledged as %d and is lost", x.token, x.seq)
			continue
		}
		x.seq = rows[i].Seq
		x.exited = rows[i].exited(x)
		k.checkEnd(x, rows[i])
	}
	return rows
}

func (k *checker) checkEnd(x *command, r row) {
	honest := x.exited
	if x.ended {
		// The programs of a script that a stop terminates may leave it to exit.
		honest = slices.Contains([]string{"exited", "sandbox_stopped", "sandbox_destroyed", "not_started"}, r.Reason)
	}
	if !honest {
		k.errorf("command %s (%d) ended as %q %s %q; want exited with %d, its sandbox ended: %v", x.token, x.seq, r.Reason, code(r.ExitCode), r.Message, x.code, x.ended)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken != "" {
		k.errorf("command %s (%d) printed something else %s", x.token, x.seq, x.broken)
	}
	status, text := k.call("GET", k.b.path(fmt.Sprintf("/execs/%d/output", x.seq)), "")
	want := x.output()
	switch {
	case status != http.StatusOK || !strings.HasPrefix(want, text):
		at := 0
		for at < min(len(text), len(want)) && text[at] == want[at] {
			at++
		}
		k.errorf("the output of %s (%d, ended: %v, %q %s) is not what it printed: %d, %d bytes of %d, and at %d %.200q", x.token, x.seq,
			x.ended, r.Reason, code(r.ExitCode), status, len(text), len(want), at, text[at:])
	case int64(len(text)) < x.read:
		k.errorf("the output of %s (%d) has %d bytes, and %d had been read", x.token, x.seq, len(text), x.read)
	case r.Reason == "exited" && !x.ended && text != want:
		k.errorf("the output of %s (%d) has %d bytes of %d", x.token, x.seq, len(text), len(want))
	}
	if x.counted || k.lost {
		return
	}
	x.counted = true
	f := &k.w.f
	f.execs++
	f.bytes += int64(len(text))
	if x.session != "" {
		f.sessions++
	}
	if x.cell {
		f.cells++
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

// checkEvents: what a reader has seen is there, unchanged and without anything
// new in between, and every command has one end.
func (k *checker) checkEvents(rows []row) {
	b := k.b
	var all []seen
	var ends map[int64]int
	// A command counts as ended when its journal says so, which is a moment
	// before its event.
	k.w.d.within(func() bool {
		all, ends = k.events(), map[int64]int{}
		for _, e := range all {
			// Those of a cell have one kind.
			if e.Kind == "exec.finished" || e.Kind == "code.run" && (e.Status == "done" || e.Status == "error") {
				ends[e.Seq]++
			}
		}
		return k.lost || len(ends) >= len(rows)
	})
	for _, r := range rows {
		if ends[r.Seq] != 1 {
			k.errorf("command %d (%q) has %d events of its end", r.Seq, r.Reason, ends[r.Seq])
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, e := range b.events {
		if i >= len(all) && !k.alone {
			return // it came after the question
		}
		if i >= len(all) || all[i] != e {
			k.errorf("event %d was %+v and is not any more", i, e)
			return
		}
	}
	if !k.alone || k.lost {
		return
	}
	k.w.f.events += len(all) - b.known
	k.w.f.followed += len(b.events) - b.known
	b.events, b.known = all, len(all)
}

// events reads a whole history.
func (k *checker) events() (all []seen) {
	for {
		after := int64(0)
		if len(all) > 0 {
			after = all[len(all)-1].Cursor
		}
		status, text := k.call("GET", k.b.path(fmt.Sprintf("/events?after=%d&limit=1000", after)), "")
		var page struct {
			Events []seen `json:"events"`
		}
		if err := json.Unmarshal([]byte(text), &page); status != http.StatusOK || err != nil {
			k.errorf("its events: %d %s", status, text)
			return all
		}
		if len(page.Events) == 0 {
			return all
		}
		all = append(all, page.Events...)
	}
}

// compareDisk compares what a sandbox that does not run has on its disk.
func (k *checker) compareDisk(s state) (wrong []string) {
	status, text := k.call("GET", k.b.path("/files/content?path=ran"), "")
	if status != http.StatusOK && status != http.StatusNotFound {
		return []string{fmt.Sprintf("what ran: %d %s", status, text)}
	}
	if status == http.StatusNotFound {
		text = ""
	}
	for _, text := range s.ran.compare(strings.Fields(text)) {
		wrong = append(wrong, "/workspace/ran: "+text)
	}
	return append(wrong, k.compareFiles(s)...)
}

// compareFiles: what was acknowledged is there; a write without an answer was
// made or not.
func (k *checker) compareFiles(s state) (wrong []string) {
	for path, may := range s.files {
		status, text := k.call("GET", k.b.path("/files/content?path="+path), "")
		if status == http.StatusNotFound {
			text = ""
		} else if status != http.StatusOK {
			wrong = append(wrong, fmt.Sprintf("file %s: %d %s", path, status, text))
			continue
		}
		at := slices.Index(may, text)
		if at < 0 {
			wrong = append(wrong, fmt.Sprintf("file %s has %d bytes (%.60q) that are none of its %d contents", path, len(text), text, len(may)))
			continue
		}
		s.files[path] = append(slices.Delete(slices.Clone(may), at, at+1), text) // the last is the one that it has
		k.w.f.files++
	}
	return wrong
}

// compareInside compares what a sandbox that runs has on its disk and in memory.
func (k *checker) compareInside() {
	b := k.b
	b.doubt = "use"
	disk, process, ok := strings.Cut(k.look("/exec", map[string]any{"cmd": lookScript}), "--\n")
	if !ok {
		k.errorf("it could not be looked at: %q", disk)
		return
	}
	b.doubt = ""
	b.becomes(running)
	k.compareLedger("/workspace/ran", b.state.ran, disk)
	k.compareProcess(process)
	if len(b.state.memory.kernel) > 0 {
		k.compareLedger("the kernel", b.state.memory.kernel, k.look("/code", map[string]any{"language": "python", "code": lookCode}))
	}
	for name, sh := range b.state.shells {
		k.compareLedger("session "+name, sh.ran, k.look("/exec", map[string]any{"cmd": `echo "$RAN"`, "session": name}))
	}
	if status, text := k.call("GET", b.path(""), ""); status != http.StatusOK || !strings.Contains(text, `"status":"running"`) || strings.Contains(text, "restore_incomplete") {
		k.errorf("it runs, and %d %s", status, text)
	}
}

// look runs what only looks.
func (k *checker) look(path string, asks map[string]any) string {
	body, err := json.Marshal(asks)
	if err != nil {
		k.errorf("%v", err)
	}
	status, text := k.call("POST", k.b.path(path), string(body))
	var answer struct {
		Reason, Stdout string
	}
	if err := json.Unmarshal([]byte(text), &answer); status != http.StatusOK || err != nil || answer.Reason != "exited" {
		k.errorf("%s = %d %s", body, status, text)
	}
	return answer.Stdout
}

func (k *checker) compareLedger(where string, l ledger, text string) {
	for _, wrong := range l.compare(strings.Fields(text)) {
		k.errorf("%s: %s", where, wrong)
	}
}

// compareProcess compares the process that counts: it is one that was started, has
// what it was told, and has not counted backwards.
func (k *checker) compareProcess(says string) {
	m := &k.b.state.memory
	words := strings.Fields(says)
	if len(words) < 2 {
		if m.up || says != "" {
			k.errorf("the process that counts is gone: %q", says)
		}
		return
	}
	if !slices.Contains(m.names, words[0]) {
		k.errorf("the process that counts is %s, want one of %v", words[0], m.names)
	}
	ticks, err := strconv.Atoi(words[1])
	if err != nil || ticks < m.ticks {
		k.errorf("the process that counts has come to %q, and was at %d", words[1], m.ticks)
	}
	m.up, m.names, m.ticks = true, words[:1], ticks
	k.compareLedger("the process that counts", m.counts, strings.Join(words[2:], " "))
}
