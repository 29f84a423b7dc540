package conversation

import (
	"encoding/json"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Cron is runs that begin by the clock.
type Cron struct {
	ID     string // a UUID
	Tenant string
	Owner  string // the principal's name that made it; its runs act as that one
	// Thread has all its runs, and ThreadID names it; "": each has a thread of its own,
	// which stays after the run when Keep is set.
	Thread   sandbox.UID
	ThreadID string
	Keep     bool
	Schedule string // five fields of cron
	Timezone string // of IANA; "": UTC
	// AssistantID and Run are what each run is made from.
	AssistantID string
	Run         CronRun
	Metadata    map[string]json.RawMessage
	Enabled     bool
	EndTime     time.Time // no run begins after it; zero: never
	// Next is when the next run is to begin; zero: none is to come.
	Next time.Time
	// LastAt is when a run was to begin last. LastRun is the newest run, in the thread
	// with the id LastThread, and Failure why none began at LastAt.
	LastAt     time.Time
	LastThread string
	LastRun    string
	Failure    string
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// CronRun is what the runs of a cron are to do.
type CronRun struct {
	Request   RunRequest                 `json:"request"`
	Metadata  map[string]json.RawMessage `json:"metadata,omitempty"`
	Multitask Multitask                  `json:"multitask,omitempty"`
}
