package rest

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/tenants"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Tenant is a tenant and what its sandboxes share.
type Tenant struct {
	ID        string     `json:"tenant_id"`
	Sandboxes int        `json:"sandboxes" doc:"Running and stopped."`
	Running   int        `json:"running"`
	Disk      TenantDisk `json:"disk"`
	CreatedAt time.Time  `json:"created_at"`
}

// TenantDisk is the disk that a tenant's sandboxes share.
type TenantDisk struct {
	Bytes     int64 `json:"bytes" doc:"Its size."`
	Used      int64 `json:"used_bytes" doc:"As df inside shows it; 0 while nothing of the tenant runs."`
	Allocated int64 `json:"allocated_bytes" doc:"What it takes on the host."`
}

func tenantJSON(t tenants.Tenant) Tenant {
	return Tenant{
		ID: t.Name, Sandboxes: t.Sandboxes, Running: t.Running, CreatedAt: t.CreatedAt.UTC(),
		Disk: TenantDisk{Bytes: t.Disk.Bytes, Used: t.Disk.Used, Allocated: t.Disk.Allocated},
	}
}

// TenantList is one page of tenants.
type TenantList struct {
	Tenants    []Tenant `json:"tenants" nullable:"false"`
	NextCursor string   `json:"next_cursor,omitempty" doc:"Absent on the last page."`
}

// TenantInput names a tenant.
type TenantInput struct {
	Tenant string `path:"tenant"`
}

// UploadInput names an upload of a tenant.
type UploadInput struct {
	TenantInput
	Path string `query:"path" doc:"Relative to /mnt/user-data/uploads, or absolute."`
}

const tenantPath = "/v1/tenants/{tenant}"

func (d *door) tenantRoutes() {
	register(d, operation{
		id: "list-tenants", method: http.MethodGet, path: "/v1/tenants", tag: "tenants", summary: "List tenants that have shared files",
		description: "By name. A token of a tenant sees that one.",
	}, d.listTenants)
	register(d, operation{
		id: "get-tenant", method: http.MethodGet, path: tenantPath, tag: "tenants", summary: "Describe a tenant",
	}, func(ctx context.Context, in *TenantInput) (*struct{ Body Tenant }, error) {
		t, err := d.Core.Tenants().Get(ctx, in.Tenant)
		if err != nil {
			return nil, err
		}
		return &struct{ Body Tenant }{tenantJSON(t)}, nil
	})
	register(d, operation{
		id: "remove-tenant", method: http.MethodDelete, path: tenantPath, tag: "tenants", status: http.StatusNoContent,
		summary:     "Delete the shared files and uploads of a tenant",
		description: "409 while it has sandboxes, also stopped ones.",
	}, func(ctx context.Context, in *TenantInput) (*struct{}, error) {
		return nil, d.Core.Tenants().Remove(ctx, in.Tenant)
	})
	d.uploadRoutes()
}

func (d *door) uploadRoutes() {
	const uploads = tenantPath + "/uploads"
	register(d, operation{
		id: "list-uploads", method: http.MethodGet, path: uploads, tag: "tenants", summary: "List uploads",
	}, func(ctx context.Context, in *struct {
		UploadInput
		Recursive bool `query:"recursive" doc:"Everything below, not only the directory itself."`
	},
	) (*struct{ Body FileList }, error) {
		files, err := d.Core.Tenants().ListUploads(ctx, in.Tenant, in.Path, in.Recursive, maxListing)
		if err != nil {
			return nil, err
		}
		out := FileList{Path: sandbox.UploadsDir, Entries: make([]File, len(files))}
		for i, f := range files {
			out.Entries[i] = fileJSON(f)
		}
		return &struct{ Body FileList }{out}, nil
	})
	register(d, operation{
		id: "read-upload", method: http.MethodGet, path: uploads + "/content", tag: "tenants", summary: "Read an upload",
		responses: map[string]*huma.Response{"200": {Description: "The file", Content: httpapi.Media("application/octet-stream", nil)}},
	}, d.readUpload)
	register(d, operation{
		id: "write-upload", method: http.MethodPut, path: uploads, tag: "tenants", summary: "Write an upload",
		description: "The raw body is the content, of any size. What is there is replaced atomically, and missing directories are made. " +
			"A tenant that is not known begins with it.",
	}, func(ctx context.Context, in *struct {
		exchange
		UploadInput
	},
	) (*fileOutput, error) {
		if in.Path == "" {
			return nil, errs.E(errs.Invalid, "path: missing")
		}
		return fileOut(d.Core.Tenants().WriteUpload(ctx, in.Tenant, in.Path, front.Upload(front.StreamedBody(in.r))))
	})
	d.Documented(http.MethodPut, uploads).RequestBody = &huma.RequestBody{Content: httpapi.Content{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
	register(d, operation{
		id: "remove-upload", method: http.MethodDelete, path: uploads, tag: "tenants", status: http.StatusNoContent,
		summary: "Remove an upload, an empty directory or, with recursive, a tree",
	}, func(ctx context.Context, in *struct {
		UploadInput
		Recursive bool `query:"recursive"`
	},
	) (*struct{}, error) {
		if in.Path == "" {
			return nil, errs.E(errs.Invalid, "path: missing")
		}
		return nil, d.Core.Tenants().RemoveUpload(ctx, in.Tenant, in.Path, in.Recursive)
	})
}

func (d *door) listTenants(ctx context.Context, in *struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" doc:"next_cursor of the page before."`
},
) (*struct{ Body TenantList }, error) {
	page, next, err := d.Core.Tenants().List(ctx, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	out := TenantList{Tenants: make([]Tenant, len(page)), NextCursor: next}
	for i, t := range page {
		out.Tenants[i] = tenantJSON(t)
	}
	return &struct{ Body TenantList }{out}, nil
}

func (d *door) readUpload(ctx context.Context, in *struct {
	exchange
	UploadInput
},
) (*streamed, error) {
	if in.Path == "" {
		return nil, errs.E(errs.Invalid, "path: missing")
	}
	body, f, err := d.Core.Tenants().ReadUpload(ctx, in.Tenant, in.Path)
	if err != nil {
		return nil, err
	}
	return stream(func() {
		defer body.Close()
		h := in.w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Length", strconv.FormatInt(f.Size, 10))
		in.w.WriteHeader(http.StatusOK)
		if in.head() {
			return
		}
		if n, err := d.Copy(ctx, in.w, io.LimitReader(body, f.Size)); err == nil && n < f.Size {
			panic(http.ErrAbortHandler) // the promised length is a lie
		}
	}), nil
}
