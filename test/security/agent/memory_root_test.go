//go:build root

package agent_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// holding is a model that keeps runs waiting until release is closed, as soon as they
// have said "look", or after 12 MiB of a line that does not end.
func holding(t *testing.T, release <-chan struct{}) (m *model, lines *atomic.Int32) {
	t.Helper()
	lines = new(atomic.Int32)
	wait := func(r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	return newModel(t, func(w http.ResponseWriter, r *http.Request, a asked) {
		switch user, _ := a.turn(); user {
		case "look":
			wait(r)
			say(w, "seen")
		case "line":
			sse(w)
			flood(w, "data: "+strings.Repeat("x", 1<<10), 12<<20)
			_ = http.NewResponseController(w).Flush() // who has left reads nothing
			lines.Add(1)
			wait(r)
		default:
			obey(w, r, a)
		}
	}), lines
}

// TestAnswersOfLongLines: a tenant's answers that are one long line each, and do not end,
// share the room that there is for them.
func TestAnswersOfLongLines(t *testing.T) {
	const many = 24
	release := make(chan struct{})
	m, lines := holding(t, release)
	d := startTenants(t, m)
	threads := make([]string, many)
	for i := range threads {
		threads[i] = d.thread(acme)
		d.must(acme, http.MethodPost, "/agent/threads/"+threads[i]+"/runs", human("line"), nil)
	}
	if !until(t, func() bool { return lines.Load() >= many }) {
		t.Errorf("%d answers of one line came", lines.Load())
	}
	d.works(other)
	d.works(acme)
	close(release)
	for _, id := range threads {
		var o outcome
		d.must(acme, http.MethodGet, "/agent/threads/"+id+"/runs/"+d.runsOf(acme, id)[0].ID+"/join", nil, &o)
		if o.Error == nil || o.Error.Error != "BrokenStreamError" && o.Error.Error != "ModelUnavailableError" {
			t.Errorf("a run of half a line: %+v", o.Error)
		}
	}
	d.bounded("answers of long lines")
}
