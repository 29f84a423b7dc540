package oci

import (
	"context"
	"net"
	"net/http"

	"connectrpc.com/connect"

	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/channel"
)

// What an agent may answer to a single call.
const (
	maxAnswer       = 64 << 10
	maxAnswerHeader = 16 << 10
)

// agent returns a client for single calls: a fresh connection each. Whoever
// took the agent over can answer anything.
func agent(l *channel.Listener) guestv1connect.GuestServiceClient {
	transport := &http.Transport{
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) },
	}
	h := &http.Client{
		Transport:     shortAnswers{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return guestv1connect.NewGuestServiceClient(h, "http://guest",
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxAnswer))
}

// shortAnswers cuts answers off. The client has a bound of its own, but reads
// on to the end of what is longer, and an answer may have none.
type shortAnswers struct{ http.RoundTripper }

func (s shortAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = http.MaxBytesReader(nil, res.Body, maxAnswer+1)
	return res, nil
}
