package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/services"
	"github.com/cubbyhq/cubby/internal/cli/values"
)

// boxFlags are the flags of create and run that describe a sandbox.
type boxFlags struct {
	id, image, isolation, user, network, idlePolicy string
	thread, runtime, tenant, autoWake, remote       string
	memory, disk                                    values.Size
	cpus                                            float64
	pids                                            int64
	dependencies                                    []string
	env, envFiles, labels, metadata, allow, deny    []string
	services                                        []string
	ports                                           []int
	idleTimeout, execTimeout, maxLifetime           time.Duration
	proxyEnv, sharedFiles                           bool
}

func (b *boxFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.id, "id", "", "`ID` of the sandbox (default: generated)")
	f.StringVar(&b.image, "image", "", "`image` to start from (default base; r for the runtime r)")
	f.StringVar(&b.runtime, "runtime", "", "`language` that it is for: python, node or r")
	f.StringVar(&b.isolation, "isolation", "", "`wall` between it and the host: gvisor or container (default gvisor)")
	f.Var(&b.memory, "memory", "memory, such as 512MiB (default 1GiB)")
	f.Var(&b.disk, "disk", "disk, such as 10GiB (default 4GiB)")
	f.Float64Var(&b.cpus, "cpus", 0, "`number` of CPUs, such as 0.5 (default 2)")
	f.Int64Var(&b.pids, "pids", 0, "`number` of processes (default 512)")
	f.StringArrayVarP(&b.env, "env", "e", nil, "environment variable `KEY=VALUE`, or KEY to hand on one of here; repeatable")
	f.StringArrayVar(&b.envFiles, "env-file", nil, "`file` of KEY=VALUE lines; repeatable")
	f.StringVarP(&b.user, "user", "u", "", "`user` of commands: sandbox or root (default sandbox)")
	f.StringArrayVarP(&b.labels, "label", "l", nil, "label `KEY=VALUE`; repeatable")
	f.StringArrayVar(&b.metadata, "metadata", nil, "metadata `KEY=VALUE`; repeatable")
	f.IntSliceVarP(&b.ports, "port", "p", nil, "`port` that something in the sandbox will serve; repeatable")
	services.Flag(cmd, &b.services)
	f.StringVar(&b.network, "network", "", "egress `mode`: none, allowlist or open (default allowlist)")
	f.StringSliceVar(&b.allow, "allow", nil, "`host` that the sandbox may reach, instead of the default list; repeatable")
	f.StringSliceVar(&b.deny, "deny", nil, "`host` that the sandbox may not reach, whatever allows it; repeatable")
	f.BoolVar(&b.proxyEnv, "proxy-env", true, "name the proxy in its environment, as HTTP_PROXY and so on")
	f.DurationVar(&b.execTimeout, "exec-timeout", 0, "time `limit` of commands that name none (default 5m; 0: none)")
	f.StringVar(&b.idlePolicy, "idle-policy", "", "`what` happens when nobody uses it: sleep, stop, destroy or always_on (the daemon's default: sleep)")
	f.DurationVar(&b.idleTimeout, "idle-timeout", 0, "`time` that it may be unused (the daemon's default: 30m; 0: for ever)")
	f.StringVar(&b.autoWake, "auto-wake", "", "`when` a use runs it again: idle (it sleeps, or the daemon stopped it), always (also after a stop) or never (default idle)")
	f.DurationVar(&b.maxLifetime, "max-lifetime", 0, "`time` after which it is destroyed, whatever it does (the daemon's default: none; 0: none)")
	f.StringVar(&b.thread, "thread", "", "`name` of the group that a bound of the operator holds for")
	f.StringVar(&b.tenant, "tenant", "", "`name` of the tenant whose it is (default the token's, if it belongs to one)")
	f.BoolVar(&b.sharedFiles, "shared-files", false, "put /workspace on its tenant's disk, with those of others (default true with --tenant)")
	f.StringVar(&b.remote, "git-remote-url", "", "`URL` of a repository that each task that succeeds is pushed to, with the secret GIT_TOKEN")
	f.StringArrayVar(&b.dependencies, "dep", nil, "package to install first, as `NAME[=VERSION]`; repeatable")
	complete(cmd, "runtime", "python", "node", "r")
	complete(cmd, "isolation", "gvisor", "container")
	complete(cmd, "network", "none", "allowlist", "open")
	complete(cmd, "idle-policy", "sleep", "stop", "destroy", "always_on")
	complete(cmd, "auto-wake", "idle", "always", "never")
	complete(cmd, "user", "sandbox", "root")
}

// options turns the flags into a request. Only what was given is sent: the
// daemon has the defaults.
func (b *boxFlags) options(a *app, cmd *cobra.Command) (client.CreateOptions, error) {
	o := client.CreateOptions{
		ID: b.id, Image: b.image, Isolation: b.isolation, User: b.user, Ports: b.ports, IdlePolicy: b.idlePolicy, Thread: b.thread,
		Runtime: b.runtime, TenantID: b.tenant, AutoWake: b.autoWake, GitRemoteURL: b.remote,
	}
	var err error
	if o.Env, err = values.Environment(a.lookupEnv, b.env, b.envFiles); err != nil {
		return o, usageError{cmd, err}
	}
	if o.Services, err = services.Parse(b.services); err != nil {
		return o, usageError{cmd, err}
	}
	if o.Dependencies, err = dependencies(b.dependencies); err != nil {
		return o, usageError{cmd, err}
	}
	if len(o.Dependencies) > 0 {
		o.Progress = a.installing
	}
	if o.Labels, err = values.Pairs("label", b.labels); err != nil {
		return o, usageError{cmd, err}
	}
	if o.Metadata, err = values.Pairs("metadata", b.metadata); err != nil {
		return o, usageError{cmd, err}
	}
	limits := client.Limits{MemoryBytes: int64(b.memory), DiskBytes: int64(b.disk), CPUs: b.cpus, PIDs: b.pids}
	if limits != (client.Limits{}) {
		o.Limits = &limits
	}
	if b.network != "" || len(b.allow)+len(b.deny) > 0 {
		o.Network = &client.Network{Mode: b.network, Allow: b.allow, Deny: b.deny}
		if b.network == "" {
			o.Network.Mode = "allowlist"
		}
	}
	if cmd.Flags().Changed("proxy-env") {
		if o.Network == nil {
			o.Network = new(client.Network)
		}
		o.Network.ProxyEnv = &b.proxyEnv
	}
	if cmd.Flags().Changed("shared-files") {
		o.SharedFiles = &b.sharedFiles
	}
	if cmd.Flags().Changed("exec-timeout") {
		s := b.execTimeout.Seconds()
		o.ExecTimeoutSeconds = &s
	}
	if cmd.Flags().Changed("max-lifetime") {
		s := b.maxLifetime.Seconds()
		o.MaxLifetimeSeconds = &s
	}
	if cmd.Flags().Changed("idle-timeout") {
		s := b.idleTimeout.Seconds()
		o.IdleTimeoutSeconds = &s
	}
	return o, nil
}

func (a *app) lookupEnv(name string) (string, bool) {
	for _, kv := range a.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}
