package conversation

import (
	"encoding/json"
	"time"
)

// Item is what the agent of a tenant keeps beyond its threads: a JSON object under a
// key in a namespace.
type Item struct {
	Namespace []string
	Key       string
	Value     json.RawMessage // an object
	// Fields are the paths of the value that a search reads, as JSON: false for none,
	// a list of them, or nothing for all.
	Fields json.RawMessage
	// TTL is how long the item is kept after it was written, or read in a way that
	// renews it; 0: for ever.
	TTL time.Duration
	// Bytes is about how many the item takes.
	Bytes     int64
	CreatedAt time.Time
	UpdatedAt time.Time
}
