package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Tenant is one whose sandboxes share files.
type Tenant struct {
	ID        string     `json:"tenant_id"`
	Sandboxes int        `json:"sandboxes"` // running and stopped
	Running   int        `json:"running"`
	Disk      TenantDisk `json:"disk"`
	CreatedAt time.Time  `json:"created_at"`
}

// TenantDisk is the disk that a tenant's sandboxes share, in bytes.
type TenantDisk struct {
	Bytes     int64 `json:"bytes"`           // its size
	Used      int64 `json:"used_bytes"`      // 0 while nothing of the tenant runs
	Allocated int64 `json:"allocated_bytes"` // on the host
}

// Tenants lists the tenants that have shared files, by name. It asks for one
// page after another, as far as the loop goes. A token of a tenant sees that one.
func (c *Client) Tenants(ctx context.Context) iter.Seq2[Tenant, error] {
	return func(yield func(Tenant, error) bool) {
		q := url.Values{}
		for {
			var page struct {
				Tenants []Tenant `json:"tenants"`
				Next    string   `json:"next_cursor"`
			}
			if err := c.do(ctx, call{method: http.MethodGet, path: "/v1/tenants", query: q}, &page); err != nil {
				yield(Tenant{}, err)
				return
			}
			for _, t := range page.Tenants {
				if !yield(t, nil) {
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

func tenantPath(id, rest string) string { return "/v1/tenants/" + url.PathEscape(id) + rest }

// Tenant describes a tenant; [NotFound] when it never had a sandbox or an
// upload.
func (c *Client) Tenant(ctx context.Context, id string) (Tenant, error) {
	var t Tenant
	return t, c.do(ctx, call{method: http.MethodGet, path: tenantPath(id, "")}, &t)
}

// RemoveTenant deletes the shared files and uploads of a tenant; [Conflict]
// while it has sandboxes, also stopped ones.
func (c *Client) RemoveTenant(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: tenantPath(id, "")}, nil)
}

// Uploads are the files that a tenant's sandboxes can read below
// /mnt/user-data/uploads. Paths are relative to there.
type Uploads struct {
	tenant string
	c      *Client
}

// Uploads returns access to a tenant's uploads. It asks nobody whether the
// tenant exists.
func (c *Client) Uploads(tenant string) *Uploads { return &Uploads{tenant, c} }

// List lists a directory of uploads, "" being the top; recursive lists
// everything below it.
func (u *Uploads) List(ctx context.Context, path string, recursive bool) ([]File, error) {
	q := url.Values{"path": {path}}
	if recursive {
		q.Set("recursive", "true")
	}
	var answer struct {
		Entries []File `json:"entries"`
	}
	err := u.c.do(ctx, call{method: http.MethodGet, path: tenantPath(u.tenant, "/uploads"), query: q}, &answer)
	return answer.Entries, err
}

// Write stores an upload, with the directories above it. What is there is
// replaced when all of it has arrived.
func (u *Uploads) Write(ctx context.Context, path string, content io.Reader) (File, error) {
	var f File
	return f, u.c.do(ctx, call{
		method: http.MethodPut, path: tenantPath(u.tenant, "/uploads"), query: url.Values{"path": {path}},
		header: http.Header{"Content-Type": {"application/octet-stream"}}, body: content,
	}, &f)
}

// Open streams an upload. The caller closes it.
func (u *Uploads) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	res, err := u.c.send(ctx, call{method: http.MethodGet, path: tenantPath(u.tenant, "/uploads/content"), query: url.Values{"path": {path}}})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// Remove deletes an upload, an empty directory of them or, with recursive, a
// tree.
func (u *Uploads) Remove(ctx context.Context, path string, recursive bool) error {
	q := url.Values{"path": {path}}
	if recursive {
		q.Set("recursive", "true")
	}
	return u.c.do(ctx, call{method: http.MethodDelete, path: tenantPath(u.tenant, "/uploads"), query: q}, nil)
}
