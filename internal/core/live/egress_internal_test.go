package live

import "testing"

// TestWhatWasDecidedBeforeTheEndIsWritten: also when the end is seen first.
func TestWhatWasDecidedBeforeTheEndIsWritten(t *testing.T) {
	const most = 64
	s := &Sandboxes{decisions: make(chan decision, most)}
	var all []chan struct{}
	for range most {
		written := make(chan struct{})
		s.decisions <- decision{written: written}
		all = append(all, written)
	}
	ended := make(chan struct{})
	close(ended)
	(&Egress{s: s}).writeDecisions(ended)
	for i, written := range all {
		select {
		case <-written:
		default:
			t.Errorf("decision %d of %d is not written", i, most)
		}
	}
}
