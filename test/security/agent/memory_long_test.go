//go:build root && long

package agent_test

import (
	"net/http"
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
