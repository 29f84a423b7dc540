package rest

import (
	"cmp"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Sandbox is the canonical JSON of a sandbox. Its env is never shown.
type Sandbox struct {
	ID                 string            `json:"id"`
	TenantID           string            `json:"tenant_id,omitempty" doc:"Whose it is."`
	SharedFiles        bool              `json:"shared_files,omitempty" doc:"/workspace and /mnt/user-data are on its tenant's disk, with those of others."`
	Status             string            `json:"status" enum:"creating,running,sleeping,stopped,failed,destroyed"`
	Reason             string            `json:"reason,omitempty" doc:"Why it failed; why it stopped or sleeps when nobody asked for that; why it was stopped instead of put to sleep; or, while it runs, what it lost when it woke."`
	RestoreIncomplete  bool              `json:"restore_incomplete,omitempty" doc:"Its memory was lost while it slept, and it started again from its files; reason says what that means."`
	Image              string            `json:"image"`
	Runtime            string            `json:"runtime,omitempty" enum:"python,node,r"`
	Dependencies       map[string]string `json:"dependencies,omitempty" doc:"Packages that it was created with, and the versions asked for."`
	Isolation          string            `json:"isolation" enum:"gvisor,container"`
	Limits             Limits            `json:"limits"`
	User               string            `json:"user" doc:"Who commands run as."`
	Labels             map[string]string `json:"labels"`
	Metadata           map[string]string `json:"metadata"`
	Ports              []int             `json:"ports" nullable:"false"`
	Services           []ServiceSpec     `json:"services" nullable:"false" doc:"As they were declared, without env; …/services says how they stand."`
	Network            Network           `json:"network"`
	Visibility         string            `json:"visibility" enum:"public,private"`
	HostHeader         string            `json:"host_header" enum:"localhost,preserve"`
	IdlePolicy         string            `json:"idle_policy" enum:"stop,destroy,sleep,always_on"`
	IdleTimeoutSeconds float64           `json:"idle_timeout_seconds" doc:"0: never idle."`
	AutoWake           string            `json:"auto_wake" enum:"idle,always,never"`
	ExecTimeoutSeconds float64           `json:"exec_timeout_seconds" doc:"Of execs that name none; 0: none."`
	MaxLifetimeSeconds float64           `json:"max_lifetime_seconds" doc:"From created_at on; 0: none."`
	Thread             string            `json:"thread,omitempty"`
	GitRemoteURL       string            `json:"git_remote_url,omitempty" doc:"Where tasks are pushed to."`
	ActiveTaskID       string            `json:"active_task_id,omitempty" doc:"The task that runs, when one sandbox is asked for."`
	Warnings           []string          `json:"warnings,omitempty" nullable:"false" doc:"What the sandbox has in common with others of its memory and should not, as the state of a program's random generator, and what it lost over that. Only in the answer of a create from a snapshot with memory, and of a rollback to one."`
	Conditions         []Condition       `json:"conditions,omitempty" nullable:"false" doc:"What keeps the running sandbox from working as it should; absent while nothing does."`
	CreatedAt          time.Time         `json:"created_at"`
	UpdatedAt          time.Time         `json:"updated_at"`
	StartedAt          *time.Time        `json:"started_at,omitempty"`
	StoppedAt          *time.Time        `json:"stopped_at,omitempty" doc:"When it was stopped or put to sleep last."`
	LastActiveAt       time.Time         `json:"last_active_at"`
	IdleAt             *time.Time        `json:"idle_at,omitempty" doc:"When idle_policy comes into force unless somebody uses it before; absent while it does not run, is in use or never idles."`
	KeptUntil          *time.Time        `json:"kept_until,omitempty" doc:"A keepalive's lease: it does not idle before."`
	ExpiresAt          *time.Time        `json:"expires_at,omitempty" doc:"When max_lifetime_seconds is over and it is destroyed."`
}

// Condition is something that keeps a running sandbox from working as it should.
type Condition struct {
	Type   string `json:"type" enum:"disk_failed,disk_held" doc:"disk_failed: a disk of it is read-only because writing to the host's disk failed, and is repaired once the host has room, by a restart of the sandbox. disk_held: what writes to its disks waits, because the host's disk is nearly full."`
	Reason string `json:"reason" doc:"For people, with the remedy."`
}

func conditionsJSON(all []sandbox.Condition) (out []Condition) {
	for _, c := range all {
		out = append(out, Condition{string(c.Type), c.Reason})
	}
	return out
}

// Limits bound what a sandbox can use.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes,omitempty" minimum:"0"`
	CPUs        float64 `json:"cpus,omitempty" minimum:"0"`
	PIDs        int64   `json:"pids,omitempty" minimum:"0"`
	DiskBytes   int64   `json:"disk_bytes,omitempty" minimum:"0"`
	OpenFiles   int64   `json:"open_files,omitempty" minimum:"0"`
}

// Network is a sandbox's egress policy.
type Network struct {
	Mode  string   `json:"mode,omitempty" enum:"none,allowlist,open"`
	Allow []string `json:"allow,omitempty" nullable:"false" doc:"For mode allowlist: hosts, *.domains, addresses and networks, with or without a port; empty means the default list."`
	Deny  []string `json:"deny,omitempty" nullable:"false" doc:"Comes before everything that allows, in every mode; entries as in allow."`

	ProxyEnv *bool `json:"proxy_env,omitempty" doc:"Whether HTTP_PROXY and the other variables that name the proxy are set, for programs that would not connect by themselves; default true, fixed at create."`
}

func (n Network) policy() sandbox.Policy {
	return sandbox.Policy{Mode: sandbox.NetworkMode(n.Mode), Allow: n.Allow, Deny: n.Deny, ProxyEnv: n.ProxyEnv}
}

func networkJSON(p sandbox.Policy) Network {
	named := p.NamesProxy()
	return Network{Mode: string(p.Mode), Allow: p.Allow, Deny: p.Deny, ProxyEnv: &named}
}

// SandboxInput is what a create takes. Every field is optional.
type SandboxInput struct {
	ID          string            `json:"id,omitempty" doc:"1 to 55 of A-Z a-z 0-9 - _; generated when absent."`
	TenantID    string            `json:"tenant_id,omitempty" maxLength:"64" doc:"Whose it is. Default the token's tenant, if it belongs to one."`
	SharedFiles *bool             `json:"shared_files,omitempty" doc:"Whether /workspace and /mnt/user-data are on its tenant's disk, with those of others. Default true where tenant_id is given, else false."`
	Image       string            `json:"image,omitempty" doc:"Default base; r for the runtime r."`
	Runtime     string            `json:"runtime,omitempty" enum:"python,node,r" doc:"The language that it is for; default none in particular."`
	Isolation   string            `json:"isolation,omitempty" enum:"gvisor,container" doc:"Default gvisor."`
	Limits      *Limits           `json:"limits,omitempty"`
	Env         map[string]string `json:"env,omitempty" doc:"Environment of every command; never shown again."`
	User        string            `json:"user,omitempty" doc:"Who commands run as: sandbox (default) or root."`
	Labels      map[string]string `json:"labels,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Ports       []int             `json:"ports,omitempty" nullable:"false"`
	Services    []ServiceSpec     `json:"services,omitempty" nullable:"false" maxItems:"32" doc:"Commands that run for as long as the sandbox does."`
	Network     *Network          `json:"network,omitempty"`
	Visibility  string            `json:"visibility,omitempty" enum:"public,private" doc:"Whether everybody may open the previews of its ports; default private."`
	HostHeader  string            `json:"host_header,omitempty" enum:"localhost,preserve" doc:"The Host that apps see in requests of previews: localhost and the port (default), or the preview's own."`
	IdlePolicy  string            `json:"idle_policy,omitempty" enum:"stop,destroy,sleep,always_on" doc:"What happens when nobody uses it; default sleep."`

	IdleTimeoutSeconds *float64 `json:"idle_timeout_seconds,omitempty" minimum:"0" doc:"0: never idle."`
	AutoWake           string   `json:"auto_wake,omitempty" enum:"idle,always,never" doc:"Whether a use runs it again when it sleeps or is stopped: idle (default) when it sleeps or the daemon stopped it, always also when a request stopped it or it died, never in no case."`
	ExecTimeoutSeconds *float64 `json:"exec_timeout_seconds,omitempty" minimum:"0" doc:"Of execs that name none; 0: none."`
	MaxLifetimeSeconds *float64 `json:"max_lifetime_seconds,omitempty" minimum:"0" doc:"After that it is destroyed, whatever it does; 0: never."`
	Thread             string   `json:"thread,omitempty" maxLength:"128" doc:"A conversation: its sandboxes share exports and uploads, and bounds of the operator hold for them."`

	GitRemoteURL string `json:"git_remote_url,omitempty" maxLength:"2048" doc:"Where each task that succeeds is pushed to, to its branch main, with the operator's secret GIT_TOKEN: https://…"`

	// The limits may also stand at the top.
	MemoryBytes int64   `json:"memory_bytes,omitempty" minimum:"0" doc:"Same as limits.memory_bytes."`
	CPUs        float64 `json:"cpus,omitempty" minimum:"0" doc:"Same as limits.cpus."`
	PIDs        int64   `json:"pids,omitempty" minimum:"0" doc:"Same as limits.pids."`
	DiskBytes   int64   `json:"disk_bytes,omitempty" minimum:"0" doc:"Same as limits.disk_bytes."`
	OpenFiles   int64   `json:"open_files,omitempty" minimum:"0" doc:"Same as limits.open_files."`
	Restore     string  `json:"restore,omitempty" doc:"The name of an archive whose files it begins with."`

	Snapshot     string `json:"snapshot,omitempty" doc:"A snapshot that it begins from, by its id or name. Image, isolation, limits and user are the snapshot's."`
	FromSnapshot string `json:"from_snapshot,omitempty" doc:"Same as snapshot."`

	Dependencies map[string]string `json:"dependencies,omitempty" doc:"Packages of the runtime (default python) to install, with their versions; an empty one is any."`
	Stream       bool              `json:"stream,omitempty" doc:"Answer with Server-Sent Events, as Accept: text/event-stream does: what the installation prints, and at last the sandbox."`
}

func (in *SandboxInput) limits() (sandbox.Limits, error) {
	l := sandbox.Limits{MemoryBytes: in.MemoryBytes, CPUs: in.CPUs, PIDs: in.PIDs, DiskBytes: in.DiskBytes, OpenFiles: in.OpenFiles}
	if in.Limits == nil {
		return l, nil
	}
	if l != (sandbox.Limits{}) {
		return l, errs.E(errs.Invalid, "limits are given twice").Hint("give them below limits or at the top, not both")
	}
	return sandbox.Limits{
		MemoryBytes: in.Limits.MemoryBytes, CPUs: in.Limits.CPUs, PIDs: in.Limits.PIDs,
		DiskBytes: in.Limits.DiskBytes, OpenFiles: in.Limits.OpenFiles,
	}, nil
}

func sandboxJSON(b sandbox.Sandbox) Sandbox {
	s := b.Spec
	return Sandbox{
		ID: string(b.ID), TenantID: b.Tenant, SharedFiles: s.SharedFiles, Status: string(b.State), Reason: b.Reason, Image: s.Image, Isolation: string(s.Isolation),
		RestoreIncomplete: b.Cause == sandbox.CauseMemoryLost, Warnings: b.Warnings, Conditions: conditionsJSON(b.Conditions),
		Runtime: s.Runtime, Dependencies: s.Dependencies,
		Limits: Limits{s.Limits.MemoryBytes, s.Limits.CPUs, s.Limits.PIDs, s.Limits.DiskBytes, s.Limits.OpenFiles},
		User:   s.User, Labels: nonNil(s.Labels), Metadata: nonNil(s.Metadata), Ports: append([]int{}, s.Ports...), Services: declaredJSON(s.Services),
		Network:    networkJSON(s.Network),
		Visibility: string(s.Visibility), HostHeader: string(cmp.Or(s.HostHeader, sandbox.HostLocalhost)), IdlePolicy: string(s.IdlePolicy), AutoWake: string(cmp.Or(s.AutoWake, sandbox.AutoWakeIdle)),
		IdleTimeoutSeconds: s.IdleTimeout.Seconds(), ExecTimeoutSeconds: s.ExecTimeout.Seconds(),
		MaxLifetimeSeconds: s.MaxLifetime.Seconds(), Thread: s.Thread, GitRemoteURL: s.GitRemoteURL,
		IdleAt: timeOrNil(b.IdleAt), KeptUntil: timeOrNil(s.KeptUntil), ExpiresAt: timeOrNil(b.Ends()),
		CreatedAt: b.CreatedAt.UTC(), UpdatedAt: b.UpdatedAt.UTC(), LastActiveAt: b.LastActiveAt.UTC(),
		StartedAt: timeOrNil(b.StartedAt), StoppedAt: timeOrNil(b.StoppedAt),
	}
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
