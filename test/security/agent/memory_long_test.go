//go:build root && long

package agent_test

import (
	"net/http"
	"sync"
	"testing"
)

// TestRunsWithLargeImages: of a tenant's runs with images of 10 MB one goes on at a time,
// because each takes several times as much; the others wait for it, and other tenants do
// not.
func TestRunsWithLargeImages(t *testing.T) {
	const many = 8
	release := make(chan struct{})
	m, _ := holding(t, release)
	d := startTenants(t, m)
	block, _ := picture(10 << 20)
	raw := encode(human([]object{block, {"type": "text", "text": "look"}}))
	threads := make([]string, many)
	for i := range threads {
		threads[i] = d.thread(acme)
		d.must(acme, http.MethodPost, "/agent/threads/"+threads[i]+"/runs", raw, nil)
	}
	d.works(other)
	d.works(acme)
	d.bounded("runs with images")
	// One that waits can be canceled.
	var canceled runRow
	last := threads[many-1]
	d.must(acme, http.MethodPost, "/agent/threads/"+last+"/runs/"+d.runsOf(acme, last)[0].ID+"/cancel?wait=true", nil, &canceled)
	if canceled.Status != "interrupted" {
		t.Errorf("a run that waits was canceled, and is %s", canceled.Status)
	}
	close(release)
	for _, id := range threads[:many-1] {
		var o outcome
		d.must(acme, http.MethodGet, "/agent/threads/"+id+"/runs/"+d.runsOf(acme, id)[0].ID+"/join", nil, &o)
		if o.last() != "seen" {
			t.Errorf("a run with an image: %+v", o.Error)
		}
	}
	d.bounded("all of them")
}

// TestReadersOfALargeState: its readers, by the dozen and in every way, take turns.
func TestReadersOfALargeState(t *testing.T) {
	d := startTenants(t, newModel(t, obey))
	block, _ := picture(10 << 20)
	id := d.thread(acme)
	if o := d.run(acme, id, human([]object{block, {"type": "text", "text": "DO no_such_tool {}"}})); o.Error != nil {
		t.Fatalf("%+v", o.Error)
	}
	run := d.runsOf(acme, id)[0].ID
	d.bounded("a run with an image")
	for _, path := range []string{
		"/state", "", "/history", "/runs/" + run + "/join", "/runs/" + run + "/stream?stream_mode=values", "/runs/" + run + "/stream?stream_mode=debug&stream_mode=events",
	} {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if status := d.leave(acme, http.MethodGet, "/agent/threads/"+id+path, nil); status != "200" && status != "503" {
					t.Errorf("%s: %s", path, status)
				}
			})
		}
		all.Wait()
		d.works(other)
		d.bounded("20 readers of " + path)
	}
}
