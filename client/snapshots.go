package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Snapshot is what was kept of a sandbox, which it outlives.
type Snapshot struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`   // unique among those of its tenant
	Status      string    `json:"status"` // "ready"
	Source      string    `json:"source_sandbox_id"`
	TenantID    string    `json:"tenant_id,omitempty"`
	Image       string    `json:"base_image"`
	Isolation   Isolation `json:"isolation"`
	Limits      Limits    `json:"limits"`
	Visibility  string    `json:"visibility"`   // "private"
	Memory      bool      `json:"memory"`       // it has the memory beside the files
	SizeBytes   int64     `json:"size_bytes"`   // on the host
	DiskBytes   int64     `json:"disk_bytes"`   // of that, the files
	MemoryBytes int64     `json:"memory_bytes"` // of that, the memory
	CreatedAt   time.Time `json:"created_at"`
	// PausedMillis is how long the sandbox stood still, of one that was just made.
	PausedMillis int64 `json:"paused_ms,omitempty"`
}

// String is short, for logs.
func (s Snapshot) String() string { return fmt.Sprintf("snapshot %s of %s", s.Name, s.Source) }

// SnapshotOptions say what a snapshot is to be. The zero value keeps the files
// under a name that the daemon chooses.
type SnapshotOptions struct {
	Name   string
	Memory bool // keep what runs too; gVisor only
}

// CreateSnapshot keeps a sandbox, which goes on. One that sleeps and whose memory
// is wanted is woken. [SharedFiles] for one whose files are its tenant's.
func (c *Client) CreateSnapshot(ctx context.Context, sandbox string, o SnapshotOptions) (Snapshot, error) {
	var s Snapshot
	body := struct {
		Source string `json:"source_sandbox_id"`
		Name   string `json:"name,omitempty"`
		Memory bool   `json:"memory,omitempty"`
	}{sandbox, o.Name, o.Memory}
	return s, c.do(ctx, call{method: http.MethodPost, path: "/v1/snapshots", json: body}, &s)
}

// SnapshotQuery selects snapshots. The zero value selects all of the token's.
type SnapshotQuery struct {
	Source   string // the sandbox's id; "": any
	TenantID string // "": any
	PageSize int    // of one request; 0: the daemon's choice
}

// Snapshots iterates over snapshots, newest first, fetching page by page.
func (c *Client) Snapshots(ctx context.Context, o SnapshotQuery) iter.Seq2[Snapshot, error] {
	return func(yield func(Snapshot, error) bool) {
		q := url.Values{}
		if o.Source != "" {
			q.Set("source_sandbox_id", o.Source)
		}
		if o.TenantID != "" {
			q.Set("tenant_id", o.TenantID)
		}
		if o.PageSize > 0 {
			q.Set("limit", fmt.Sprint(o.PageSize))
		}
		for {
			var page struct {
				Snapshots []Snapshot `json:"snapshots"`
				Next      string     `json:"next_cursor"`
			}
			if err := c.do(ctx, call{method: http.MethodGet, path: "/v1/snapshots", query: q}, &page); err != nil {
				yield(Snapshot{}, err)
				return
			}
			for _, s := range page.Snapshots {
				if !yield(s, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Set("cursor", page.Next)
		}
	}
}

func snapshotPath(name string) string { return "/v1/snapshots/" + url.PathEscape(name) }

// Snapshot describes a snapshot, by its id or name.
func (c *Client) Snapshot(ctx context.Context, name string) (Snapshot, error) {
	var s Snapshot
	return s, c.do(ctx, call{method: http.MethodGet, path: snapshotPath(name)}, &s)
}

// RemoveSnapshot deletes a snapshot, by its id or name. Sandboxes that began from
// it go on.
func (c *Client) RemoveSnapshot(ctx context.Context, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: snapshotPath(name)}, nil)
}

// Forked is what a fork made.
type Forked struct {
	Sandboxes    []Sandbox `json:"sandboxes"`
	PausedMillis int64     `json:"paused_ms"` // how long the parent stood still
	// Warnings say what the new sandboxes have in common with it and should not,
	// as the state of a program's random generator.
	Warnings []string `json:"warnings"`
}

// Fork makes sandboxes with the memory and the files that a running one has at one
// instant; it goes on. The first have the ids that are given. All or none:
// [Unsupported] in a container, [SharedFiles] for one whose files are its tenant's.
func (c *Client) Fork(ctx context.Context, id string, count int, ids ...string) (Forked, error) {
	var f Forked
	body := struct {
		Count int      `json:"count,omitempty"`
		IDs   []string `json:"ids,omitempty"`
	}{count, ids}
	return f, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "fork"), json: body}, &f)
}

// Rollback puts a sandbox back to a snapshot, by its id or name: its files and, if
// the snapshot has it, its memory. What runs in it ends.
func (c *Client) Rollback(ctx context.Context, id, snapshot string) (Sandbox, error) {
	var box Sandbox
	body := map[string]string{"snapshot": snapshot}
	return box, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "rollback"), json: body}, &box)
}
