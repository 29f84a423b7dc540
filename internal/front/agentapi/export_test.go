package agentapi

import (
	"time"

	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// RegisterBeating is Register with another heartbeat.
func RegisterBeating(c Config, every time.Duration) func(*httpapi.Server) {
	return func(s *httpapi.Server) { register(s, c, every) }
}

// FuzzedPosition is the id of a stream, read and written again.
func FuzzedPosition(id string) (string, error) {
	p, err := parsePosition(id)
	return p.String(), err
}

// FuzzedThreadPosition is the same of a thread's stream.
func FuzzedThreadPosition(id string) (string, error) {
	p, err := parseThreadPosition(id)
	return p.String(), err
}
