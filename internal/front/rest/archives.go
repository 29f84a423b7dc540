package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// Archive is the files of a destroyed sandbox.
type Archive struct {
	Name      string    `json:"name" doc:"For restore of a create."`
	ID        string    `json:"id" doc:"The sandbox's."`
	Image     string    `json:"image"`
	Isolation string    `json:"isolation" enum:"gvisor,container"`
	Bytes     int64     `json:"bytes" doc:"What it takes in the storage."`
	CreatedAt time.Time `json:"created_at"`
}

func archiveJSON(m archive.Manifest) Archive {
	return Archive{
		Name: m.Name, ID: string(m.ID), Image: m.Image, Isolation: string(m.Isolation), Bytes: m.Bytes(), CreatedAt: m.CreatedAt.UTC(),
	}
}

type destroyInput struct {
	exchange
	IDInput
	KeepDisk bool `query:"keep_disk" doc:"Keep its files for the next sandbox with this id."`
	Archive  bool `query:"archive" doc:"Put its files into the archive storage first. The answer is 200 with the archive; when it cannot be made the sandbox stays, stopped."`
}

func (d *door) destroySandbox(ctx context.Context, in *destroyInput) (*streamed, error) {
	if !in.Archive {
		if err := d.Core.Sandboxes().Destroy(ctx, in.ID, in.KeepDisk); err != nil {
			return nil, err
		}
		return stream(func() { in.w.WriteHeader(http.StatusNoContent) }), nil
	}
	if in.KeepDisk {
		return nil, errs.E(errs.Invalid, "archive and keep_disk exclude each other")
	}
	m, err := d.Core.Sandboxes().Archive(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return stream(func() { front.WriteJSON(in.w, http.StatusOK, archiveJSON(m)) }), nil
}

type archiveName struct {
	Name   string `path:"name"`
	Tenant string `query:"tenant_id" doc:"Whose archive it is, for a token of no tenant."`
}

func (d *door) keptArchiveRoutes() {
	register(d, operation{
		id: "get-archive", method: http.MethodGet, path: "/v1/archives/{name}", tag: "archives", summary: "Describe the archive of a destroyed sandbox",
	}, func(ctx context.Context, in *archiveName) (*struct{ Body Archive }, error) {
		m, err := d.Core.Archives().Get(ctx, in.Tenant, in.Name)
		if err != nil {
			return nil, err
		}
		return &struct{ Body Archive }{archiveJSON(m)}, nil
	})
	register(d, operation{
		id: "remove-archive", method: http.MethodDelete, path: "/v1/archives/{name}", tag: "archives", status: http.StatusNoContent,
		summary: "Delete an archive",
	}, func(ctx context.Context, in *archiveName) (*struct{}, error) {
		return nil, d.Core.Archives().Remove(ctx, in.Tenant, in.Name)
	})
}
