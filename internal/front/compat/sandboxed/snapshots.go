package sandboxed

import (
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// stampForm is how the dialect names the snapshots of a sandbox: by their time.
const stampForm = "2006-01-02-150405"

// Stamp is a snapshot of the files of a sandbox.
type Stamp struct {
	TS         string `json:"ts" doc:"Its name: YYYY-MM-DD-HHMMSS."`
	SizeBytes  int64  `json:"size_bytes"`
	Compressed int64  `json:"compressed_size_bytes" doc:"The same: they are not compressed."`
	Auto       bool   `json:"auto"`
}

// Stamped is what was just kept.
type Stamped struct {
	TS        string `json:"ts"`
	SizeBytes int64  `json:"size_bytes"`
}

// Restore names a snapshot.
type Restore struct {
	Snapshot string `json:"snapshot" doc:"Its ts, or its id or name."`
}

// Restored says that a sandbox has the files of a snapshot.
type Restored struct {
	SizeBytes  int64     `json:"size_bytes"`
	RestoredAt time.Time `json:"restored_at"`
}

func (d *dialect) snapshotRoutes(words *httpapi.Dialect) {
	answer := func(status int, c httpapi.Content) map[int]httpapi.Content { return map[int]httpapi.Content{status: c} }
	d.AddRoutes(words,
		httpapi.Route{
			ID: "sandboxed-snapshot", Pattern: "POST /sandbox/{id}/snapshots", Summary: "Keep the files of a sandbox",
			Answers: answer(http.StatusAccepted, d.JSON(Stamped{})), Serve: d.keep,
		},
		httpapi.Route{
			ID: "sandboxed-list-snapshots", Pattern: "GET /sandbox/{id}/snapshots", Summary: "List what is kept of a sandbox, newest first",
			Answers: answer(http.StatusOK, d.JSONList(Stamp{})), Serve: d.stamps,
		},
		httpapi.Route{
			ID: "sandboxed-restore", Pattern: "POST /sandbox/{id}/restore", Summary: "Put the files of a stopped sandbox back",
			Body: d.JSON(Restore{}), Answers: answer(http.StatusOK, d.JSON(Restored{})), Serve: d.restore,
		},
	)
}

func (d *dialect) keep(w http.ResponseWriter, r *http.Request) error {
	n, _, err := d.Core.Snapshots().Create(r.Context(), snapshot.Request{Source: r.PathValue("id")})
	if err != nil {
		return noRow(err)
	}
	front.WriteJSON(w, http.StatusAccepted, Stamped{TS: stampOf(n), SizeBytes: n.DiskBytes})
	return nil
}

func stampOf(n sandbox.Snapshot) string { return n.CreatedAt.UTC().Format(stampForm) }

// kept are the snapshots of a sandbox that have its files alone.
func (d *dialect) kept(r *http.Request) (b sandbox.Sandbox, all []sandbox.Snapshot, err error) {
	if b, err = d.Core.Sandboxes().Get(r.Context(), r.PathValue("id")); err != nil {
		return b, nil, noRow(err)
	}
	q := snapshot.Query{Source: string(b.ID), Limit: 1000}
	for {
		page, next, err := d.Core.Snapshots().List(r.Context(), q)
		if err != nil {
			return b, nil, err
		}
		for _, n := range page {
			if n.SourceUID == b.UID && !n.Memory {
				all = append(all, n)
			}
		}
		if q.Cursor = next; next == "" {
			return b, all, nil
		}
	}
}

func (d *dialect) stamps(w http.ResponseWriter, r *http.Request) error {
	_, all, err := d.kept(r)
	if err != nil {
		return err
	}
	rows := make([]Stamp, len(all))
	for i, n := range all {
		rows[i] = Stamp{TS: stampOf(n), SizeBytes: n.DiskBytes, Compressed: n.DiskBytes}
	}
	front.WriteJSON(w, http.StatusOK, rows)
	return nil
}

func (d *dialect) restore(w http.ResponseWriter, r *http.Request) error {
	var in Restore
	if err := d.ReadBody(r, &in); err != nil {
		return err
	}
	b, all, err := d.kept(r)
	if err != nil {
		return err
	}
	if b.State == sandbox.Running {
		return errs.E(errs.WrongState, "sandbox is running").Hint("stop it first")
	}
	name := in.Snapshot
	for _, n := range all { // the newest of those of one second
		if stampOf(n) == in.Snapshot {
			name = string(n.UID)
			break
		}
	}
	n, err := d.Core.Snapshots().Get(r.Context(), name)
	if err != nil {
		return err
	}
	if _, err := d.Core.Snapshots().Rollback(r.Context(), string(b.ID), string(n.UID)); err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, Restored{SizeBytes: n.DiskBytes, RestoredAt: time.Now().UTC()})
	return nil
}
