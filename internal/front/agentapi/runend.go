package agentapi

import (
	"encoding/json"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
)

// RunEnd is what is posted to the webhook of a run: the run as it ended, and the state
// that it left.
type RunEnd struct {
	Run

	StartedAt time.Time `json:"run_started_at"`
	EndedAt   time.Time `json:"run_ended_at"`
	SentAt    time.Time `json:"webhook_sent_at"`
	Values    any       `json:"values"`
	Omitted   bool      `json:"values_omitted,omitempty"`
	Error     string    `json:"error,omitempty"`
}

// DescribeRunEnd writes what a webhook is sent.
func DescribeRunEnd(e agent.RunEnd) ([]byte, error) {
	end := RunEnd{
		Run: runOf(e.Run, e.ThreadID), StartedAt: e.Started.UTC(), EndedAt: e.PreparedAt.UTC(), SentAt: e.PreparedAt.UTC(),
		Omitted: e.TooLarge, Error: e.Ended.Message,
	}
	if !e.Stateless && !e.TooLarge {
		end.Values = valuesOf(e.Messages)
	}
	return json.Marshal(end)
}
