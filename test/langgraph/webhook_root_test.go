//go:build root

package langgraph_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"time"
)

// receive returns a URL, and what waits for what is posted to it.
func (s *server) receive() (url string, body func() any) {
	got := make(chan any, 1)
	r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var v any
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			s.t.Error(err)
		}
		got <- v
	}))
	s.t.Cleanup(r.Close)
	return r.URL, func() any {
		s.t.Helper()
		select {
		case v := <-got:
			return v
		case <-time.After(time.Minute):
			s.t.Fatal("nothing was posted")
			return nil
		}
	}
}
