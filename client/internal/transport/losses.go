package transport

import (
	"cmp"
	"net/http"
	"strings"
)

// lossHeader says what is lost of a sandbox that was woken for a request.
const lossHeader = "Cubby-Restore-Incomplete"

// Noticing returns h with told called for each answer that says what a sandbox has
// lost, by the goroutine of the request; h itself when told is nil.
func Noticing(h *http.Client, told func(id, lost string)) *http.Client {
	if told == nil {
		return h
	}
	same := *h
	same.Transport = &lossReader{cmp.Or(h.Transport, http.DefaultTransport), told}
	return &same
}

type lossReader struct {
	next http.RoundTripper
	told func(id, lost string)
}

func (l *lossReader) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if lost := res.Header.Get(lossHeader); lost != "" {
		_, below, _ := strings.Cut(r.URL.Path, "/v1/sandboxes/")
		id, _, _ := strings.Cut(below, "/")
		l.told(id, lost)
	}
	return res, nil
}

// CloseIdleConnections lets [http.Client] reach the transport.
func (l *lossReader) CloseIdleConnections() {
	if t, ok := l.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
