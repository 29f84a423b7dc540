package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Snapshot is what was kept of a sandbox. Its fields have sandboxed's names where
// that has them.
type Snapshot struct {
	ID          string    `json:"id"`
	Name        string    `json:"name" doc:"Unique among those of its tenant."`
	Status      string    `json:"status" enum:"ready"`
	Source      string    `json:"source_sandbox_id" doc:"The sandbox, which may be gone."`
	TenantID    string    `json:"tenant_id,omitempty"`
	Image       string    `json:"base_image"`
	Isolation   string    `json:"isolation" enum:"gvisor,container"`
	Limits      Limits    `json:"limits"`
	Visibility  string    `json:"visibility" enum:"private"`
	Memory      bool      `json:"memory" doc:"It has the memory beside the files."`
	SizeBytes   int64     `json:"size_bytes" doc:"What it takes on the host."`
	DiskBytes   int64     `json:"disk_bytes" doc:"Of that, the files."`
	MemoryBytes int64     `json:"memory_bytes" doc:"Of that, the memory."`
	CreatedAt   time.Time `json:"created_at"`
}

func snapshotJSON(n sandbox.Snapshot) Snapshot {
	l := n.Spec.Limits
	return Snapshot{
		ID: string(n.UID), Name: n.Name, Status: string(n.State), Source: string(n.Source), TenantID: n.Tenant,
		Image: n.Spec.Image, Isolation: string(n.Spec.Isolation), Limits: Limits{l.MemoryBytes, l.CPUs, l.PIDs, l.DiskBytes, l.OpenFiles},
		Visibility: string(sandbox.Private), Memory: n.Memory,
		SizeBytes: n.DiskBytes + n.MemoryBytes, DiskBytes: n.DiskBytes, MemoryBytes: n.MemoryBytes, CreatedAt: n.CreatedAt.UTC(),
	}
}

// SnapshotInput is what a snapshot is made of.
type SnapshotInput struct {
	Source string `json:"source_sandbox_id"`
	Name   string `json:"name,omitempty" maxLength:"63" doc:"1 to 63 of A-Z a-z 0-9 . _ -; default its id."`
	Memory bool   `json:"memory,omitempty" doc:"Keep the memory beside the files; gVisor only. A sandbox that sleeps is woken, unless its auto_wake is never."`
}

// SnapshotMade is a new snapshot.
type SnapshotMade struct {
	Snapshot
	PausedMS int64 `json:"paused_ms" doc:"How long the sandbox stood still."`
}

// SnapshotList is one page of snapshots.
type SnapshotList struct {
	Snapshots  []Snapshot `json:"snapshots" nullable:"false"`
	NextCursor string     `json:"next_cursor,omitempty" doc:"Absent on the last page."`
}

// ForkInput says how many sandboxes a fork makes.
type ForkInput struct {
	Count int      `json:"count,omitempty" minimum:"0" maximum:"100" doc:"Default as many as there are ids, at least 1."`
	IDs   []string `json:"ids,omitempty" nullable:"false" doc:"Of the first of them; the others have generated ones."`
}

// Forked is what a fork made.
type Forked struct {
	Sandboxes []Sandbox `json:"sandboxes" nullable:"false"`
	PausedMS  int64     `json:"paused_ms" doc:"How long the parent stood still."`
	Warnings  []string  `json:"warnings" nullable:"false" doc:"What the new sandboxes have in common with it and should not, as the state of a program's random generator."`
}

// RollbackInput names a snapshot.
type RollbackInput struct {
	Snapshot string `json:"snapshot" doc:"Its id or name."`
}

type snapshotName struct {
	Snapshot string `path:"snapshot" doc:"Its id or name."`
}

const snapshotPath = "/v1/snapshots/{snapshot}"

func (d *door) snapshotRoutes() {
	register(d, operation{
		id: "create-snapshot", method: http.MethodPost, path: "/v1/snapshots", tag: "snapshots", status: http.StatusCreated,
		summary: "Keep a sandbox as it is",
		description: "Its files and, with memory, all that runs in it. The sandbox goes on, and the snapshot outlives it. " +
			"409 shared_files for a sandbox whose files are its tenant's.",
	}, d.createSnapshot)
	register(d, operation{
		id: "list-snapshots", method: http.MethodGet, path: "/v1/snapshots", tag: "snapshots", summary: "List snapshots, newest first",
	}, d.listSnapshots)
	register(d, operation{
		id: "get-snapshot", method: http.MethodGet, path: snapshotPath, tag: "snapshots", summary: "Describe a snapshot",
	}, func(ctx context.Context, in *snapshotName) (*struct{ Body Snapshot }, error) {
		n, err := d.Core.Snapshots().Get(ctx, in.Snapshot)
		if err != nil {
			return nil, err
		}
		return &struct{ Body Snapshot }{snapshotJSON(n)}, nil
	})
	register(d, operation{
		id: "remove-snapshot", method: http.MethodDelete, path: snapshotPath, tag: "snapshots", status: http.StatusNoContent,
		summary: "Delete a snapshot", description: "Sandboxes that began from it go on.",
	}, func(ctx context.Context, in *snapshotName) (*struct{}, error) {
		return nil, d.Core.Snapshots().Remove(ctx, in.Snapshot)
	})
	register(d, operation{
		id: "fork-sandbox", method: http.MethodPost, path: "/v1/sandboxes/{id}/fork", tag: "sandboxes", status: http.StatusCreated,
		summary: "Make sandboxes with the memory and files of a running one",
		description: "All of them or none; the parent goes on. Each has an id, a host name and a history of its own, and its " +
			"commands are numbered from 1. gVisor only: 409 unsupported in a container.",
	}, d.forkSandbox)
	register(d, operation{
		id: "rollback-sandbox", method: http.MethodPost, path: "/v1/sandboxes/{id}/rollback", tag: "sandboxes",
		summary: "Put a sandbox back to a snapshot, under its own id",
		description: "Its files and, if the snapshot has it, its memory. What runs ends; the history and the numbers of commands go on. " +
			"When it breaks off half-way the sandbox is stopped, and its reason says to repeat it.",
	}, func(ctx context.Context, in *struct {
		IDInput
		Body RollbackInput
	},
	) (*sandboxOutput, error) {
		return sandboxOut(d.Core.Snapshots().Rollback(ctx, in.ID, in.Body.Snapshot))
	})
}

func (d *door) createSnapshot(ctx context.Context, in *struct{ Body SnapshotInput }) (*struct{ Body SnapshotMade }, error) {
	n, paused, err := d.Core.Snapshots().Create(ctx, snapshot.Request{Source: in.Body.Source, Name: in.Body.Name, Memory: in.Body.Memory})
	if err != nil {
		return nil, err
	}
	return &struct{ Body SnapshotMade }{SnapshotMade{snapshotJSON(n), paused.Milliseconds()}}, nil
}

type listSnapshotsInput struct {
	Source string `query:"source_sandbox_id" doc:"Only those of a sandbox."`
	Tenant string `query:"tenant_id" maxLength:"64"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor"`
}

func (d *door) listSnapshots(ctx context.Context, in *listSnapshotsInput) (*struct{ Body SnapshotList }, error) {
	page, next, err := d.Core.Snapshots().List(ctx, snapshot.Query{Tenant: in.Tenant, Source: in.Source, Cursor: in.Cursor, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	out := SnapshotList{Snapshots: make([]Snapshot, len(page)), NextCursor: next}
	for i, n := range page {
		out.Snapshots[i] = snapshotJSON(n)
	}
	return &struct{ Body SnapshotList }{out}, nil
}

func (d *door) forkSandbox(ctx context.Context, in *struct {
	IDInput
	Body *ForkInput `doc:"Optional."`
},
) (*struct{ Body Forked }, error) {
	body := in.Body
	if body == nil {
		body = new(ForkInput)
	}
	f, err := d.Core.Snapshots().Fork(ctx, in.ID, body.Count, body.IDs)
	if err != nil {
		return nil, err
	}
	out := Forked{Sandboxes: make([]Sandbox, len(f.Sandboxes)), PausedMS: f.Paused.Milliseconds(), Warnings: append([]string{}, f.Warnings...)}
	for i, b := range f.Sandboxes {
		out.Sandboxes[i] = sandboxJSON(b)
	}
	return &struct{ Body Forked }{out}, nil
}
