package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Sandbox is one sandbox. Its environment is never reported.
type Sandbox struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	// Reason says why the sandbox failed; why it stopped or sleeps when nobody
	// asked; why it was stopped instead of put to sleep; or, while it runs, what
	// it lost when it woke.
	Reason string `json:"reason,omitempty"`
	// RestoreIncomplete: its memory was lost while it slept, and it started again
	// from its files.
	RestoreIncomplete bool   `json:"restore_incomplete,omitempty"`
	Image             string `json:"image"`
	// Runtime is the language that it is for: "python", "node", "r" or "".
	Runtime string `json:"runtime,omitempty"`
	// Dependencies are the packages that it was created with, and the versions
	// asked for.
	Dependencies map[string]string `json:"dependencies,omitempty"`

	Isolation  Isolation         `json:"isolation"`
	Limits     Limits            `json:"limits"`
	User       string            `json:"user"`
	Labels     map[string]string `json:"labels,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Ports      []int             `json:"ports,omitempty"`
	Services   []ServiceSpec     `json:"services,omitempty"` // as declared, without env
	Network    Network           `json:"network"`
	Visibility string            `json:"visibility"`
	HostHeader string            `json:"host_header"` // of previews: "localhost" or "preserve"
	// IdlePolicy is what happens after IdleTimeoutSeconds without use.
	IdlePolicy         string  `json:"idle_policy"`
	IdleTimeoutSeconds float64 `json:"idle_timeout_seconds"`
	// AutoWake says when a use runs the sandbox again: "idle", "always" or "never".
	AutoWake string `json:"auto_wake"`
	// ExecTimeoutSeconds bounds commands that name no timeout; 0 is none.
	ExecTimeoutSeconds float64 `json:"exec_timeout_seconds"`
	// MaxLifetimeSeconds counts from CreatedAt; 0 is none.
	MaxLifetimeSeconds float64 `json:"max_lifetime_seconds"`
	Thread             string  `json:"thread,omitempty"`
	TenantID           string  `json:"tenant_id,omitempty"` // whose it is
	// GitRemoteURL is where each task that succeeds is pushed to; "" is nowhere.
	GitRemoteURL string `json:"git_remote_url,omitempty"`
	// ActiveTaskID is the task that runs; only [Client.Get] says it.
	ActiveTaskID string `json:"active_task_id,omitempty"`
	// Warnings say what it has in common with others of its memory and should not, as
	// the state of a program's random generator, and what it lost over that. Only the
	// answers of a [Client.Create] from a snapshot with memory and of a
	// [Client.Rollback] to one have them.
	Warnings []string `json:"warnings,omitempty"`
	// Conditions are what keeps it from working as it should, while it runs.
	Conditions []Condition `json:"conditions,omitempty"`
	// SharedFiles: /workspace and /mnt/user-data are on its tenant's disk.
	SharedFiles  bool       `json:"shared_files,omitempty"`
	CreatedAt    time.Time  `json:"created_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
	StartedAt    *time.Time `json:"started_at,omitempty"`
	StoppedAt    *time.Time `json:"stopped_at,omitempty"`
	LastActiveAt time.Time  `json:"last_active_at"`
	// IdleAt is when IdlePolicy comes into force unless somebody uses the
	// sandbox before; nil while it does not run, is in use or never idles.
	IdleAt *time.Time `json:"idle_at,omitempty"`
	// KeptUntil is the end of the lease of a [Client.Keepalive].
	KeptUntil *time.Time `json:"kept_until,omitempty"`
	// ExpiresAt is when it is destroyed because its lifetime is over.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Condition is something that keeps a running sandbox from working as it should.
type Condition struct {
	// Type is "disk_failed": a disk of it is read-only, until the host has room and the
	// sandbox is restarted by itself; or "disk_held": what writes to its disks waits.
	Type   string `json:"type"`
	Reason string `json:"reason"` // for people
}

// String is short, for logs.
func (b Sandbox) String() string {
	text := fmt.Sprintf("sandbox %s: %s", b.ID, b.Status)
	if b.Reason != "" {
		text += " (" + b.Reason + ")"
	}
	return text
}

// Isolation is what keeps a sandbox from the host.
type Isolation = string

// The isolations of the API.
const (
	GVisor    Isolation = "gvisor"    // a kernel of its own; the default
	Container Isolation = "container" // the host's kernel, hardened
)

// Status is where a sandbox stands in its life.
type Status string

// The statuses of a sandbox.
const (
	Creating  Status = "creating"
	Running   Status = "running"
	Sleeping  Status = "sleeping" // memory kept on disk
	Stopped   Status = "stopped"  // files only
	Failed    Status = "failed"   // Reason says why
	Destroyed Status = "destroyed"
)

// Limits bound what a sandbox can use. In a request, zero is the default.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	CPUs        float64 `json:"cpus,omitempty"`
	PIDs        int64   `json:"pids,omitempty"`
	DiskBytes   int64   `json:"disk_bytes,omitempty"`
	OpenFiles   int64   `json:"open_files,omitempty"`
}

// Network is how far a sandbox can reach.
type Network struct {
	// Mode is "none", "allowlist" or "open". Open never includes private
	// addresses.
	Mode string `json:"mode,omitempty"`
	// Allow lists hosts, for "allowlist": names, *.names, addresses and
	// networks, with or without a port. Empty is the default list of package
	// indexes.
	Allow []string `json:"allow,omitempty"`
	// Deny comes before everything that allows, in every mode.
	Deny []string `json:"deny,omitempty"`
	// ProxyEnv is whether HTTP_PROXY and the other variables that name the proxy
	// are set. Nil is true in a create; an answer always has it. It is fixed at
	// create: in a patch it is nil or what the sandbox has.
	ProxyEnv *bool `json:"proxy_env,omitempty"`
}

// CreateOptions is what a caller asks for. Every field may be left zero.
type CreateOptions struct {
	ID                 string            `json:"id,omitempty"`        // default: generated
	Image              string            `json:"image,omitempty"`     // default "base", or "r" for the runtime r
	Runtime            string            `json:"runtime,omitempty"`   // "python", "node" or "r"; default none in particular
	Isolation          Isolation         `json:"isolation,omitempty"` // default [GVisor]
	Limits             *Limits           `json:"limits,omitempty"`
	Env                map[string]string `json:"env,omitempty"`
	User               string            `json:"user,omitempty"` // "sandbox" (default) or "root"
	Labels             map[string]string `json:"labels,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
	Ports              []int             `json:"ports,omitempty"`
	Services           []ServiceSpec     `json:"services,omitempty"` // they run for as long as the sandbox does
	Network            *Network          `json:"network,omitempty"`
	Visibility         string            `json:"visibility,omitempty"`
	HostHeader         string            `json:"host_header,omitempty"` // default "localhost"
	IdlePolicy         string            `json:"idle_policy,omitempty"` // "sleep" (default), "stop", "destroy" or "always_on"
	IdleTimeoutSeconds *float64          `json:"idle_timeout_seconds,omitempty"`
	ExecTimeoutSeconds *float64          `json:"exec_timeout_seconds,omitempty"`
	MaxLifetimeSeconds *float64          `json:"max_lifetime_seconds,omitempty"` // 0: none
	// AutoWake is "idle" (default): a use runs it again when it sleeps or the
	// daemon stopped it; "always": also when a Stop did or it died; or "never".
	AutoWake string `json:"auto_wake,omitempty"`
	// Thread is the conversation that the sandbox belongs to: its sandboxes share
	// exports and uploads, and bounds of the operator.
	Thread string `json:"thread,omitempty"`
	// TenantID is whose the sandbox is. Default the token's tenant, if it belongs
	// to one.
	TenantID string `json:"tenant_id,omitempty"`
	// SharedFiles puts /workspace and /mnt/user-data on the tenant's disk, with
	// those of its other sandboxes. Default true where TenantID is given.
	SharedFiles *bool `json:"shared_files,omitempty"`
	// Dependencies are packages of the runtime (default python) to install, with
	// their versions; "" is any.
	Dependencies map[string]string `json:"dependencies,omitempty"`
	// Progress, when not nil, hears what their installation prints.
	Progress func(Output) `json:"-"`
	// Restore names an archive whose files the sandbox begins with.
	Restore string `json:"restore,omitempty"`
	// Snapshot is one that the sandbox begins from, by its id or name. Image,
	// isolation, limits and user are the snapshot's.
	Snapshot string `json:"snapshot,omitempty"`
	// GitRemoteURL is where each task that succeeds is pushed to, to the branch
	// main, with the operator's secret GIT_TOKEN: https://host/path.
	GitRemoteURL string `json:"git_remote_url,omitempty"`

	// IdempotencyKey makes a repeat of the same create return the same
	// sandbox instead of a second one.
	IdempotencyKey string `json:"-"`
}

// Create makes a sandbox and returns when it runs and has its dependencies.
// When they cannot be installed, or ctx ends before, there is no sandbox.
func (c *Client) Create(ctx context.Context, o CreateOptions) (Sandbox, error) {
	var box Sandbox
	r := call{method: http.MethodPost, path: "/v1/sandboxes", json: o, header: http.Header{}}
	if o.IdempotencyKey != "" {
		r.header.Set("Idempotency-Key", o.IdempotencyKey)
	}
	if o.Progress != nil {
		return c.follow(ctx, r, o.Progress)
	}
	return box, c.do(ctx, r, &box)
}

// Get returns a sandbox.
func (c *Client) Get(ctx context.Context, id string) (Sandbox, error) {
	var box Sandbox
	return box, c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id)}, &box)
}

// ListOptions selects sandboxes. The zero value selects all of the token's.
type ListOptions struct {
	Labels   map[string]string // all must match
	Status   Status
	Thread   string // "": any
	TenantID string // "": any
	PageSize int    // of one request; 0: the daemon's choice
}

// List iterates over sandboxes, newest first, fetching page by page. After an
// error the iteration ends.
func (c *Client) List(ctx context.Context, o ListOptions) iter.Seq2[Sandbox, error] {
	return func(yield func(Sandbox, error) bool) {
		cursor := ""
		for {
			boxes, next, err := c.ListPage(ctx, o, cursor)
			if err != nil {
				yield(Sandbox{}, err)
				return
			}
			for _, b := range boxes {
				if !yield(b, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			cursor = next
		}
	}
}

// ListPage returns one page and the cursor of the next; "" begins, and ends.
func (c *Client) ListPage(ctx context.Context, o ListOptions, cursor string) (boxes []Sandbox, next string, err error) {
	q := url.Values{}
	for k, v := range o.Labels {
		q.Add("label", k+"="+v)
	}
	if o.Status != "" {
		q.Set("status", string(o.Status))
	}
	if o.Thread != "" {
		q.Set("thread", o.Thread)
	}
	if o.TenantID != "" {
		q.Set("tenant_id", o.TenantID)
	}
	if o.PageSize > 0 {
		q.Set("limit", strconv.Itoa(o.PageSize))
	}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	var page struct {
		Sandboxes  []Sandbox `json:"sandboxes"`
		NextCursor string    `json:"next_cursor"`
	}
	err = c.do(ctx, call{method: http.MethodGet, path: "/v1/sandboxes", query: q}, &page)
	return page.Sandboxes, page.NextCursor, err
}

// Patch names what an update changes; nil fields stay as they are.
type Patch struct {
	Labels             map[string]string `json:"labels,omitempty"`   // replaces all
	Metadata           map[string]string `json:"metadata,omitempty"` // replaces all
	Ports              []int             `json:"ports,omitempty"`
	Services           *[]ServiceSpec    `json:"services,omitempty"`        // replaces all; those that stay the same run on
	Network            *Network          `json:"network,omitempty"`         // holds from the next connection on
	CutConnections     bool              `json:"cut_connections,omitempty"` // end the open ones that Network does not allow
	Visibility         *string           `json:"visibility,omitempty"`
	HostHeader         *string           `json:"host_header,omitempty"`
	IdlePolicy         *string           `json:"idle_policy,omitempty"`
	IdleTimeoutSeconds *float64          `json:"idle_timeout_seconds,omitempty"`
	AutoWake           *string           `json:"auto_wake,omitempty"`
	ExecTimeoutSeconds *float64          `json:"exec_timeout_seconds,omitempty"`
	MaxLifetimeSeconds *float64          `json:"max_lifetime_seconds,omitempty"` // from its creation on
	GitRemoteURL       *string           `json:"git_remote_url,omitempty"`       // "": nowhere
}

// Update changes a sandbox.
func (c *Client) Update(ctx context.Context, id string, p Patch) (Sandbox, error) {
	var box Sandbox
	return box, c.do(ctx, call{method: http.MethodPatch, path: sandboxPath(id), json: p}, &box)
}

// Start runs a stopped sandbox and returns when it runs. Starting a running
// one does nothing; starting a sleeping one wakes it.
func (c *Client) Start(ctx context.Context, id string) (Sandbox, error) {
	var box Sandbox
	return box, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "start")}, &box)
}

// Stop ends a sandbox's processes and keeps its files. They are asked to end
// and killed after grace; a negative grace is the daemon's choice. Stopping a
// stopped sandbox does nothing. [TaskInProgress] while a task runs: see
// [Client.StopAnyway].
func (c *Client) Stop(ctx context.Context, id string, grace time.Duration) (Sandbox, error) {
	return c.stop(ctx, id, grace, false)
}

// StopAnyway is [Client.Stop] that ends tasks too.
func (c *Client) StopAnyway(ctx context.Context, id string, grace time.Duration) (Sandbox, error) {
	return c.stop(ctx, id, grace, true)
}

func (c *Client) stop(ctx context.Context, id string, grace time.Duration, force bool) (Sandbox, error) {
	var box Sandbox
	body := map[string]any{}
	if grace >= 0 {
		body["grace_seconds"] = grace.Seconds()
	}
	if force {
		body["force"] = true
	}
	r := call{method: http.MethodPost, path: sandboxPath(id, "stop")}
	if len(body) > 0 {
		r.json = body
	}
	return box, c.do(ctx, r, &box)
}

// Sleep writes a sandbox's memory to disk and ends its run; all that ran goes on
// after the wake, which the next use brings about. [InUse] while a command, a cell,
// a transfer or a viewer is active, unless force: then commands, cells and
// terminals go on after the wake. Where memory cannot be kept, as in containers,
// the sandbox is stopped instead, and Reason says so. Sleep of a sleeping sandbox
// does nothing.
func (c *Client) Sleep(ctx context.Context, id string, force bool) (Sandbox, error) {
	var box Sandbox
	r := call{method: http.MethodPost, path: sandboxPath(id, "sleep"), json: map[string]bool{"force": force}}
	return box, c.do(ctx, r, &box)
}

// Wake runs a sleeping sandbox on and returns when it runs. If its memory can no
// longer be read it starts from its files, and RestoreIncomplete says so. Waking a
// running sandbox does nothing; waking a stopped one starts it.
func (c *Client) Wake(ctx context.Context, id string) (Sandbox, error) {
	var box Sandbox
	return box, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "wake")}, &box)
}

// Keepalive says that a running sandbox is used now.
func (c *Client) Keepalive(ctx context.Context, id string) (Sandbox, error) {
	return c.keepalive(ctx, id, nil)
}

// KeepUntil takes a lease: the sandbox does not idle before. A lease is not
// shortened by another one, and ends with the sandbox's lifetime: KeptUntil is
// what it got.
func (c *Client) KeepUntil(ctx context.Context, id string, until time.Time) (Sandbox, error) {
	return c.keepalive(ctx, id, map[string]time.Time{"until": until})
}

// KeepFor is [Client.KeepUntil] in time from now; 0 gives the lease up.
func (c *Client) KeepFor(ctx context.Context, id string, d time.Duration) (Sandbox, error) {
	return c.keepalive(ctx, id, map[string]float64{"seconds": d.Seconds()})
}

func (c *Client) keepalive(ctx context.Context, id string, body any) (Sandbox, error) {
	var box Sandbox
	return box, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "keepalive"), json: body}, &box)
}

// Destroy ends a sandbox and removes everything of it but its history. A
// second Destroy is [NotFound].
func (c *Client) Destroy(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sandboxPath(id)}, nil)
}

// Archive is the files of a destroyed sandbox, in the storage that the
// daemon's operator set up.
type Archive struct {
	Name      string    `json:"name"` // for Restore of a create
	ID        string    `json:"id"`   // the sandbox's
	Image     string    `json:"image"`
	Isolation string    `json:"isolation"`
	Bytes     int64     `json:"bytes"` // what it takes in the storage
	CreatedAt time.Time `json:"created_at"`
}

// DestroyArchived destroys a sandbox after its files have been archived. When
// they cannot be, it stays, stopped, with all of them.
func (c *Client) DestroyArchived(ctx context.Context, id string) (Archive, error) {
	var a Archive
	return a, c.do(ctx, call{method: http.MethodDelete, path: sandboxPath(id), query: url.Values{"archive": {"true"}}}, &a)
}

// Archive describes an archive.
func (c *Client) Archive(ctx context.Context, name string) (Archive, error) {
	var a Archive
	return a, c.do(ctx, call{method: http.MethodGet, path: "/v1/archives/" + url.PathEscape(name)}, &a)
}

// RemoveArchive deletes an archive.
func (c *Client) RemoveArchive(ctx context.Context, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/v1/archives/" + url.PathEscape(name)}, nil)
}

// Purge destroys a sandbox, or what is left of one whose disk was kept, and
// returns the bytes of the host's disk that became free.
func (c *Client) Purge(ctx context.Context, id string) (freed int64, err error) {
	var answer struct {
		Freed int64 `json:"freed_bytes"`
	}
	err = c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "purge")}, &answer)
	return answer.Freed, err
}

// Stats is what a sandbox uses now.
type Stats struct {
	MemoryBytes       int64   `json:"memory_bytes"`
	MemoryOnDiskBytes int64   `json:"memory_on_disk_bytes"` // of a sleeping one
	CPUSeconds        float64 `json:"cpu_seconds"`
	PIDs              int64   `json:"pids"`
	DiskBytes         int64   `json:"disk_bytes"`
}

// Stats returns what a sandbox uses now.
func (c *Client) Stats(ctx context.Context, id string) (Stats, error) {
	var s Stats
	return s, c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "stats")}, &s)
}
